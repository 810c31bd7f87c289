#include "candidates.hpp"

#include "dstune/kernels/cuda.hpp"

namespace dstune::kernels::cuda {
namespace {

void throw_if_lacking(Gpu& gpu, bool is_out_of_memory, bool has_failed, const char* library) {
  // The code of some kernels, and what the driver takes at once.
  constexpr std::size_t next_to_nothing_bytes = std::size_t{32} << 20;
  if (!is_out_of_memory && !has_failed) return;
  const std::size_t free_bytes = gpu.free_bytes();
  if (!is_out_of_memory && free_bytes >= next_to_nothing_bytes) return;
  throw CudaOutOfMemory(std::string(library) + " lacks memory: " +
                        std::to_string(free_bytes >> 20) + " MiB of the GPU's are free");
}

}  // namespace

void throw_if_out_of_memory(Gpu& gpu, cublasStatus_t status) {
  const bool has_failed =
      status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR;
  throw_if_lacking(gpu, status == CUBLAS_STATUS_ALLOC_FAILED, has_failed, "cuBLASLt");
}

void throw_if_out_of_memory(Gpu& gpu, cudnnStatus_t status) {
  // Its codes are in families of a thousand: internal errors from 4000 on, failed executions from
  // 5000 on.
  throw_if_lacking(gpu, status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                   status >= CUDNN_STATUS_INTERNAL_ERROR, "cuDNN");
}

}  // namespace dstune::kernels::cuda
