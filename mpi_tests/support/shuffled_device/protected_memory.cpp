#include "protected_memory.hpp"

#include <cstdint>

#include <sys/mman.h>

#include "dstune/base/error.hpp"

namespace dstune::test {

std::byte* ProtectedMemory::take(std::int64_t bytes) {
  void* const mapped =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw OutOfMemory(static_cast<std::size_t>(bytes), 0, "the system refuses memory");
  // It is closed and opened again and again, which takes as long as it has pages.
  madvise(mapped, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  auto* const begin = static_cast<std::byte*>(mapped);
  taken_[begin] = bytes;
  return begin;
}

void ProtectedMemory::give_back(std::byte* begin, std::int64_t bytes) noexcept {
  taken_.erase(begin);
  munmap(begin, static_cast<std::size_t>(bytes));
}

bool ProtectedMemory::holds(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const auto& [begin, bytes] : taken_)
    if (begin <= byte && byte < begin + bytes) return true;
  return false;
}

void ProtectedMemory::open(int change) {
  opened_ += change;
  if (opened_ > 1 || (opened_ == 1 && change < 0)) return;
  for (const auto& [begin, bytes] : taken_) {
    mprotect(begin, static_cast<std::size_t>(bytes),
             opened_ == 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
}

}  // namespace dstune::test
