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

  /// add(row, sums) for every row, which is about so many elements of work: adds the row to the
  /// sums of its block, of one kind after the other.
  template <class Add>
  void add_rows(std::int64_t elements, Add add) const {
    for_items(blocks(), rows_per_block_ * elements, [&](std::int64_t block) {
      float* sums = partial(block, 0);
      __builtin_memset(sums, 0, sizeof(float) * static_cast<std::size_t>(kinds_ * width_));
      const std::int64_t last = (block + 1) * rows_per_block_;
      const std::int64_t end = last < rows_ ? last : rows_;
      for (std::int64_t row = block * rows_per_block_; row < end; ++row) add(row, sums);
    });
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

  std::int64_t blocks() const { return (rows_ + rows_per_block_ - 1) / rows_per_block_; }
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
