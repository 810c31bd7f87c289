#pragma once
/// What a library was to do and did not, so that kernels of our own served it: without tensor
/// cores, which whoever reads the times has to know.

#include <string>
#include <vector>

#include <cublasLt.h>
#include <cudnn_graph.h>

#include "dstune/kernels/cuda.hpp"
#include "libraries/gpu.hpp"

namespace dstune::kernels::cuda {

/// Notes it, once for the process.
void note_refusal(const std::string& what);
/// What was noted since the last call, in order.
std::vector<std::string> take_refusals();

/// What a status says. Where the GPU's memory is used up our own kernel, which serves what a
/// library refuses, would only hide that, and serve the shape for as long as the process lives. A
/// library that fails may have found no memory for the code that its kernel loads at the first
/// launch: its manual does not say with which status it reports that.
enum class LibraryFailure { refusal, failure, out_of_memory };

inline LibraryFailure library_failure_of(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return LibraryFailure::out_of_memory;
  const bool failed =
      status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR;
  return failed ? LibraryFailure::failure : LibraryFailure::refusal;
}

/// Its codes are in families of a thousand: internal errors from 4000 on, failed executions from
/// 5000 on.
inline LibraryFailure library_failure_of(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    return LibraryFailure::out_of_memory;
  return status >= CUDNN_STATUS_INTERNAL_ERROR ? LibraryFailure::failure : LibraryFailure::refusal;
}

/// Throws CudaOutOfMemory where memory is what was lacking.
inline void throw_if_out_of_memory(Gpu& gpu, LibraryFailure said, const char* library) {
  // The code of some kernels, and what the driver takes at once.
  constexpr std::size_t next_to_nothing_bytes = std::size_t{32} << 20;
  if (said == LibraryFailure::refusal) return;
  const std::size_t free_bytes = gpu.free_bytes();
  if (said == LibraryFailure::failure && free_bytes >= next_to_nothing_bytes) return;
  throw CudaOutOfMemory(std::string(library) + " lacks memory: " +
                        std::to_string(free_bytes >> 20) + " MiB of the GPU's are free");
}

}  // namespace dstune::kernels::cuda
