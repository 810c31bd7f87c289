#include "arena_simulation.hpp"

#include <algorithm>

namespace dstune::plan {

std::int64_t ArenaSimulation::acquire(std::int64_t bytes) {
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->bytes < bytes) continue;
    if (best == free_.end() || block->bytes < best->bytes) best = block;
    if (block->bytes == bytes) break;
  }
  if (best == free_.end()) {
    const std::int64_t offset = top_;
    top_ += bytes;
    highest_ = std::max(highest_, top_);
    return offset;
  }
  const std::int64_t offset = best->offset;
  best->offset += bytes;
  best->bytes -= bytes;
  if (best->bytes == 0) free_.erase(best);
  return offset;
}

void ArenaSimulation::release(std::int64_t offset, std::int64_t bytes) {
  const auto next =
      std::lower_bound(free_.begin(), free_.end(), offset,
                       [](const Block& block, std::int64_t value) { return block.offset < value; });
  auto merged = next;
  const bool joins_previous =
      next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == offset;
  const bool joins_next = next != free_.end() && offset + bytes == next->offset;
  if (joins_previous) {
    merged = std::prev(next);
    merged->bytes += bytes;
    if (joins_next) {
      merged->bytes += next->bytes;
      free_.erase(next);
    }
  } else if (joins_next) {
    merged->offset = offset;
    merged->bytes += bytes;
  } else {
    merged = free_.insert(next, Block{offset, bytes});
  }
  if (merged->offset + merged->bytes == top_) {
    top_ = merged->offset;
    free_.erase(merged);
  }
}

}  // namespace dstune::plan
