# NCCL's header: NCCL_INCLUDE_DIR, NCCL_VERSION. The library is loaded when the program runs, so it is
# not looked for. Beside the CUDA toolkit, in NCCL_HOME, where headers usually are, and among Python's
# packages (DSTUNE_PYTHON_NVIDIA).
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS}
          PATHS ${DSTUNE_PYTHON_NVIDIA} PATH_SUFFIXES include nccl/include)
if(NCCL_INCLUDE_DIR)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" NCCL_VERSION "${lines}")
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR)
