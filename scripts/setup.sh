#!/usr/bin/env bash
# What building and running dstune-mpi needs, checked and, where this machine is a Debian or Ubuntu
# and we are root (or sudo asks for no password), installed. Where nothing is missing it touches
# nothing and needs no network. Run it by itself, or source it: quickstart.sh and test.sh do.
#
# Sourced, it also sets what mpirun needs as root, with more ranks than cores and in a bare
# environment. Variables that are already set stay as they are.
set -euo pipefail

checkout=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# A bare environment may have no PATH at all; packages keep some of their tools in sbin.
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"

say() { printf '%s\n' "$*" >&2; }

# One need a line: what a person calls it | how to see it | Debian package | Spack package
# How: c NAME[>=VERSION] is a command, h HEADER a C++ header, o HEADER one that Debian's oneDNN needs.
needs=(
  'C++20 compiler (g++ 12 or newer)|c g++>=12|g++|gcc'
  'CMake 3.25 or newer|c cmake>=3.25|cmake|cmake'
  'Ninja|c ninja|ninja-build|ninja'
  'MPI launcher|c mpirun|openmpi-bin|openmpi'
  'MPI headers|c mpicc|libopenmpi-dev|openmpi'
  'nlohmann_json 3.11 or newer|h nlohmann/json.hpp|nlohmann-json3-dev|nlohmann-json'
  'Boost.Program_options|h boost/program_options.hpp|libboost-program-options-dev|boost+program_options'
  'GoogleTest|h gtest/gtest.h|libgtest-dev|googletest+gmock'
  'GoogleMock|h gmock/gmock.h|libgmock-dev|googletest+gmock'
  'oneDNN|h dnnl.hpp|libdnnl-dev|onednn'
  'OpenCL (oneDNN as Debian builds it asks for it)|o CL/cl.h|ocl-icd-opencl-dev|ocl-icd'
  'Eigen|h eigen3/Eigen/Core|libeigen3-dev|eigen'
  'fmt|h fmt/core.h|libfmt-dev|fmt'
  'spdlog|h spdlog/spdlog.h|libspdlog-dev|spdlog'
  'Google Benchmark|h benchmark/benchmark.h|libbenchmark-dev|benchmark'
  'hwloc|h hwloc.h|libhwloc-dev|hwloc'
)

# version_of PROGRAM: the first number with a dot that it prints, or its major version.
version_of() {
  case $1 in
    g++) g++ -dumpfullversion ;;
    *) "$1" --version | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p' ;;
  esac
}

at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

have_header() { printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

# A oneDNN of one's own, which asks for no OpenCL.
onednn_is_elsewhere() { have_header dnnl.hpp && [[ ! -e /usr/include/dnnl.hpp ]]; }

# have HOW WHAT: is it there, and new enough?
have() {
  local what=$2 program version
  case $1 in
    c)
      program=${what%%>=*}
      command -v "$program" >/dev/null || return 1
      [[ $what == *'>='* ]] || return 0
      version=$(version_of "$program")
      at_least "$version" "${what#*>=}"
      ;;
    h) have_header "$what" ;;
    o) onednn_is_elsewhere || have_header "$what" ;;
  esac
}

missing_names=()
missing_packages=()
missing_specs=()
find_missing() {
  local need name how package spec
  missing_names=() missing_packages=() missing_specs=()
  for need in "${needs[@]}"; do
    IFS='|' read -r name how package spec <<<"$need"
    # shellcheck disable=SC2086  # two words on purpose
    if ! have $how; then
      missing_names+=("$name")
      missing_packages+=("$package")
      missing_specs+=("$spec")
    fi
  done
}

# The words before a command that needs root; fails where there is no way.
become_root=()
can_become_root() {
  [[ $(id -u) -eq 0 ]] && return 0
  become_root=(sudo -n)
  command -v sudo >/dev/null && sudo -n true 2>/dev/null
}

install_missing() {
  local apt=(env DEBIAN_FRONTEND=noninteractive "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin"
    apt-get -q -o DPkg::Lock::Timeout=300)
  say "Installing ${missing_packages[*]}"
  "${become_root[@]}" "${apt[@]}" update >&2 || say "apt-get update failed; trying with the lists that are here"
  "${become_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing_packages[@]}" >&2
}

explain_missing() {
  local index
  say "dstune-mpi needs what this machine does not offer:"
  for index in "${!missing_names[@]}"; do
    say "  - ${missing_names[index]}  (Debian and Ubuntu: ${missing_packages[index]}; Spack: ${missing_specs[index]})"
  done
  say "As root on Debian 12, Ubuntu 24.04 or newer this script installs it. Elsewhere:"
  say "  with environment modules: 'module avail' shows their names, 'module load' makes them visible,"
  say "    for instance  module load gcc cmake ninja openmpi boost"
  say "  with Spack:  spack install $(printf '%s\n' "${missing_specs[@]}" | sort -u | tr '\n' ' ')"
  say "    and then   spack load $(printf '%s\n' "${missing_specs[@]%%+*}" | sort -u | tr '\n' ' ')"
  say "Then run this again. CMAKE_PREFIX_PATH and CPATH name folders that neither of them set."
}

ensure_needs() {
  find_missing
  if [[ ${#missing_names[@]} -gt 0 ]] && command -v apt-get >/dev/null && can_become_root; then
    install_missing || say "apt-get did not succeed"
    hash -r
    find_missing
  fi
  if [[ ${#missing_names[@]} -gt 0 ]]; then
    explain_missing
    exit 1
  fi
}

set_mpi_environment() {
  # Open MPI's PMIx crashes for a user of no name and no home, as containers have them.
  if [[ -z ${HOME:-} ]]; then
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6) || true
    export HOME="${HOME:-${TMPDIR:-/tmp}}"
  fi
  # Open MPI 4 and 5 (PRTE): root, more ranks than cores, idle ranks that give way.
  export OMPI_ALLOW_RUN_AS_ROOT="${OMPI_ALLOW_RUN_AS_ROOT:-1}"
  export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-1}"
  export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
  export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
  export OMPI_MCA_hwloc_base_binding_policy="${OMPI_MCA_hwloc_base_binding_policy:-none}"
  export PRTE_ALLOW_RUN_AS_ROOT="${PRTE_ALLOW_RUN_AS_ROOT:-1}"
  export PRTE_ALLOW_RUN_AS_ROOT_CONFIRM="${PRTE_ALLOW_RUN_AS_ROOT_CONFIRM:-1}"
  export PRTE_MCA_rmaps_default_mapping_policy="${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}"
}

# Compiler jobs: one a core, and one for each 1.5 GiB that is free.
build_jobs() {
  local cores free_kib jobs
  cores=$(nproc)
  free_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)
  jobs=$((${free_kib:-1572864} / 1572864))
  ((jobs < cores)) || jobs=$cores
  ((jobs > 0)) || jobs=1
  echo "$jobs"
}

# build_release TARGET: configures the release preset and builds the target.
build_release() {
  local folder=$checkout/build/release fresh=()
  if ! mkdir -p "$folder" 2>/dev/null || [[ ! -w $folder ]]; then
    say "$folder can not be written by this user (uid $(id -u)): use a checkout of your own, or delete build/"
    exit 1
  fi
  # A checkout that was moved or copied brings a cache that CMake refuses.
  if [[ -e $folder/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$checkout" "$folder/CMakeCache.txt"; then
    fresh=(--fresh)
  fi
  (
    cd "$checkout"
    # What an earlier attempt found wrongly, or did not find, stays in the cache: once without it.
    cmake --preset release "${fresh[@]}" --log-level=WARNING || cmake --preset release --fresh --log-level=WARNING
    cmake --build --preset release --parallel "$(build_jobs)" --target "$1"
  ) >&2
}

ensure_needs
set_mpi_environment
