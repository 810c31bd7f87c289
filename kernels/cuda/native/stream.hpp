#pragma once
/// The calling thread's stream, and CUDA's errors as exceptions.

#include <cuda_runtime_api.h>

namespace dstune::kernels::cuda {

cudaStream_t stream();
/// Throws CudaOutOfMemory or another std::runtime_error, with CUDA's own words. What failed is not
/// reported again by what follows.
void check(cudaError_t error);

}  // namespace dstune::kernels::cuda
