#pragma once
/// The operands of a plan's operations: types of elements, and ranks of a group. Local.

#include <cstdint>

namespace dstune {

/// Element types of planned tensors.
/// bf16: bfloat16. f16: IEEE 754 half precision, binary16. i8: codes of quantised numbers.
enum class DType : std::uint8_t { f32, bf16, f16, i32, i8 };

[[nodiscard]] constexpr std::int64_t size_bytes(DType type) {
  if (type == DType::i8) return 1;
  return type == DType::bf16 || type == DType::f16 ? 2 : 4;
}

/// Ranks of a group that lie at even distances: those of one block of consecutive ranks, or those
/// with the same place in every block.
struct RankRange {
  int first = 0;
  int stride = 1;
  int count = 0;  ///< 0: every rank of the group
  bool operator==(const RankRange&) const = default;

  [[nodiscard]] int rank(int index) const { return first + index * stride; }
  /// The place of a rank that belongs to it.
  [[nodiscard]] int index_of(int rank) const { return (rank - first) / stride; }
  [[nodiscard]] bool contains(int rank) const {
    return rank >= first && rank < first + count * stride && (rank - first) % stride == 0;
  }
  [[nodiscard]] int size(int group_size) const { return count == 0 ? group_size : count; }
  /// The same with its ranks counted.
  [[nodiscard]] RankRange in_group_of(int group_size) const {
    return count == 0 ? RankRange{0, 1, group_size} : *this;
  }
};

/// The range of a rank if a group is cut into ranges of `count` ranks at such a distance. A
/// distance of 1 gives blocks of consecutive ranks; a block's size gives ranks of equal place in
/// blocks.
[[nodiscard]] constexpr RankRange range_of(int rank, int stride, int count) {
  return {rank / (stride * count) * (stride * count) + rank % stride, stride, count};
}

}  // namespace dstune
