#!/bin/sh
# stand_in_driver.sh STUB: writes the C source of a driver, from the names in the toolkit's stub of
# libcuda.so. It loads any kernel and does nothing else, so that cuDNN makes plans where no GPU is.
set -e
loads='cuLibraryLoadData cuLibraryGetKernel cuLibraryGetModule cuKernelGetFunction cuModuleLoadData cuModuleLoadDataEx
cuModuleLoadFatBinary cuModuleGetFunction'
passes='cuKernelSetAttribute cuKernelSetCacheConfig cuFuncSetAttribute cuLibraryUnload cuModuleUnload'
stub_library=34 # CUDA_ERROR_STUB_LIBRARY
echo 'static int object;'
for name in $loads; do echo "int $name(void** made) { *made = &object; return 0; }"; done
for name in $passes; do echo "int $name(void) { return 0; }"; done
nm -D --defined-only "$1" | awk '$2 == "T" { print $3 }' | sort -u |
  grep -vxF "$(printf '%s\n' $loads $passes)" | sed "s/.*/int &(void) { return $stub_library; }/"
