# Everything is found, nothing is downloaded. scripts/setup.sh names the packages that provide it.
find_package(Threads REQUIRED)
find_package(MPI 3.0 REQUIRED COMPONENTS C)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
find_package(Eigen3 3.3 REQUIRED NO_MODULE)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(dnnl REQUIRED)

if(DSTUNE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "DSTUNE_CUDA=ON: this release has no CUDA backend; use DSTUNE_CUDA=AUTO or OFF")
endif()
