#pragma once
/// The geometry of tiled attention on a GPU. A block has a tile of rows (queries, or keys where
/// their gradients are made) whose sums its warps keep in registers, and goes through the tiles of
/// the other side, one lane a row of it. Tiles lie in shared memory as floats.

#include "common/formulas.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct AttentionGeometry {
  explicit AttentionGeometry(const AttentionShape& shape_in)
      : shape(shape_in),
        size(shape.head_size),
        group(shape.heads / shape.kv_heads),
        row_width((shape.heads + 2 * shape.kv_heads) * shape.head_size),
        out_width(shape.heads * shape.head_size),
        stride(shape.head_size | 1),
        softmax_scale(shape.softmax_scale > 0.0F
                          ? shape.softmax_scale
                          : 1.0F / sqrtf(static_cast<float>(shape.head_size))) {}

  // The place of the first element of a head in a row of the batch.
  DSTUNE_FUNCTION std::int64_t query_at(std::int64_t batch, std::int64_t head,
                                        std::int64_t row) const {
    return (batch * shape.sequence + row) * row_width + head * size;
  }
  DSTUNE_FUNCTION std::int64_t key_at(std::int64_t batch, std::int64_t kv_head,
                                      std::int64_t row) const {
    return query_at(batch, shape.heads + kv_head, row);
  }
  DSTUNE_FUNCTION std::int64_t value_at(std::int64_t batch, std::int64_t kv_head,
                                        std::int64_t row) const {
    return query_at(batch, shape.heads + shape.kv_heads + kv_head, row);
  }
  DSTUNE_FUNCTION std::int64_t out_at(std::int64_t batch, std::int64_t head,
                                      std::int64_t row) const {
    return (batch * shape.sequence + row) * out_width + head * size;
  }
  DSTUNE_FUNCTION std::int64_t statistic_at(std::int64_t batch, std::int64_t head,
                                            std::int64_t row) const {
    return (batch * shape.heads + head) * shape.sequence + row;
  }

  /// The keys that a query attends to: first_key … end_key − 1.
  DSTUNE_FUNCTION std::int64_t first_key(std::int64_t query) const {
    return shape.window > 0 && query >= shape.window ? query + 1 - shape.window : 0;
  }
  DSTUNE_FUNCTION std::int64_t end_key(std::int64_t query) const {
    return shape.causal && query < shape.sequence ? query + 1 : shape.sequence;
  }
  DSTUNE_FUNCTION bool sees(std::int64_t query, std::int64_t key) const {
    return query < shape.sequence && key >= first_key(query) && key < end_key(query);
  }
  /// The queries that attend to a key.
  DSTUNE_FUNCTION std::int64_t first_query(std::int64_t key) const {
    return shape.causal ? key : 0;
  }
  DSTUNE_FUNCTION std::int64_t end_query(std::int64_t key) const {
    const std::int64_t end = key + shape.window;
    return shape.window > 0 && end < shape.sequence ? end : shape.sequence;
  }

  DSTUNE_FUNCTION float capped(float score) const {
    return shape.softcap > 0.0F ? Softcap(shape.softcap).value(score) : score;
  }
  /// The slope of the cap from the score that it gave.
  DSTUNE_FUNCTION float slope_of_cap(float score) const {
    return shape.softcap > 0.0F ? Softcap(shape.softcap).slope(score) : 1.0F;
  }

  AttentionShape shape;
  std::int64_t size;       ///< of a head
  std::int64_t group;      ///< query heads that share a key head
  std::int64_t row_width;  ///< of qkv
  std::int64_t out_width;
  std::int64_t stride;  ///< odd: what the lanes read of as many rows lies in as many banks
  float softmax_scale;
};

/// A block's share of heads of up to 32·Chunks elements.
template <int Chunks>
struct AttentionTile {
  static constexpr int rows_of_warp = Chunks > 4 ? 2 : 4;
  static constexpr int rows = rows_of_warp * max_warps;
  static constexpr int min_blocks = Chunks > 2 ? 3 : 4;

  float of[rows_of_warp][Chunks];  ///< of each row, elements lane, lane + 32, …

  /// tile[row·stride + i] = from[begin + row·from_stride + i]·factor for `count` of `all` rows, 0
  /// in the others.
  static DSTUNE_DEVICE void load(const Block& block, Shared<float> tile, std::int64_t stride,
                                 Input from, std::int64_t begin, std::int64_t from_stride,
                                 std::int64_t count, int all, std::int64_t size, float factor) {
    for (int row = block.thread() / warp_size; row < all; row += max_warps) {
      for (std::int64_t i = block.thread() % warp_size; i < size; i += warp_size) {
        tile[row * stride + i] = row < count ? from[begin + row * from_stride + i] * factor : 0.0F;
      }
    }
  }

  /// products[r] = own row r of the warp · the lane's row of the others.
  static DSTUNE_DEVICE void multiply(const Block& block, float (&products)[rows_of_warp],
                                     Shared<float> own, Shared<float> others, std::int64_t stride,
                                     std::int64_t size) {
    const std::int64_t first = std::int64_t{block.thread() / warp_size} * rows_of_warp * size;
    const std::int64_t other = block.thread() % warp_size * stride;
    for (int r = 0; r < rows_of_warp; ++r) products[r] = 0.0F;
    for (std::int64_t i = 0; i < size; ++i) {
      const float right = others[other + i];
      for (int r = 0; r < rows_of_warp; ++r)
        products[r] = multiply_add(own[first + r * size + i], right, products[r]);
    }
  }

  /// weights[own row][lane] = value[r]
  static DSTUNE_DEVICE void keep(const Block& block, Shared<float> weights,
                                 const float (&values)[rows_of_warp]) {
    const int first = block.thread() / warp_size * rows_of_warp;
    for (int r = 0; r < rows_of_warp; ++r)
      weights[(first + r) * warp_size + block.thread() % warp_size] = values[r];
  }

  /// of += weights · others
  DSTUNE_DEVICE void add_products(const Block& block, Shared<float> weights, Shared<float> others,
                                  std::int64_t stride, std::int64_t size) {
    const int first = block.thread() / warp_size * rows_of_warp;
    const int lane = block.thread() % warp_size;
    for (int other = 0; other < warp_size; ++other) {
      float right[Chunks];
      for (int c = 0; c < Chunks; ++c) {
        const int i = lane + c * warp_size;
        right[c] = i < size ? others[other * stride + i] : 0.0F;
      }
      for (int r = 0; r < rows_of_warp; ++r) {
        const float weight = weights[(first + r) * warp_size + other];
        for (int c = 0; c < Chunks; ++c) of[r][c] = multiply_add(weight, right[c], of[r][c]);
      }
    }
  }

  /// to[begin + i] = row r · factor
  DSTUNE_DEVICE void store_row(const Block& block, int r, Output to, std::int64_t begin,
                               std::int64_t size, float factor) const {
    DSTUNE_UNROLL
    for (int c = 0; c < Chunks; ++c) {
      const int i = block.thread() % warp_size + c * warp_size;
      if (i < size) to.set(begin + i, of[r][c] * factor);
    }
  }
};

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
