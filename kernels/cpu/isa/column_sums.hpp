#pragma once
/// Sums over rows that do not depend on the number of threads: partial sums over blocks of rows
/// fixed by the shape, combined in order.

#include <cstddef>
#include <cstdint>

#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

class ColumnSums {
 public:
  static std::size_t workspace_bytes(std::int64_t width) {
    return sizeof(float) * static_cast<std::size_t>(max_blocks * max_kinds * width);
  }

  /// `kinds` sums for every column, kept in workspace_bytes(width).
  ColumnSums(std::int64_t rows, std::int64_t width, std::int64_t kinds, void* workspace)
      : rows_(rows), width_(width), kinds_(kinds), partial_(static_cast<float*>(workspace)) {
    const std::int64_t share = (rows + max_blocks - 1) / max_blocks;
    rows_per_block_ = share < min_rows ? min_rows : share;
  }

  std::int64_t rows_per_block() const { return rows_per_block_; }
  std::int64_t blocks() const { return (rows_ + rows_per_block_ - 1) / rows_per_block_; }
  std::int64_t begin(std::int64_t block) const { return block * rows_per_block_; }
  std::int64_t end(std::int64_t block) const {
    const std::int64_t last = begin(block) + rows_per_block_;
    return last < rows_ ? last : rows_;
  }

  /// The block's sums of one kind, set to zero.
  float* clear(std::int64_t block, std::int64_t kind) const {
    float* sums = partial(block, kind);
    __builtin_memset(sums, 0, sizeof(float) * static_cast<std::size_t>(width_));
    return sums;
  }

  template <class T>
  void combine(T* totals, std::int64_t kind, bool accumulate) const {
    for_vectors(0, width_, [&](std::int64_t i, auto extent) {
      Vector total = accumulate ? load(totals + i, extent) : Vector{};
      for (std::int64_t block = 0; block < blocks(); ++block) {
        total += load(partial(block, kind) + i, extent);
      }
      store(totals + i, total, extent);
    });
  }

 private:
  static constexpr std::int64_t max_blocks = 64;
  static constexpr std::int64_t max_kinds = 2;
  static constexpr std::int64_t min_rows = 16;

  float* partial(std::int64_t block, std::int64_t kind) const {
    return partial_ + (block * kinds_ + kind) * width_;
  }

  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t kinds_;
  std::int64_t rows_per_block_ = 0;
  float* partial_;
};

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
