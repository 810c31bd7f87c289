#include <algorithm>
#include <iterator>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/device/memory.hpp"

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

}  // namespace dstune
