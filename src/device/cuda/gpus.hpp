#pragma once
/// GPUs that a process sees, before it has a context on any. Local.

#include <map>
#include <optional>
#include <string>

#include "dstune/device/cuda.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

/// find_cuda_gpu and cuda_peers for any runtime. Errors are forgotten.
std::optional<CudaGpu> find_gpu(Runtime& runtime, int rank_of_node);
std::map<std::string, bool> find_peers(Runtime& runtime, int number);

}  // namespace dstune::cuda
