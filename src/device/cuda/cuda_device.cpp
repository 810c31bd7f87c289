#include "cuda_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <future>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/base/handle.hpp"
#include "dstune/device/nvml.hpp"
#include "dstune/kernels/cuda.hpp"
#include "queues.hpp"

namespace dstune {
namespace cuda {
namespace {

/// Share of what is free once context and libraries are there. The rest is for kernels that are
/// loaded at their first use, communicators, and gaps between allocations. A guess: nobody has
/// measured it.
constexpr double share_of_free_memory = 0.97;
/// From here on GPUs compute in bf16. Which ones a build has code for is for CUDA to say.
constexpr int min_capability = 80;
/// A GPU that answers takes a second.
constexpr std::chrono::seconds longest_first_use{120};

std::optional<std::int64_t> free_by(Runtime& runtime) {
  std::size_t free_bytes = 0, total_bytes = 0;
  if (runtime.get_memory(free_bytes, total_bytes) != 0) return std::nullopt;
  return static_cast<std::int64_t>(free_bytes);
}

std::string text_of(const Properties& gpu) {
  return gpu.name + ", compute capability " + std::to_string(gpu.capability / 10) + "." +
         std::to_string(gpu.capability % 10);
}

/// The kernels throw errors of their own kinds.
void use_libraries_of(const DeviceRequest& request, const Properties& gpu) {
  try {
    request.use_libraries();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw DeviceError(error.what() + (", on " + text_of(gpu)));
  }
}

/// Tells whether the context is lost, once the GPU has done everything.
bool is_lost_when_drained(Runtime& runtime, int device) {
  // A lost context's error: this thread has asked for nothing yet.
  if (runtime.set_device(device) != 0) return true;
  if (runtime.synchronize() != 0) runtime.forget_error();
  return has_lost_context(runtime);
}

/// The rank's GPU, by its number, and what it is. Makes no context.
std::pair<int, Properties> choose(Runtime& runtime, int rank_of_node) {
  int visible = 0;
  check(runtime, runtime.count_devices(visible), "counting GPUs");
  if (visible == 0) throw DeviceError("no GPU answers");
  const int device = choose_cuda_device(visible, rank_of_node);
  Properties properties;
  check(runtime, runtime.get_properties(device, properties), "asking what the GPU is");
  if (properties.capability < min_capability)
    throw DeviceError(text_of(properties) + ": the kernels need 8.0 or newer");
  return {device, properties};
}

std::string description_of(const Properties& properties) {
  return "cuda (" + properties.name + ")";
}

bool graphs_are_wanted() {
  const char* const wanted = std::getenv("DSTUNE_CUDA_GRAPHS");
  if (wanted == nullptr || std::string_view(wanted) == "1") return true;
  if (std::string_view(wanted) == "0") return false;
  throw DeviceError("DSTUNE_CUDA_GRAPHS is neither 0 nor 1");
}

/// Zeros on the GPU, for as long as it lives.
class Zeros {
 public:
  Zeros(Runtime& runtime, const kernels::Table& table, std::size_t bytes)
      : memory_(runtime, CudaMemory::Kind::device) {
    arena_.prepare(static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1)));
    table.zero(get(), static_cast<std::size_t>(arena_.capacity_bytes()));
  }
  [[nodiscard]] void* get() const { return arena_.base(); }

 private:
  CudaMemory memory_;
  MemoryBudget no_limit_{std::numeric_limits<std::int64_t>::max()};
  Arena arena_{no_limit_, memory_};
};

/// Memory is given back only when nothing uses it any more; where that never comes, not at all.
void finish_first_use(Runtime& runtime, const Waiter& waiter) {
  Event made = nullptr;
  check(runtime, runtime.create_event(made, false), "making an event");
  const UniqueHandle<EventTraits> event(Owned{&runtime, made});
  check(runtime, runtime.record(made, nullptr), "recording an event");
  const auto is_done = [&] {
    const Code code = runtime.query(made);
    if (code == runtime.not_ready()) return false;
    check(runtime, code, "using the libraries");
    return true;
  };
  try {
    waiter.until(is_done, "the first use of the libraries");
  } catch (const CollectiveError&) {
    runtime.give_up();
    throw;
  }
}

}  // namespace

void use_libraries(Runtime& runtime, const kernels::Table& table, const Waiter& waiter) {
  // finish_first_use() waits for that; a device that this thread used before has left its own
  // behind.
  kernels::set_cuda_stream(nullptr);
  constexpr std::int64_t size = 128;
  constexpr std::size_t max_bytes = std::size_t{size} * size * sizeof(float);
  const Zeros in(runtime, table, 3 * max_bytes);
  const Zeros more(runtime, table, max_bytes);
  const Zeros out(runtime, table, max_bytes);
  for (const kernels::DType type :
       {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16}) {
    const kernels::MatmulShape product{
        .m = size, .n = size, .k = size, .type = type, .out_type = type};
    const Zeros workspace(runtime, table, table.matmul_workspace_bytes(product));
    table.matmul(product, in.get(), more.get(), nullptr, out.get(), workspace.get());
    finish_first_use(runtime, waiter);
  }
  const kernels::AttentionShape heads{.batch = 1,
                                      .sequence = size,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .head_size = size / 2,
                                      .type = kernels::DType::bf16};
  const Zeros workspace(runtime, table, table.attention_workspace_bytes(heads));
  table.attention_forward(heads, out.get(), static_cast<float*>(more.get()), in.get(),
                          workspace.get());
  finish_first_use(runtime, waiter);
}

CudaDevice::Found CudaDevice::find(Runtime& runtime, const kernels::Table& table,
                                   const DeviceRequest& request) {
  const auto [device, properties] = choose(runtime, request.rank_of_node);
  CudaGpu gpu{.name = properties.name, .uuid = properties.uuid, .number = device};
  const auto told = request.free_bytes ? request.free_bytes(gpu.uuid) : std::nullopt;
  check(runtime, runtime.set_device(device), "choosing a GPU");
  const auto free_with_context = [&] {
    std::size_t free_bytes = 0, total_bytes = 0;
    check(runtime, runtime.get_memory(free_bytes, total_bytes), "asking for the GPU's free memory");
    return static_cast<std::int64_t>(free_bytes);
  };
  const std::int64_t before_libraries = free_with_context();
  const auto told_after = told ? request.free_bytes(gpu.uuid) : std::nullopt;
  if (told_after) gpu.context_bytes = *told - *told_after;
  if (request.use_libraries) use_libraries_of(request, properties);
  gpu.free_bytes = free_with_context();
  if (request.use_libraries) gpu.library_bytes = before_libraries - gpu.free_bytes;

  std::function<std::optional<std::int64_t>()> free_bytes = [&runtime] { return free_by(runtime); };
  if (told_after) free_bytes = [tell = request.free_bytes, uuid = gpu.uuid] { return tell(uuid); };
  const auto limit = share_of_free_memory * static_cast<double>(gpu.free_bytes);
  return {.parts = {.kernels = &table,
                    .memory = std::make_unique<CudaMemory>(runtime, CudaMemory::Kind::device),
                    .host_memory = std::make_unique<CudaMemory>(runtime, CudaMemory::Kind::pinned),
                    .queues = std::make_unique<StreamQueues>(runtime, graphs_are_wanted()),
                    .limit_bytes = static_cast<std::int64_t>(limit),
                    .host_limit_bytes = request.host_limit_bytes,
                    .threads = request.threads,
                    .description = description_of(properties),
                    .is_asynchronous = true},
          .gpu = gpu,
          .free_bytes = std::move(free_bytes),
          .free_bytes_before = told_after ? *told : before_libraries};
}

CudaDevice::CudaDevice(Runtime& runtime, const kernels::Table& table, const DeviceRequest& request,
                       CudaGpu* gpu)
    : CudaDevice(runtime, find(runtime, table, request), gpu) {}

CudaDevice::CudaDevice(Runtime& runtime, Found found, CudaGpu* gpu)
    : Device(std::move(found.parts)),
      runtime_(runtime),
      number_(found.gpu.number),
      free_bytes_(std::move(found.free_bytes)),
      free_bytes_before_(found.free_bytes_before) {
  if (gpu != nullptr) *gpu = std::move(found.gpu);
  kernels::set_cpu_threads(threads());
}

std::optional<std::int64_t> CudaDevice::taken_bytes() {
  const std::optional<std::int64_t> now = free_bytes_();
  if (!now) return std::nullopt;
  return free_bytes_before_ - *now;
}

DeviceState CudaDevice::drain(std::chrono::duration<double> limit) {
  if (runtime_.is_given_up()) return given_up_as_;
  // On a thread of its own, since any call may be the one that does not come back.
  std::promise<bool> is_lost;
  std::future<bool> told = is_lost.get_future();
  std::thread([&runtime = runtime_, device = number_, is_lost = std::move(is_lost)]() mutable {
    is_lost.set_value(is_lost_when_drained(runtime, device));
  }).detach();
  const bool is_silent = told.wait_for(limit) != std::future_status::ready;
  if (!is_silent && !told.get()) {
    // NCCL does not end communicators before the graphs with their collectives are gone.
    dynamic_cast<StreamQueues&>(queues()).drain();
    return DeviceState::drained;
  }
  given_up_as_ = is_silent ? DeviceState::silent : DeviceState::lost;
  runtime_.give_up();
  return given_up_as_;
}

void CudaDevice::begin_thread() {
  check(runtime_, runtime_.set_device(number_), "choosing a GPU");
}

std::unique_ptr<Device> make_device_like(Runtime& runtime, const kernels::Table& table,
                                         const DeviceRequest& request, CudaGpu* gpu) {
  const auto [number, properties] = choose(runtime, request.rank_of_node);
  if (gpu != nullptr) *gpu = {.name = properties.name, .uuid = {}, .number = number};
  return std::make_unique<Device>(Device::Parts{.kernels = &table,
                                                .memory = std::make_unique<SystemMemory>(),
                                                .host_memory = std::make_unique<SystemMemory>(),
                                                .queues = std::make_unique<CpuQueues>(),
                                                .limit_bytes = 0,
                                                .host_limit_bytes = request.host_limit_bytes,
                                                .threads = request.threads,
                                                .description = description_of(properties),
                                                .is_asynchronous = true});
}

std::string missing_kernels(const kernels::Table& table) {
  std::string missing;
  const auto look = [&](const char* name, auto* function) {
    if (function == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  look("matmul", table.matmul);
  look("matmul_activation_forward", table.matmul_activation_forward);
  look("matmul_activation_backward", table.matmul_activation_backward);
  look("matmul_bias_backward", table.matmul_bias_backward);
  look("matmul_workspace_bytes", table.matmul_workspace_bytes);
  look("attention_forward", table.attention_forward);
  look("attention_backward", table.attention_backward);
  look("attention_workspace_bytes", table.attention_workspace_bytes);
  look("quantize", table.quantize);
  look("dequantize", table.dequantize);
  return missing;
}

}  // namespace cuda

std::string cuda_unavailable_reason() {
  if (cuda::native_runtime() == nullptr) return "this build has no CUDA";
  const kernels::Table* const table = kernels::cuda_table();
  if (table == nullptr) return "no GPU answers";
  const std::string missing = cuda::missing_kernels(*table);
  if (!missing.empty()) return "these kernels are not built yet: " + missing;
  return {};
}

std::string missing_gpu_library() {
  const kernels::CudaLibraries libraries = kernels::cuda_libraries();
  constexpr std::string_view none = "none: ";
  for (const auto& [name, found] :
       {std::pair("cuBLASLt", libraries.matmul), std::pair("cuDNN", libraries.attention)})
    if (found.starts_with(none)) return std::string(name) + ": " + found.substr(none.size());
  return {};
}

std::unique_ptr<Device> make_device_like_cuda(int rank_of_node, std::int64_t host_limit_bytes,
                                              int threads, CudaGpu* gpu) {
  if (const std::string violation = cuda_unavailable_reason(); !violation.empty())
    throw DeviceError(violation);
  return cuda::make_device_like(
      *cuda::native_runtime(), *kernels::cuda_table(),
      {.rank_of_node = rank_of_node, .host_limit_bytes = host_limit_bytes, .threads = threads},
      gpu);
}

std::unique_ptr<Device> make_cuda_device(int rank_of_node, std::int64_t host_limit_bytes,
                                         int threads, CudaGpu* gpu) {
  if (const std::string violation = cuda_unavailable_reason(); !violation.empty())
    throw DeviceError(violation);
  cuda::Runtime& runtime = *cuda::native_runtime();
  const kernels::Table& table = *kernels::cuda_table();
  const nvml::FoundLibrary found = nvml::find_library();
  return std::make_unique<cuda::CudaDevice>(
      runtime, table,
      cuda::DeviceRequest{
          .rank_of_node = rank_of_node,
          .host_limit_bytes = host_limit_bytes,
          .threads = threads,
          .free_bytes = [library = found.library](
                            const std::string& uuid) { return nvml::free_bytes(library, uuid); },
          .use_libraries =
              [&runtime, &table] {
                kernels::load_cuda_kernels();
                if (!missing_gpu_library().empty()) return;
                const auto deadline = Waiter::Clock::now() + cuda::longest_first_use;
                cuda::use_libraries(runtime, table, Waiter().with_deadline(deadline));
              }},
      gpu);
}

bool has_given_up_cuda() {
  const cuda::Runtime* const runtime = cuda::native_runtime();
  return runtime != nullptr && runtime->is_given_up();
}

std::int64_t free_cuda_bytes() {
  cuda::Runtime* const runtime = cuda::native_runtime();
  return runtime == nullptr ? 0 : cuda::free_by(*runtime).value_or(0);
}

}  // namespace dstune
