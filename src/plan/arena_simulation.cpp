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

void ArenaSimulation::put_into_bin(const Hole& hole) {
  const std::size_t bin = bin_of(hole.bytes);
  Holes& holes = bins_[bin];
  holes.insert(std::lower_bound(holes.begin(), holes.end(), hole), hole);
  filled_bins_ |= std::uint64_t{1} << bin;
}

void ArenaSimulation::take_from_bin(const Hole& hole) {
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
  const Hole hole = *found;
  erase_from_bin(*bin, found);
  if (hole.bytes == bytes) {
    at(hole.block).is_hole = false;
    return {hole.offset, hole.block};
  }
  const Hole rest{hole.bytes - bytes, hole.offset + bytes, hole.block};
  put_into_bin(rest);
  const int lower = at(hole.block).lower;
  const int block = add({hole.offset, bytes, lower, hole.block, false});
  if (lower != none) at(lower).higher = block;
  at(hole.block).lower = block;
  at(hole.block).offset = rest.offset;
  at(hole.block).bytes = rest.bytes;
  return {hole.offset, block};
}

void ArenaSimulation::release(int block) {
  Hole hole{at(block).bytes, at(block).offset, block};
  const int higher = at(block).higher;
  if (higher != none && at(higher).is_hole) {
    const std::int64_t bytes = at(higher).bytes;
    take_from_bin({bytes, at(higher).offset, higher});
    hole.bytes += bytes;
    remove(higher);
  }
  const int lower = at(block).lower;
  if (lower != none && at(lower).is_hole) {
    const Hole below{at(lower).bytes, at(lower).offset, lower};
    take_from_bin(below);
    hole = {hole.bytes + below.bytes, below.offset, lower};
    remove(block);
  }
  if (hole.block == last_) {
    top_ = hole.offset;
    remove(hole.block);
    return;
  }
  at(hole.block).bytes = hole.bytes;
  at(hole.block).is_hole = true;
  put_into_bin(hole);
}

std::int64_t ArenaSimulation::borrow(std::int64_t bytes) {
  Holes::iterator found;
  if (find(bytes, found) != nullptr) return found->offset;
  highest_ = std::max(highest_, top_ + bytes);
  return top_;
}

}  // namespace dstune::plan
