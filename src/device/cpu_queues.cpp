#include "cpu_queues.hpp"

#include <cstring>

namespace dstune {

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
