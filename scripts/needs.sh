#!/usr/bin/env bash
# What the scripts share, and no more than words: the table of what building and running dstune-mpi
# needs, where the checkout is, what mpirun needs. To be sourced.
checkout=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# A bare environment may have no PATH at all; packages keep some of their tools in sbin.
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"

say() { printf '%s\n' "$*" >&2; }

# One need a line: what a person calls it | how to see it | Debian package | Spack package
# How: x is the compiler, c NAME[>=VERSION] a command, h HEADER a C++ header, o HEADER one that Debian's
# oneDNN needs.
needs=(
  'C++20 compiler (g++ 12 or newer, clang 16 or newer; CXX names another)|x|g++|gcc'
  "CMake 3.25 or newer (where packages are older: pip install 'cmake>=3.25,<4')|c cmake>=3.25|cmake|cmake"
  'Ninja|c ninja|ninja-build|ninja'
  'MPI launcher|c mpirun|openmpi-bin|openmpi'
  'MPI headers|c mpicc|libopenmpi-dev|openmpi'
  'nlohmann_json 3.10 or newer|h nlohmann/json.hpp|nlohmann-json3-dev|nlohmann-json'
  'Boost.Math|h boost/math/distributions/students_t.hpp|libboost-dev|boost'
  'Boost.Program_options|h boost/program_options.hpp|libboost-program-options-dev|boost+program_options'
  'GoogleTest|h gtest/gtest.h|libgtest-dev|googletest+gmock'
  'GoogleMock|h gmock/gmock.h|libgmock-dev|googletest+gmock'
  'oneDNN|h dnnl.hpp|libdnnl-dev|onednn'
  'OpenCL (oneDNN as Debian builds it asks for it)|o CL/cl.h|ocl-icd-opencl-dev|ocl-icd'
  'Eigen|h eigen3/Eigen/Core|libeigen3-dev|eigen'
  'fmt|h fmt/core.h|libfmt-dev|fmt'
  'spdlog|h spdlog/spdlog.h|libspdlog-dev|spdlog'
  'yaml-cpp|h yaml-cpp/yaml.h|libyaml-cpp-dev|yaml-cpp'
  'Python 3|c python3|python3|python'
  'Git|c git|git|git'
  'Google Benchmark|h benchmark/benchmark.h|libbenchmark-dev|benchmark'
)

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
