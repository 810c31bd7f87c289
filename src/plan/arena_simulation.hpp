#pragma once
/// Places for tensors by playing an allocator through, in program order: best fit over a free list
/// in address order, neighbours merged. Knows only bytes.

#include <array>
#include <cstdint>
#include <vector>

namespace dstune::plan {

class ArenaSimulation {
 public:
  /// Everything below `base_bytes` is taken.
  explicit ArenaSimulation(std::int64_t base_bytes) : top_(base_bytes), highest_(base_bytes) {}

  /// The smallest hole that is large enough, the lowest of equal ones; else above everything.
  std::int64_t acquire(std::int64_t bytes);
  void release(std::int64_t offset, std::int64_t bytes);

  /// End of what is taken now, and of what ever was.
  [[nodiscard]] std::int64_t top_bytes() const { return top_; }
  [[nodiscard]] std::int64_t highest_bytes() const { return highest_; }

 private:
  struct Block {
    std::int64_t offset, bytes;
  };
  using Blocks = std::vector<Block>;

  [[nodiscard]] static std::size_t bin_of(std::int64_t bytes);
  void put_into_bin(Block block);
  void take_from_bin(Block block);

  Blocks free_;  // below top_, ascending, never touching each other or top_
  // The same by size: holes of as many bits, by rising size, then offset. A plan has thousands of
  // tensors and hundreds of holes: looking at each of them took most of the time of building it.
  std::array<Blocks, 64> bins_;
  std::uint64_t filled_bins_ = 0;  // a bit for each
  std::int64_t top_;
  std::int64_t highest_;
};

}  // namespace dstune::plan
