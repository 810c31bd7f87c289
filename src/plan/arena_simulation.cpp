#include "arena_simulation.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace dstune::plan {
namespace {

std::size_t bin_of(std::int64_t bytes) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes))) - 1;
}

}  // namespace

ArenaSimulation::Hole ArenaSimulation::hole_of(int block) {
  return {at(block).bytes, at(block).offset, block};
}

void ArenaSimulation::put_into_bin(int block) {
  const Hole hole = hole_of(block);
  const std::size_t bin = bin_of(hole.bytes);
  Holes& holes = bins_[bin];
  holes.insert(std::lower_bound(holes.begin(), holes.end(), hole), hole);
  filled_bins_ |= std::uint64_t{1} << bin;
}

void ArenaSimulation::take_from_bin(int block) {
  const Hole hole = hole_of(block);
  Holes& holes = bins_[bin_of(hole.bytes)];
  erase_from_bin(holes, std::lower_bound(holes.begin(), holes.end(), hole));
}

void ArenaSimulation::erase_from_bin(Holes& bin, Holes::iterator hole) {
  const std::size_t index = bin_of(hole->bytes);
  bin.erase(hole);
  if (bin.empty()) filled_bins_ &= ~(std::uint64_t{1} << index);
}

ArenaSimulation::Holes* ArenaSimulation::find(std::int64_t bytes, Holes::iterator& hole) {
  const std::size_t bin = bin_of(bytes);
  Holes& alike = bins_[bin];
  hole = std::lower_bound(alike.begin(), alike.end(), Hole{bytes, 0, none});
  if (hole != alike.end()) return &alike;
  // Two shifts: one by 64 is undefined.
  const std::uint64_t larger = filled_bins_ >> bin >> 1;
  if (larger == 0) return nullptr;
  Holes& next = bins_[bin + 1 + static_cast<std::size_t>(std::countr_zero(larger))];
  hole = next.begin();
  return &next;
}

int ArenaSimulation::add(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int>(blocks_.size()) - 1;
  }
  const int index = unused_.back();
  unused_.pop_back();
  at(index) = block;
  return index;
}

void ArenaSimulation::remove(int block) {
  const auto [lower, higher] = std::pair(at(block).lower, at(block).higher);
  if (lower != none) at(lower).higher = higher;
  (higher != none ? at(higher).lower : last_) = lower;
  unused_.push_back(block);
}

ArenaSimulation::Taken ArenaSimulation::acquire(std::int64_t bytes) {
  Holes::iterator found;
  Holes* const bin = find(bytes, found);
  if (bin == nullptr) {
    const std::int64_t offset = top_;
    const int block = add({offset, bytes, last_, none, false});
    if (last_ != none) at(last_).higher = block;
    last_ = block;
    top_ += bytes;
    highest_ = std::max(highest_, top_);
    return {offset, block};
  }
  const int hole = found->block;
  erase_from_bin(*bin, found);
  const std::int64_t offset = at(hole).offset;
  if (at(hole).bytes == bytes) {
    at(hole).is_hole = false;
    return {offset, hole};
  }
  const int lower = at(hole).lower;
  const int block = add({offset, bytes, lower, hole, false});
  if (lower != none) at(lower).higher = block;
  at(hole).lower = block;
  at(hole).offset += bytes;
  at(hole).bytes -= bytes;
  put_into_bin(hole);
  return {offset, block};
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
    return;
  }
  at(block).is_hole = true;
  put_into_bin(block);
}

std::int64_t ArenaSimulation::borrow(std::int64_t bytes) {
  Holes::iterator found;
  if (find(bytes, found) != nullptr) return found->offset;
  highest_ = std::max(highest_, top_ + bytes);
  return top_;
}

}  // namespace dstune::plan
