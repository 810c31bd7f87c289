#pragma once
/// Places for tensors by playing an allocator through, in program order: best fit, the lowest of
/// equal holes, neighbours merged. Knows only bytes.

#include <array>
#include <cstdint>
#include <vector>

namespace dstune::plan {

class ArenaSimulation {
 public:
  /// Everything below `base_bytes` is taken.
  explicit ArenaSimulation(std::int64_t base_bytes) : top_(base_bytes), highest_(base_bytes) {}

  struct Taken {
    std::int64_t offset;
    int block;  ///< to be released by
  };
  /// The smallest hole that is large enough, the lowest of equal ones; else above everything.
  Taken acquire(std::int64_t bytes);
  void release(int block);
  /// The offset of what is released again before anything else is acquired.
  std::int64_t borrow(std::int64_t bytes);

  /// End of what is taken now, and of what ever was.
  [[nodiscard]] std::int64_t top_bytes() const { return top_; }
  [[nodiscard]] std::int64_t highest_bytes() const { return highest_; }

 private:
  static constexpr int none = -1;
  /// Taken or a hole. Holes never touch each other or the top.
  struct Block {
    std::int64_t offset, bytes;
    int lower, higher;  // neighbours
    bool is_hole;
  };
  struct Hole {
    std::int64_t bytes, offset;
    int block;
    bool operator<(const Hole& other) const {
      return bytes != other.bytes ? bytes < other.bytes : offset < other.offset;
    }
  };
  using Holes = std::vector<Hole>;

  [[nodiscard]] Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  /// The hole that `bytes` go into, in the bin that is returned; no bin where they go to the top.
  Holes* find(std::int64_t bytes, Holes::iterator& hole);
  int add(const Block& block);
  void remove(int block);
  // By value: a hole that is read back from the block which was just written waits for the store.
  void put_into_bin(const Hole& hole);
  void take_from_bin(const Hole& hole);
  void erase_from_bin(Holes& bin, Holes::iterator hole);

  std::vector<Block> blocks_;
  std::vector<int> unused_;  // of blocks_
  int last_ = none;          // the block below the top
  // Holes of as many bits, by rising size, then offset. A plan has thousands of tensors and
  // hundreds of holes: looking at each of them took most of the time of building it.
  std::array<Holes, 64> bins_;
  std::uint64_t filled_bins_ = 0;  // a bit for each
  std::int64_t top_;
  std::int64_t highest_;
};

}  // namespace dstune::plan
