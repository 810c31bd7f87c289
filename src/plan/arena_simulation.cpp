#include "arena_simulation.hpp"

#include <algorithm>
#include <bit>

namespace dstune::plan {

std::size_t ArenaSimulation::bin_of(std::int64_t bytes) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes))) - 1;
}

namespace {

constexpr auto is_smaller = [](const auto& one, const auto& other) {
  return one.bytes != other.bytes ? one.bytes < other.bytes : one.offset < other.offset;
};
constexpr auto is_lower = [](const auto& block, std::int64_t offset) {
  return block.offset < offset;
};

}  // namespace

void ArenaSimulation::put_into_bin(Block block) {
  const std::size_t bin = bin_of(block.bytes);
  Blocks& blocks = bins_[bin];
  blocks.insert(std::lower_bound(blocks.begin(), blocks.end(), block, is_smaller), block);
  filled_bins_ |= std::uint64_t{1} << bin;
}

void ArenaSimulation::take_from_bin(Block block) {
  const std::size_t bin = bin_of(block.bytes);
  Blocks& blocks = bins_[bin];
  blocks.erase(std::lower_bound(blocks.begin(), blocks.end(), block, is_smaller));
  if (blocks.empty()) filled_bins_ &= ~(std::uint64_t{1} << bin);
}

std::int64_t ArenaSimulation::acquire(std::int64_t bytes) {
  const std::size_t bin = bin_of(bytes);
  const Blocks& alike = bins_[bin];
  auto found = std::lower_bound(alike.begin(), alike.end(), Block{0, bytes}, is_smaller);
  if (found == alike.end()) {
    // Two shifts: one by 64 is undefined.
    const std::uint64_t larger = filled_bins_ >> bin >> 1;
    if (larger == 0) {
      const std::int64_t offset = top_;
      top_ += bytes;
      highest_ = std::max(highest_, top_);
      return offset;
    }
    found = bins_[bin + 1 + static_cast<std::size_t>(std::countr_zero(larger))].begin();
  }
  const Block hole = *found;
  take_from_bin(hole);
  const auto place = std::lower_bound(free_.begin(), free_.end(), hole.offset, is_lower);
  if (hole.bytes == bytes) {
    free_.erase(place);
  } else {
    *place = {hole.offset + bytes, hole.bytes - bytes};
    put_into_bin(*place);
  }
  return hole.offset;
}

void ArenaSimulation::release(std::int64_t offset, std::int64_t bytes) {
  Block block{offset, bytes};
  auto next = std::lower_bound(free_.begin(), free_.end(), offset, is_lower);
  if (next != free_.end() && offset + bytes == next->offset) {
    take_from_bin(*next);
    block.bytes += next->bytes;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == offset) {
    --next;
    take_from_bin(*next);
    block = {next->offset, next->bytes + block.bytes};
    next = free_.erase(next);
  }
  if (block.offset + block.bytes == top_) {
    top_ = block.offset;
    return;
  }
  free_.insert(next, block);
  put_into_bin(block);
}

}  // namespace dstune::plan
