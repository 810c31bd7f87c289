#pragma once
/// The geometry of tiled attention, and the copies of q, k and v that its loops read: fp32, packed,
/// padded with zeros to whole vectors.

#include <cstdint>

#include "isa/parallel.hpp"
#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

constexpr std::int64_t query_tile = 32;
constexpr std::int64_t key_tile = 64;
/// Padding does not depend on the instruction set, so neither does the size of the workspace.
constexpr std::int64_t padding = 16;

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct AttentionGeometry {
  explicit AttentionGeometry(const AttentionShape& shape_in)
      : shape(shape_in),
        depth(round_up(shape.head_size, padding)),
        key_tiles((shape.sequence + key_tile - 1) / key_tile),
        group(shape.heads / shape.kv_heads),
        row_width((shape.heads + 2 * shape.kv_heads) * shape.head_size),
        out_width(shape.heads * shape.head_size),
        softmax_scale(shape.softmax_scale > 0.0F
                          ? shape.softmax_scale
                          : 1.0F / __builtin_sqrtf(static_cast<float>(shape.head_size))) {}

  std::int64_t first_row(std::int64_t batch) const { return batch * shape.sequence; }
  std::int64_t key_column(std::int64_t kv_head) const {
    return (shape.heads + kv_head) * shape.head_size;
  }
  std::int64_t value_column(std::int64_t kv_head) const {
    return (shape.heads + shape.kv_heads + kv_head) * shape.head_size;
  }
  std::int64_t queries(std::int64_t first_query) const {
    const std::int64_t left = shape.sequence - first_query;
    return left < query_tile ? left : query_tile;
  }
  /// The first key tile that any of the queries attends to.
  std::int64_t first_tile(std::int64_t first_query) const {
    return first_visible(first_query) / key_tile;
  }
  /// The first key that this query attends to.
  std::int64_t first_visible(std::int64_t query) const {
    return shape.window > 0 && query >= shape.window ? query + 1 - shape.window : 0;
  }
  /// Keys of the tile at `first_key` that any of the queries attends to; none: ≤ 0.
  std::int64_t keys(std::int64_t first_key, std::int64_t first_query) const {
    const std::int64_t end = shape.causal ? first_query + queries(first_query) : shape.sequence;
    const std::int64_t left = end - first_key;
    return left < key_tile ? left : key_tile;
  }
  /// The keys up to this query among `keys` keys.
  std::int64_t keys_of(std::int64_t query, std::int64_t first_key, std::int64_t keys) const {
    const std::int64_t visible = query + 1 - first_key;
    return shape.causal && visible < keys ? visible : keys;
  }

  AttentionShape shape;
  std::int64_t depth;  ///< head_size, padded
  std::int64_t key_tiles;
  std::int64_t group;  ///< query heads that share a key head
  std::int64_t row_width;
  std::int64_t out_width;
  float softmax_scale;
};

/// to[row, 0 … depth) = from[row, 0 … head_size)·factor, the rest zero.
template <class T>
void pack_rows(float* to, const T* from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t head_size, std::int64_t depth, float factor) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for_vectors(0, head_size, [&](std::int64_t i, auto extent) {
      store(to + row * depth + i, load(from + row * from_stride + i, extent) * factor, extent);
    });
    for (std::int64_t i = head_size; i < depth; ++i) to[row * depth + i] = 0.0F;
  }
}

/// to[i, row] = packed[row, i] for a tile of key_tile columns; rows past `rows` become zero.
inline void transpose_tile(float* to, const float* packed, std::int64_t rows, std::int64_t depth) {
  for (std::int64_t i = 0; i < depth; ++i) {
    for (std::int64_t row = 0; row < rows; ++row) to[i * key_tile + row] = packed[row * depth + i];
    for (std::int64_t row = rows; row < key_tile; ++row) to[i * key_tile + row] = 0.0F;
  }
}

template <class T>
void unpack_rows(T* to, std::int64_t to_stride, const float* from, std::int64_t rows,
                 std::int64_t head_size, std::int64_t depth, float factor) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for_vectors(0, head_size, [&](std::int64_t i, auto extent) {
      store(to + row * to_stride + i, load(from + row * depth + i, extent) * factor, extent);
    });
  }
}

/// Hands out pieces of one thread's scratch, each on a cache line; without a base it only counts.
class Scratch {
 public:
  explicit Scratch(float* base) : base_(base) {}
  float* take(std::int64_t floats) {
    float* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(floats, 16);
    return piece;
  }
  std::int64_t used() const { return used_; }

 private:
  float* base_;
  std::int64_t used_ = 0;
};

// Small matrix products on fp32 tiles in cache, the inner loops of attention.

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
