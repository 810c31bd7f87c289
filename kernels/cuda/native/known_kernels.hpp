#pragma once
/// The kernels that this program can launch, known before main(), so that their code can be loaded
/// before it is needed.

namespace dstune::kernels::cuda {

/// Remembers a __global__ function for load_cuda_kernels(). Gives true, so that it can initialize
/// what is made once for each.
bool know(const void* kernel);

}  // namespace dstune::kernels::cuda
