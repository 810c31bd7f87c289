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
  explicit ArenaSimulation(std::int64_t base_bytes) : top_(base_bytes), highest_(base_bytes) {
    bins_.fill(none);
  }

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
    // A hole has neighbours: the holes before and after it in its bin.
    int before = none, after = none;
    bool is_hole = false;
  };

  [[nodiscard]] Block& at(int block) { return blocks_[block]; }
  /// The hole that `bytes` go into; none where they go to the top.
  [[nodiscard]] int find(std::int64_t bytes);
  int add(std::int64_t offset, std::int64_t bytes, int lower, int higher);
  void remove(int block);
  void put_into_bin(int hole);
  void take_from_bin(int hole);

  std::vector<Block> blocks_;
  std::vector<int> unused_;  // of blocks_
  int last_ = none;          // the block below the top
  // The first of the holes whose sizes have as many bits and begin alike, by rising size, then
  // offset. A plan has thousands of tensors and tens of holes, of which a bin has a few: looking at
  // all of them, or moving them about, took most of the time of building it.
  static constexpr int bits_behind_first = 3;
  static constexpr std::size_t num_bins = std::size_t{64} << bits_behind_first;
  static std::size_t bin_of(std::int64_t bytes);
  std::array<int, num_bins> bins_;
  std::array<std::uint64_t, num_bins / 64> filled_bins_{};  // a bit for each
  std::int64_t top_;
  std::int64_t highest_;
};

}  // namespace dstune::plan
