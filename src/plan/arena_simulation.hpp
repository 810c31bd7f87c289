#pragma once
/// Places for tensors by playing an allocator through, in program order: best fit over a free list
/// in address order, neighbours merged. Knows only bytes.

#include <cstdint>
#include <vector>

namespace dstune::plan {

class ArenaSimulation {
 public:
  /// Everything below `base_bytes` is taken.
  explicit ArenaSimulation(std::int64_t base_bytes) : top_(base_bytes), highest_(base_bytes) {}

  std::int64_t acquire(std::int64_t bytes);
  void release(std::int64_t offset, std::int64_t bytes);

  /// End of what is taken now, and of what ever was.
  [[nodiscard]] std::int64_t top_bytes() const { return top_; }
  [[nodiscard]] std::int64_t highest_bytes() const { return highest_; }

 private:
  struct Block {
    std::int64_t offset, bytes;
  };
  std::vector<Block> free_;  // below top_, ascending, never touching each other or top_
  std::int64_t top_;
  std::int64_t highest_;
};

}  // namespace dstune::plan
