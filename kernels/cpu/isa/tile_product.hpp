#pragma once
/// Small matrix products on fp32 tiles in cache, the inner loops of attention.

#include <cstdint>

#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// The left factor: element (row, k) stands at data[row·row_stride + k·k_stride], so a transposed
/// tile needs no copy.
struct LeftTile {
  const float* data;
  std::int64_t row_stride;
  std::int64_t k_stride;
};

template <int Rows, int Vectors>
inline void product_block(float* c, std::int64_t c_stride, LeftTile a, const float* b,
                          std::int64_t b_stride, std::int64_t depth, bool accumulate) {
  Vector sums[Rows][Vectors];
  for (int row = 0; row < Rows; ++row) {
    for (int i = 0; i < Vectors; ++i) {
      sums[row][i] = accumulate ? load(c + row * c_stride + i * lanes, Full{}) : Vector{};
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[Vectors];
    for (int i = 0; i < Vectors; ++i) right[i] = load(b + k * b_stride + i * lanes, Full{});
    for (int row = 0; row < Rows; ++row) {
      const Vector left = splat(a.data[row * a.row_stride + k * a.k_stride]);
      for (int i = 0; i < Vectors; ++i) {
        sums[row][i] = multiply_add(left, right[i], sums[row][i]);
      }
    }
  }
  for (int row = 0; row < Rows; ++row) {
    for (int i = 0; i < Vectors; ++i) store(c + row * c_stride + i * lanes, sums[row][i], Full{});
  }
}

template <int Vectors>
inline void product_columns(float* c, std::int64_t c_stride, LeftTile a, const float* b,
                            std::int64_t b_stride, std::int64_t rows, std::int64_t depth,
                            bool accumulate) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const LeftTile strip{a.data + row * a.row_stride, a.row_stride, a.k_stride};
    product_block<4, Vectors>(c + row * c_stride, c_stride, strip, b, b_stride, depth, accumulate);
  }
  for (; row < rows; ++row) {
    const LeftTile strip{a.data + row * a.row_stride, a.row_stride, a.k_stride};
    product_block<1, Vectors>(c + row * c_stride, c_stride, strip, b, b_stride, depth, accumulate);
  }
}

/// C[rows, columns] = A·B (+ C); B is [depth, columns]; columns is a multiple of `lanes`.
inline void tile_product(float* c, std::int64_t c_stride, LeftTile a, const float* b,
                         std::int64_t b_stride, std::int64_t rows, std::int64_t columns,
                         std::int64_t depth, bool accumulate) {
  // Sums that fill the registers without spilling: 4 × 4 of 32, or 4 × 2 of 16.
  constexpr int widest = lanes == 16 ? 4 : 2;
  std::int64_t column = 0;
  for (; column + widest * lanes <= columns; column += widest * lanes) {
    product_columns<widest>(c + column, c_stride, a, b + column, b_stride, rows, depth, accumulate);
  }
  if (widest > 2 && column + 2 * lanes <= columns) {
    product_columns<2>(c + column, c_stride, a, b + column, b_stride, rows, depth, accumulate);
    column += 2 * lanes;
  }
  if (column < columns) {
    product_columns<1>(c + column, c_stride, a, b + column, b_stride, rows, depth, accumulate);
  }
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
