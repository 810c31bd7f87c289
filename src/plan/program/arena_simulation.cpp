#include "program/arena_simulation.hpp"

#include <algorithm>
#include <bit>

#include "dstune/base/checked.hpp"

namespace dstune::plan {
namespace {

constexpr std::string_view arena_text = "tensors of a step";

}  // namespace

std::size_t ArenaSimulation::bin_of(std::int64_t bytes) {
  // Placed sizes are multiples of the alignment, so there are bits behind the first.
  const auto size = static_cast<std::uint64_t>(bytes);
  const std::uint64_t shift = std::bit_width(size) - 1 - bits_behind_first;
  return (shift << bits_behind_first) + (size >> shift);
}

void ArenaSimulation::put_into_bin(int block) {
  Block& hole = at(block);
  hole.is_hole = true;
  const std::size_t bin = bin_of(hole.bytes);
  int before = none, after = bins_[bin];
  while (after != none) {
    const Block& other = at(after);
    if (other.bytes > hole.bytes || (other.bytes == hole.bytes && other.offset > hole.offset))
      break;
    before = after;
    after = other.after;
  }
  hole.before = before;
  hole.after = after;
  (before != none ? at(before).after : bins_[bin]) = block;
  if (after != none) at(after).before = block;
  filled_bins_[bin / 64] |= std::uint64_t{1} << bin % 64;
}

void ArenaSimulation::take_from_bin(int block) {
  Block& hole = at(block);
  hole.is_hole = false;
  const int before = hole.before, after = hole.after;
  if (after != none) at(after).before = before;
  if (before != none) {
    at(before).after = after;
    return;
  }
  const std::size_t bin = bin_of(hole.bytes);
  bins_[bin] = after;
  if (after == none) filled_bins_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
}

int ArenaSimulation::find(std::int64_t bytes) {
  const std::size_t bin = bin_of(bytes);
  for (int hole = bins_[bin]; hole != none; hole = at(hole).after)
    if (at(hole).bytes >= bytes) return hole;
  std::size_t word = bin / 64;
  std::uint64_t larger = filled_bins_[word] & ~std::uint64_t{1} << bin % 64;
  while (larger == 0) {
    if (++word == filled_bins_.size()) return none;
    larger = filled_bins_[word];
  }
  return bins_[64 * word + static_cast<std::size_t>(std::countr_zero(larger))];
}

int ArenaSimulation::add(std::int64_t offset, std::int64_t bytes, int lower, int higher) {
  int block = static_cast<int>(blocks_.size());
  if (unused_.empty()) {
    blocks_.emplace_back();
  } else {
    block = unused_.back();
    unused_.pop_back();
  }
  at(block) = {offset, bytes, lower, higher};
  if (lower != none) at(lower).higher = block;
  (higher != none ? at(higher).lower : last_) = block;
  return block;
}

void ArenaSimulation::remove(int block) {
  const int lower = at(block).lower, higher = at(block).higher;
  if (lower != none) at(lower).higher = higher;
  (higher != none ? at(higher).lower : last_) = lower;
  unused_.push_back(block);
}

ArenaSimulation::Taken ArenaSimulation::acquire(std::int64_t bytes) {
  const int hole = find(bytes);
  if (hole == none) {
    const std::int64_t offset = top_;
    top_ = checked_sum(arena_text, top_, bytes);
    highest_ = std::max(highest_, top_);
    return {offset, add(offset, bytes, last_, none)};
  }
  take_from_bin(hole);
  const std::int64_t offset = at(hole).offset;
  if (at(hole).bytes == bytes) return {offset, hole};
  at(hole).offset += bytes;
  at(hole).bytes -= bytes;
  put_into_bin(hole);
  return {offset, add(offset, bytes, at(hole).lower, hole)};
}

void ArenaSimulation::release(int block) {
  const int higher = at(block).higher;
  if (higher != none && at(higher).is_hole) {
    take_from_bin(higher);
    at(block).bytes += at(higher).bytes;
    remove(higher);
  }
  const int lower = at(block).lower;
  if (lower != none && at(lower).is_hole) {
    take_from_bin(lower);
    at(lower).bytes += at(block).bytes;
    remove(block);
    block = lower;
  }
  if (block == last_) {
    top_ = at(block).offset;
    remove(block);
  } else {
    put_into_bin(block);
  }
}

std::int64_t ArenaSimulation::borrow(std::int64_t bytes) {
  const int hole = find(bytes);
  if (hole != none) return at(hole).offset;
  highest_ = std::max(highest_, checked_sum(arena_text, top_, bytes));
  return top_;
}

}  // namespace dstune::plan
