#include "cuda_device.hpp"

#include <cstdlib>
#include <string_view>

#include "dstune/base/error.hpp"
#include "dstune/kernels/cuda.hpp"
#include "memory.hpp"
#include "queues.hpp"

namespace dstune {
namespace cuda {
namespace {

/// What libraries take of the GPU's memory while steps run (handles, their workspaces), that is not
/// the arena's: a guess, since nobody has measured it.
constexpr double share_of_free_memory = 0.95;

bool graphs_are_wanted() {
  const char* const wanted = std::getenv("DSTUNE_CUDA_GRAPHS");
  if (wanted == nullptr || std::string_view(wanted) == "1") return true;
  if (std::string_view(wanted) == "0") return false;
  throw DeviceError("DSTUNE_CUDA_GRAPHS is neither 0 nor 1");
}

}  // namespace

Device::Parts CudaDevice::parts(Runtime& runtime, const kernels::Table& table, int rank_of_node,
                                std::int64_t host_limit_bytes, int threads, CudaGpu* gpu) {
  int visible = 0;
  check(runtime, runtime.count_devices(visible), "counting GPUs");
  if (visible == 0) throw DeviceError("no GPU answers");
  const int device = choose_cuda_device(visible, rank_of_node);
  check(runtime, runtime.set_device(device), "choosing a GPU");
  Properties properties;
  check(runtime, runtime.get_properties(device, properties), "asking what the GPU is");
  std::size_t free_bytes = 0, total_bytes = 0;
  check(runtime, runtime.get_memory(free_bytes, total_bytes), "asking for the GPU's free memory");
  if (gpu != nullptr)
    *gpu = {properties.name, properties.uuid, static_cast<std::int64_t>(free_bytes)};
  const auto limit = share_of_free_memory * static_cast<double>(free_bytes);
  return {.kernels = &table,
          .memory = std::make_unique<DeviceMemory>(runtime),
          .host_memory = std::make_unique<PinnedMemory>(runtime),
          .queues = std::make_unique<StreamQueues>(runtime, graphs_are_wanted()),
          .limit_bytes = static_cast<std::int64_t>(limit),
          .host_limit_bytes = host_limit_bytes,
          .threads = threads,
          .description = "cuda (" + properties.name + ")",
          .is_asynchronous = true};
}

CudaDevice::CudaDevice(Runtime& runtime, const kernels::Table& table, int rank_of_node,
                       std::int64_t host_limit_bytes, int threads, CudaGpu* gpu)
    : Device(parts(runtime, table, rank_of_node, host_limit_bytes, threads, gpu)),
      runtime_(runtime) {
  kernels::set_cpu_threads(threads);
}

std::string missing_kernels(const kernels::Table& table) {
  std::string missing;
  const auto look = [&](const char* name, auto* function) {
    if (function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  look("matmul", table.matmul);
  look("matmul_workspace_bytes", table.matmul_workspace_bytes);
  look("attention_forward", table.attention_forward);
  look("attention_backward", table.attention_backward);
  look("attention_workspace_bytes", table.attention_workspace_bytes);
  look("quantize", table.quantize);
  look("dequantize", table.dequantize);
  return missing;
}

}  // namespace cuda

std::string cuda_objection() {
  if (cuda::native_runtime() == nullptr) return "this build has no CUDA";
  const kernels::Table* const table = kernels::cuda_table();
  if (table == nullptr) return "no GPU answers";
  const std::string missing = cuda::missing_kernels(*table);
  if (!missing.empty()) return "these kernels are not built yet: " + missing;
  return {};
}

std::unique_ptr<Device> make_cuda_device(int rank_of_node, std::int64_t host_limit_bytes,
                                         int threads, CudaGpu* gpu) {
  if (const std::string objection = cuda_objection(); !objection.empty())
    throw DeviceError(objection);
  return std::make_unique<cuda::CudaDevice>(*cuda::native_runtime(), *kernels::cuda_table(),
                                            rank_of_node, host_limit_bytes, threads, gpu);
}

std::int64_t free_cuda_bytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  cuda::Runtime* const runtime = cuda::native_runtime();
  if (runtime == nullptr || runtime->get_memory(free_bytes, total_bytes) != 0) return 0;
  return static_cast<std::int64_t>(free_bytes);
}

}  // namespace dstune
