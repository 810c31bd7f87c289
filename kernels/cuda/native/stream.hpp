#pragma once
/// The common part of launches: the calling thread's stream, bytes that are set or copied in it,
/// CUDA's errors as exceptions, and the kernels that this program can launch.

#include <cstddef>

#include <cuda_runtime_api.h>

namespace dstune::kernels::cuda {

cudaStream_t stream();
/// Throws CudaOutOfMemory or another std::runtime_error, with CUDA's own words. A failure is not
/// reported again by what follows.
void check(cudaError_t error);

inline void set_to_zero(void* data, std::size_t bytes) {
  check(cudaMemsetAsync(data, 0, bytes, stream()));
}
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()));
}

/// Remembers a __global__ function for load_cuda_kernels(), before main(), so that its code can be
/// loaded before it is needed. Gives true, so that it can initialize what is made once for each.
bool know(const void* kernel);

}  // namespace dstune::kernels::cuda
