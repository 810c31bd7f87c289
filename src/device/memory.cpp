#include "dstune/device/memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <sys/mman.h>

#include "dstune/base/error.hpp"

namespace dstune {

Arena::~Arena() {
  free();
}

void Arena::prepare(std::int64_t bytes) {
  require(bytes >= 0, "an arena has no negative size");
  require(live_.empty(), "an arena is prepared while ranges of it are held");
  account_ = {};
  if (bytes <= capacity_bytes_) return;
  free();
  budget_->take(bytes);
  try {
    base_ = source_->take(bytes);
  } catch (...) {
    budget_->give_back(bytes);
    throw;
  }
  capacity_bytes_ = bytes;
}

void Arena::free() noexcept {
  if (base_ != nullptr) source_->give_back(base_, capacity_bytes_);
  budget_->give_back(capacity_bytes_);
  leak();
}

void Arena::leak() noexcept {
  base_ = nullptr;
  capacity_bytes_ = 0;
  live_.clear();
  live_bytes_ = 0;
  live_categories_ = {};
}

void Arena::acquire(std::int64_t offset_bytes, std::int64_t bytes, int category) {
  require(category >= 0 && category < max_categories, "unknown category of memory");
  require(offset_bytes >= 0 && bytes > 0 && bytes <= capacity_bytes_ - offset_bytes,
          "a range outside the arena");
  const std::int64_t end_bytes = offset_bytes + bytes;
  const auto next = live_.lower_bound(offset_bytes);
  require(next == live_.end() || end_bytes <= next->first, "a range overlaps the next one");
  require(next == live_.begin() || std::prev(next)->second.end_bytes <= offset_bytes,
          "a range overlaps the one before");
  live_.emplace_hint(next, offset_bytes, Range{end_bytes, category});
  live_bytes_ += bytes;
  live_categories_[static_cast<std::size_t>(category)] += bytes;
  account_.high_water_bytes = std::max(account_.high_water_bytes, end_bytes);
  if (live_bytes_ > account_.peak_live_bytes) {
    account_.peak_live_bytes = live_bytes_;
    account_.categories_at_peak = live_categories_;
  }
}

void Arena::release(std::int64_t offset_bytes) {
  const auto range = live_.find(offset_bytes);
  require(range != live_.end(), "a range is released that is not held");
  const std::int64_t bytes = range->second.end_bytes - offset_bytes;
  live_bytes_ -= bytes;
  live_categories_[static_cast<std::size_t>(range->second.category)] -= bytes;
  live_.erase(range);
}

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

namespace {

constexpr std::int64_t page_bytes = 4096;
constexpr std::int64_t huge_page_bytes = std::int64_t{2} << 20;

std::size_t whole_pages(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + page_bytes - 1) / page_bytes * page_bytes);
}

}  // namespace

std::byte* SystemMemory::take(std::int64_t bytes) {
  // Starts at a huge page, so that as many as possible are used.
  const std::size_t size = whole_pages(bytes);
  const std::size_t slack = huge_page_bytes - page_bytes;
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
