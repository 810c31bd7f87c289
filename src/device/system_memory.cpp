#include <sys/mman.h>

#include "dstune/base/error.hpp"
#include "dstune/device/memory.hpp"

namespace dstune {
namespace {

constexpr std::int64_t small_page_bytes = 4096;
constexpr std::int64_t huge_page_bytes = std::int64_t{2} << 20;

std::size_t whole_pages(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + small_page_bytes - 1) / small_page_bytes *
                                  small_page_bytes);
}

}  // namespace

std::byte* SystemMemory::take(std::int64_t bytes) {
  // Starts at a huge page, so that as many as possible are used.
  const std::size_t size = whole_pages(bytes);
  const std::size_t slack = huge_page_bytes - small_page_bytes;
  void* const mapped =
      mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw OutOfMemory(static_cast<std::size_t>(bytes), 0, "the system refuses memory");
  auto* const begin = static_cast<std::byte*>(mapped);
  const auto misplaced = reinterpret_cast<std::uintptr_t>(begin) % huge_page_bytes;
  const std::size_t before = misplaced == 0 ? 0 : huge_page_bytes - misplaced;
  if (before > 0) munmap(begin, before);
  if (before < slack) munmap(begin + before + size, slack - before);
  // Advice: a kernel without huge pages is slower, not wrong.
  madvise(begin + before, size, MADV_HUGEPAGE);
  return begin + before;
}

void SystemMemory::give_back(std::byte* begin, std::int64_t bytes) noexcept {
  munmap(begin, whole_pages(bytes));
}

}  // namespace dstune
