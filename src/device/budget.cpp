#include "dstune/base/error.hpp"
#include "dstune/device/memory.hpp"

namespace dstune {

void MemoryBudget::take(std::int64_t bytes) {
  require(bytes >= 0, "a budget gives no negative number of bytes");
  const std::int64_t available = limit_bytes_ - held_bytes_;
  if (bytes > available) {
    throw OutOfMemory(static_cast<std::size_t>(bytes),
                      static_cast<std::size_t>(available > 0 ? available : 0), name_);
  }
  held_bytes_ += bytes;
}

void MemoryBudget::give_back(std::int64_t bytes) noexcept {
  held_bytes_ -= bytes;
}

}  // namespace dstune
