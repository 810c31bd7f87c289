// Attention in fp32 without a stored score matrix, and without tensor cores, which would round to
// TF32.
//
// Forward is the running softmax of Milakov and Gimelshein (2018), backward recomputes the
// probabilities from log_sum_exp, as in Dao et al. (2022): once for the queries' gradients and once
// for those of keys and values, so that every gradient has one writer and sums have one order.
#include <stdexcept>

#include "backend_parts.hpp"
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/attention_tiles.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// Hands out pieces of a block's shared memory; the host counts in the same way.
class Pieces {
 public:
  DSTUNE_FUNCTION std::int64_t take(std::int64_t floats) {
    const std::int64_t first = bytes_;
    bytes_ += floats * std::int64_t{sizeof(float)};
    return first;
  }
  DSTUNE_FUNCTION std::size_t bytes() const { return static_cast<std::size_t>(bytes_); }

 private:
  std::int64_t bytes_ = 0;
};

template <int Chunks>
struct AttentionForward {
  using Tile = AttentionTile<Chunks>;
  static constexpr int min_blocks = Chunks > 4 ? 3 : 4;
  static constexpr int rows = Tile::rows_of_warp;

  struct Places {
    DSTUNE_FUNCTION explicit Places(const AttentionGeometry& g)
        : queries(pieces.take(Tile::rows * g.size)),
          keys(pieces.take(warp_size * g.stride)),
          values(pieces.take(warp_size * g.stride)),
          weights(pieces.take(Tile::rows * warp_size)) {}
    Pieces pieces;
    std::int64_t queries, keys, values, weights;
  };

  AttentionGeometry g;
  Output out;
  float* log_sum_exp;
  Input qkv;

  std::int64_t blocks() const {
    return g.shape.batch * g.shape.heads * divide_up(g.shape.sequence, Tile::rows);
  }

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t tiles = divide_up(g.shape.sequence, Tile::rows);
    // The last tiles see the most keys: they come first.
    const std::int64_t first_query = (tiles - 1 - block.index() % tiles) * Tile::rows;
    const std::int64_t head = block.index() / tiles % g.shape.heads;
    const std::int64_t batch = block.index() / tiles / g.shape.heads;
    const std::int64_t left = g.shape.sequence - first_query;
    const std::int64_t queries_here = left < Tile::rows ? left : Tile::rows;
    const int lane = block.thread() % warp_size;
    const std::int64_t own = first_query + block.thread() / warp_size * rows;

    const Places places(g);
    const Shared<float> queries = block.shared<float>(places.queries);
    const Shared<float> keys = block.shared<float>(places.keys);
    const Shared<float> values = block.shared<float>(places.values);
    const Shared<float> weights = block.shared<float>(places.weights);
    Tile::load(block, queries, g.size, qkv, g.query_at(batch, head, first_query), g.row_width,
               queries_here, Tile::rows, g.size, g.softmax_scale);

    Tile sums{};
    float largest[rows];
    float total[rows];
    for (int r = 0; r < rows; ++r) {
      largest[r] = -3.0e38F;
      total[r] = 0.0F;
    }
    const std::int64_t end_key = g.end_key(first_query + queries_here - 1);
    for (std::int64_t first_key = g.first_key(first_query) / warp_size * warp_size;
         first_key < end_key; first_key += warp_size) {
      block.sync();
      Tile::load(block, keys, g.stride, qkv, g.key_at(batch, head / g.group, first_key),
                 g.row_width, g.shape.sequence - first_key, warp_size, g.size, 1.0F);
      Tile::load(block, values, g.stride, qkv, g.value_at(batch, head / g.group, first_key),
                 g.row_width, g.shape.sequence - first_key, warp_size, g.size, 1.0F);
      block.sync();
      float scores[rows];
      Tile::multiply(block, scores, queries, keys, g.stride, g.size);
      for (int r = 0; r < rows; ++r) {
        const bool seen = g.sees(own + r, first_key + lane);
        scores[r] = g.capped(scores[r]);
        const float now = larger(warp_largest(block, seen ? scores[r] : -3.0e38F), largest[r]);
        const float correction = exponential(largest[r] - now);
        scores[r] = seen ? exponential(scores[r] - now) : 0.0F;
        total[r] = total[r] * correction + warp_sum(block, scores[r]);
        largest[r] = now;
        for (int c = 0; c < Chunks; ++c) sums.of[r][c] *= correction;
      }
      Tile::keep(block, weights, scores);
      block.sync();
      sums.add_products(block, weights, values, g.stride, g.size);
    }
    DSTUNE_UNROLL
    for (int r = 0; r < rows; ++r) {
      if (own + r < g.shape.sequence) {
        sums.store_row(block, r, out, g.out_at(batch, head, own + r), g.size, 1.0F / total[r]);
        if (lane == 0)
          log_sum_exp[g.statistic_at(batch, head, own + r)] = largest[r] + logf(total[r]);
      }
    }
  }
};

/// delta = out · d_out of every head of every row: a warp each.
struct AttentionDelta {
  AttentionGeometry g;
  float* delta;
  Input out, d_out;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t number = block.index() * max_warps + block.thread() / warp_size;
    if (number >= g.shape.batch * g.shape.sequence * g.shape.heads) return;
    const std::int64_t begin = number * g.size;
    float sum = 0.0F;
    for (std::int64_t i = block.thread() % warp_size; i < g.size; i += warp_size)
      sum = multiply_add(out[begin + i], d_out[begin + i], sum);
    sum = warp_sum(block, sum);
    const std::int64_t row = number / g.shape.heads;
    if (block.thread() % warp_size == 0) {
      delta[g.statistic_at(row / g.shape.sequence, number % g.shape.heads,
                           row % g.shape.sequence)] = sum;
    }
  }
};

/// The places for two tiles of their own and two of the others' that both passes of backward keep.
template <int Chunks>
struct BackwardPlaces {
  using Tile = AttentionTile<Chunks>;
  DSTUNE_FUNCTION explicit BackwardPlaces(const AttentionGeometry& g)
      : own(pieces.take(Tile::rows * g.size)),
        own_second(pieces.take(Tile::rows * g.size)),
        others(pieces.take(warp_size * g.stride)),
        others_second(pieces.take(warp_size * g.stride)),
        weights(pieces.take(Tile::rows * warp_size)) {}
  Pieces pieces;
  std::int64_t own, own_second, others, others_second, weights;
};

struct BackwardTensors {
  Output d_qkv;
  Input d_out, qkv;
  const float* log_sum_exp;
  const float* delta;
};

template <int Chunks>
struct QueryGradients {
  using Tile = AttentionTile<Chunks>;
  using Places = BackwardPlaces<Chunks>;
  static constexpr int min_blocks = Tile::min_blocks;
  static constexpr int rows = Tile::rows_of_warp;

  AttentionGeometry g;
  BackwardTensors t;

  std::int64_t blocks() const {
    return g.shape.batch * g.shape.heads * divide_up(g.shape.sequence, Tile::rows);
  }

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t tiles = divide_up(g.shape.sequence, Tile::rows);
    const std::int64_t first_query = (tiles - 1 - block.index() % tiles) * Tile::rows;
    const std::int64_t head = block.index() / tiles % g.shape.heads;
    const std::int64_t batch = block.index() / tiles / g.shape.heads;
    const std::int64_t left = g.shape.sequence - first_query;
    const std::int64_t queries_here = left < Tile::rows ? left : Tile::rows;
    const int lane = block.thread() % warp_size;
    const std::int64_t own = first_query + block.thread() / warp_size * rows;

    const Places places(g);
    const Shared<float> queries = block.shared<float>(places.own);
    const Shared<float> d_outs = block.shared<float>(places.own_second);
    const Shared<float> keys = block.shared<float>(places.others);
    const Shared<float> values = block.shared<float>(places.others_second);
    const Shared<float> weights = block.shared<float>(places.weights);
    Tile::load(block, queries, g.size, t.qkv, g.query_at(batch, head, first_query), g.row_width,
               queries_here, Tile::rows, g.size, g.softmax_scale);
    Tile::load(block, d_outs, g.size, t.d_out, g.out_at(batch, head, first_query), g.out_width,
               queries_here, Tile::rows, g.size, 1.0F);

    Tile sums{};
    const std::int64_t end_key = g.end_key(first_query + queries_here - 1);
    for (std::int64_t first_key = g.first_key(first_query) / warp_size * warp_size;
         first_key < end_key; first_key += warp_size) {
      block.sync();
      Tile::load(block, keys, g.stride, t.qkv, g.key_at(batch, head / g.group, first_key),
                 g.row_width, g.shape.sequence - first_key, warp_size, g.size, 1.0F);
      Tile::load(block, values, g.stride, t.qkv, g.value_at(batch, head / g.group, first_key),
                 g.row_width, g.shape.sequence - first_key, warp_size, g.size, 1.0F);
      block.sync();
      float scores[rows];
      float d_weights[rows];
      Tile::multiply(block, scores, queries, keys, g.stride, g.size);
      Tile::multiply(block, d_weights, d_outs, values, g.stride, g.size);
      for (int r = 0; r < rows; ++r) {
        float d_score = 0.0F;
        if (g.sees(own + r, first_key + lane)) {
          const std::int64_t at = g.statistic_at(batch, head, own + r);
          const float score = g.capped(scores[r]);
          d_score = exponential(score - t.log_sum_exp[at]) * (d_weights[r] - t.delta[at]) *
                    g.slope_of_cap(score);
        }
        scores[r] = d_score;
      }
      Tile::keep(block, weights, scores);
      block.sync();
      sums.add_products(block, weights, keys, g.stride, g.size);
    }
    DSTUNE_UNROLL
    for (int r = 0; r < rows; ++r) {
      if (own + r < g.shape.sequence) {
        sums.store_row(block, r, t.d_qkv, g.query_at(batch, head, own + r), g.size,
                       g.softmax_scale);
      }
    }
  }
};

template <int Chunks>
struct KeyGradients {
  using Tile = AttentionTile<Chunks>;
  using Places = BackwardPlaces<Chunks>;
  static constexpr int min_blocks = Tile::min_blocks;
  static constexpr int rows = Tile::rows_of_warp;

  AttentionGeometry g;
  BackwardTensors t;

  std::int64_t blocks() const {
    return g.shape.batch * g.shape.kv_heads * divide_up(g.shape.sequence, Tile::rows);
  }

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t tiles = divide_up(g.shape.sequence, Tile::rows);
    const std::int64_t first_key = block.index() % tiles * Tile::rows;
    const std::int64_t kv_head = block.index() / tiles % g.shape.kv_heads;
    const std::int64_t batch = block.index() / tiles / g.shape.kv_heads;
    const std::int64_t left = g.shape.sequence - first_key;
    const std::int64_t keys_here = left < Tile::rows ? left : Tile::rows;
    const int lane = block.thread() % warp_size;
    const std::int64_t own = first_key + block.thread() / warp_size * rows;

    const Places places(g);
    const Shared<float> keys = block.shared<float>(places.own);
    const Shared<float> values = block.shared<float>(places.own_second);
    const Shared<float> queries = block.shared<float>(places.others);
    const Shared<float> d_outs = block.shared<float>(places.others_second);
    const Shared<float> weights = block.shared<float>(places.weights);
    Tile::load(block, keys, g.size, t.qkv, g.key_at(batch, kv_head, first_key), g.row_width,
               keys_here, Tile::rows, g.size, 1.0F);
    Tile::load(block, values, g.size, t.qkv, g.value_at(batch, kv_head, first_key), g.row_width,
               keys_here, Tile::rows, g.size, 1.0F);

    Tile d_keys{};
    Tile d_values{};
    const std::int64_t end_query = g.end_query(first_key + keys_here - 1);
    for (std::int64_t head = kv_head * g.group; head < (kv_head + 1) * g.group; ++head) {
      for (std::int64_t first_query = g.first_query(first_key) / warp_size * warp_size;
           first_query < end_query; first_query += warp_size) {
        block.sync();
        Tile::load(block, queries, g.stride, t.qkv, g.query_at(batch, head, first_query),
                   g.row_width, g.shape.sequence - first_query, warp_size, g.size, g.softmax_scale);
        Tile::load(block, d_outs, g.stride, t.d_out, g.out_at(batch, head, first_query),
                   g.out_width, g.shape.sequence - first_query, warp_size, g.size, 1.0F);
        block.sync();
        float scores[rows];
        float d_weights[rows];
        Tile::multiply(block, scores, keys, queries, g.stride, g.size);
        Tile::multiply(block, d_weights, values, d_outs, g.stride, g.size);
        for (int r = 0; r < rows; ++r) {
          const bool seen = g.sees(first_query + lane, own + r);
          const std::int64_t at = g.statistic_at(batch, head, first_query + lane);
          const float score = g.capped(scores[r]);
          scores[r] = seen ? exponential(score - t.log_sum_exp[at]) : 0.0F;
          d_weights[r] =
              seen ? scores[r] * (d_weights[r] - t.delta[at]) * g.slope_of_cap(score) : 0.0F;
        }
        Tile::keep(block, weights, scores);
        block.sync();
        d_values.add_products(block, weights, d_outs, g.stride, g.size);
        block.sync();
        Tile::keep(block, weights, d_weights);
        block.sync();
        // The queries carry the softmax's scale.
        d_keys.add_products(block, weights, queries, g.stride, g.size);
      }
    }
    DSTUNE_UNROLL
    for (int r = 0; r < rows; ++r) {
      if (own + r < g.shape.sequence) {
        d_keys.store_row(block, r, t.d_qkv, g.key_at(batch, kv_head, own + r), g.size, 1.0F);
        d_values.store_row(block, r, t.d_qkv, g.value_at(batch, kv_head, own + r), g.size, 1.0F);
      }
    }
  }
};

template <class Kernel>
void launch_tiles(const Kernel& kernel) {
  launch({.blocks = kernel.blocks(),
          .threads = max_warps * warp_size,
          .shared_bytes = typename Kernel::Places(kernel.g).pieces.bytes()},
         kernel);
}

/// body(as many chunks of 32 elements as the head has, or somewhat more), a constant.
template <class Body>
void with_chunks(std::int64_t head_size, Body body) {
  if (head_size > 256) throw std::invalid_argument("CUDA attention: head_size above 256");
  if (head_size <= 64) return body(Constant<2>());
  if (head_size <= 128) return body(Constant<4>());
  body(Constant<8>());
}

bool is_empty(const AttentionShape& shape) {
  return shape.batch <= 0 || shape.sequence <= 0 || shape.heads <= 0 || shape.head_size <= 0;
}

}  // namespace

std::size_t own_attention_workspace_bytes(const AttentionShape& shape) {
  return sizeof(float) * static_cast<std::size_t>(shape.batch * shape.heads * shape.sequence);
}

void own_attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp,
                           const void* qkv, void* /*workspace*/) {
  if (is_empty(shape)) return;
  with_chunks(shape.head_size, [&](auto chunks) {
    launch_tiles(AttentionForward<chunks>{
        AttentionGeometry(shape), {out, shape.type}, log_sum_exp, {qkv, shape.type}});
  });
}

void own_attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                            const void* qkv, const void* out, const float* log_sum_exp,
                            void* workspace) {
  if (is_empty(shape)) return;
  const DType type = shape.type;
  const AttentionGeometry g(shape);
  auto* delta = static_cast<float*>(workspace);
  launch({.blocks = divide_up(shape.batch * shape.sequence * shape.heads, max_warps),
          .threads = max_warps * warp_size},
         AttentionDelta{g, delta, {out, type}, {d_out, type}});
  const BackwardTensors tensors{{d_qkv, type}, {d_out, type}, {qkv, type}, log_sum_exp, delta};
  with_chunks(shape.head_size, [&](auto chunks) {
    launch_tiles(QueryGradients<chunks>{g, tensors});
    launch_tiles(KeyGradients<chunks>{g, tensors});
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
