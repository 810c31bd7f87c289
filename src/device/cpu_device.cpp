#include <cstring>
#include <limits>
#include <utility>

#include "cpu_queues.hpp"
#include "dstune/base/error.hpp"
#include "dstune/device/device.hpp"

namespace dstune {

CpuDevice::CpuDevice(std::int64_t memory_limit_bytes, int threads)
    : Device({.kernels = &kernels::cpu_table(),
              .memory = std::make_unique<SystemMemory>(),
              .host_memory = std::make_unique<SystemMemory>(),
              .queues = std::make_unique<CpuQueues>(kernels::cpu_table()),
              .limit_bytes = memory_limit_bytes,
              .host_limit_bytes = memory_limit_bytes,
              .threads = threads,
              .description = "cpu (" + processor_name() + ", " + kernels::cpu_table().name + ", " +
                             std::to_string(threads) + (threads == 1 ? " thread)" : " threads)")}) {
  require(threads >= 1, "a device needs a thread");
  kernels::set_cpu_threads(threads);
}

namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

}  // namespace

Device::Device(Parts parts)
    : parts_(std::move(parts)),
      budget_(parts_.limit_bytes),
      host_budget_(parts_.host_limit_bytes),
      input_budget_(no_limit),
      disk_budget_(no_limit, "disk budget"),
      arena_(budget_, *parts_.memory),
      host_arena_(host_budget_, *parts_.host_memory),
      input_arena_(input_budget_, *parts_.memory),
      host_input_arena_(input_budget_, *parts_.host_memory),
      staging_arena_(input_budget_, *parts_.host_memory) {}

void CpuQueues::prepare(const Numbers& numbers, const Waiter& /*waiter*/) {
  stamps_.assign(static_cast<std::size_t>(numbers.stamps), {});
}

void CpuQueues::copy(void* to, const void* from, std::int64_t bytes) {
  // By all threads; what is no whole number of elements is small.
  constexpr std::int64_t element_bytes = sizeof(float);
  const std::int64_t elements = bytes / element_bytes;
  table_.convert(kernels::DType::f32, to, kernels::DType::f32, from, elements);
  const std::int64_t done = elements * element_bytes;
  std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
              static_cast<std::size_t>(bytes - done));
}

double CpuQueues::seconds_between(int first, int second) {
  const auto at = [&](int stamp) { return stamps_[static_cast<std::size_t>(stamp)]; };
  return std::chrono::duration<double>(at(second) - at(first)).count();
}

}  // namespace dstune
