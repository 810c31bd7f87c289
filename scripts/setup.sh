#!/usr/bin/env bash
# What building and running dstune-mpi needs, checked and, where this machine is a Debian or Ubuntu
# and we are root (or sudo asks for no password), installed. Where nothing is missing it touches
# nothing and needs no network. Run it by itself, or source it: quickstart.sh and test.sh do.
#   scripts/setup.sh --engine   also makes a Python environment with PyTorch and DeepSpeed from the
#                               package index, and prints its interpreter. Tests of the engine use
#                               it by DSTUNE_ENGINE_PYTHON; 5.7 GB in build/engine. Versions are those of
#                               scripts/engine/constraints.txt; DSTUNE_TORCH_INDEX names an index that
#                               PyTorch comes from, as one of wheels for CPUs, which are far smaller.
#   scripts/setup.sh --page     also installs Chromium and its driver, and makes a Python environment that
#                               drives them, 80 MB in build/page; prints its interpreter. Tests of
#                               report.html use it, by DSTUNE_PAGE_PYTHON if it is elsewhere.
#   scripts/setup.sh --slurm    also installs Slurm and munge, 13 MB: the tests of batch scripts start a
#                               cluster of their own on this machine.
#
# Sourced, it also sets what mpirun needs as root, with more ranks than cores and in a bare
# environment. Variables that are already set stay as they are.
set -euo pipefail

# shellcheck source=scripts/needs.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/needs.sh"

# version_of PROGRAM: the first number with a dot that it prints, or its major version.
version_of() { "$1" --version | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p'; }

at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# serves COMPILER...: is it there, and new enough? Its words are a command and arguments, as CXX may have them.
serves() {
  local version oldest=12
  version=$("$@" -dumpfullversion 2>/dev/null || "$@" -dumpversion 2>/dev/null) || return 1
  [[ $("$@" --version) != *clang* ]] || oldest=16
  at_least "$version" "$oldest"
}

# The compiler in $compiler: CXX, which CMake takes, too; else g++, or a newer one beside it.
find_compiler() {
  local version
  read -ra compiler <<<"${CXX:-g++}"
  if [[ -n ${CXX:-} ]] || serves g++; then return; fi
  for version in 15 14 13 12; do
    if command -v "g++-$version" >/dev/null; then
      export CXX=g++-$version CC=${CC:-gcc-$version}
      compiler=("$CXX")
      return
    fi
  done
}

# Older systems have a newer compiler beside g++: Ubuntu 22.04.
compiler_package() {
  local version
  version=$(apt-cache policy g++ 2>/dev/null | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9]*\).*/\2/p')
  [[ -n $version && $version -lt 12 ]] && echo g++-12 || echo g++
}

have_header() { printf '#include <%s>\n' "$1" | "${compiler[@]}" -std=c++20 -E -x c++ - >/dev/null 2>&1; }

# A oneDNN of one's own, which asks for no OpenCL.
onednn_is_elsewhere() { have_header dnnl.hpp && [[ ! -e /usr/include/dnnl.hpp ]]; }

# have HOW WHAT: is it there, and new enough?
have() {
  local what=${2:-} program version
  case $1 in
    x) serves "${compiler[@]}" ;;
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
  find_compiler
  for need in "${needs[@]}"; do
    IFS='|' read -r name how package spec <<<"$need"
    # shellcheck disable=SC2086  # two words on purpose
    if ! have $how; then
      [[ $how != x ]] || package=$(compiler_package)
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
  local packages=""
  find_missing
  # Once more where the first installation tells that a newer package is needed.
  while [[ ${#missing_names[@]} -gt 0 && ${missing_packages[*]} != "$packages" ]] && command -v apt-get >/dev/null &&
    can_become_root; do
    packages=${missing_packages[*]}
    install_missing || say "apt-get did not succeed"
    hash -r
    find_missing
  done
  if [[ ${#missing_names[@]} -gt 0 ]]; then
    explain_missing
    exit 1
  fi
}

# build_release TARGET...: configures the release preset and builds the targets. Where DSTUNE_WERROR is ON
# it takes the preset ci, whose folder is the same and for which warnings are errors.
build_release() {
  local folder=$checkout/build/release fresh=() preset=release
  [[ ${DSTUNE_WERROR:-OFF} != ON ]] || preset=ci
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
    cmake --preset "$preset" "${fresh[@]}" --log-level=WARNING || cmake --preset "$preset" --fresh --log-level=WARNING
    cmake --build --preset "$preset" --parallel "$(build_jobs)" --target "$@"
  ) >&2
}

# shellcheck source=scripts/engine/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/engine/environment.sh"
# shellcheck source=scripts/page/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/page/environment.sh"
# shellcheck source=scripts/batch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/batch/environment.sh"

ensure_needs
set_mpi_environment
if [[ ${BASH_SOURCE[0]} == "$0" && ${1:-} == --engine ]]; then
  make_engine_environment >&2 || { say "The engine's environment could not be made"; exit 1; }
  echo "$engine_environment/bin/python"
fi
if [[ ${BASH_SOURCE[0]} == "$0" && ${1:-} == --page ]]; then
  make_page_environment >&2 || { say "The environment of the page's tests could not be made"; exit 1; }
  echo "$page_environment/bin/python"
fi
if [[ ${BASH_SOURCE[0]} == "$0" && ${1:-} == --slurm ]]; then
  ensure_slurm || exit 1
fi
