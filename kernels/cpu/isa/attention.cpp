// Attention without a stored score matrix: tiles of queries against tiles of keys, one (batch, key
// head) at a time, so that gradients of shared keys have one writer.
//
// Forward is the running softmax of Milakov and Gimelshein (2018), backward recomputes the
// probabilities from log_sum_exp, as in Dao et al. (2022).
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/attention_tiles.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct ForwardScratch {
  ForwardScratch(const AttentionGeometry& g, Scratch scratch)
      : rows(scratch.take(key_tile * g.depth)),
        keys_transposed(scratch.take(g.key_tiles * key_tile * g.depth)),
        values(scratch.take(g.key_tiles * key_tile * g.depth)),
        queries(scratch.take(query_tile * g.depth)),
        out(scratch.take(query_tile * g.depth)),
        scores(scratch.take(query_tile * key_tile)),
        largest(scratch.take(query_tile)),
        sum(scratch.take(query_tile)),
        floats(scratch.used()) {}
  float *rows, *keys_transposed, *values, *queries, *out, *scores, *largest, *sum;
  std::int64_t floats;
};

struct BackwardScratch {
  BackwardScratch(const AttentionGeometry& g, Scratch scratch)
      : rows(scratch.take(key_tile * g.depth)),
        keys(scratch.take(g.key_tiles * key_tile * g.depth)),
        keys_transposed(scratch.take(g.key_tiles * key_tile * g.depth)),
        values_transposed(scratch.take(g.key_tiles * key_tile * g.depth)),
        d_keys(scratch.take(g.key_tiles * key_tile * g.depth)),
        d_values(scratch.take(g.key_tiles * key_tile * g.depth)),
        queries(scratch.take(query_tile * g.depth)),
        d_queries(scratch.take(query_tile * g.depth)),
        d_out(scratch.take(query_tile * g.depth)),
        probabilities(scratch.take(query_tile * key_tile)),
        d_scores(scratch.take(query_tile * key_tile)),
        delta(scratch.take(query_tile)),
        floats(scratch.used()) {}
  float *rows, *keys, *keys_transposed, *values_transposed, *d_keys, *d_values, *queries,
      *d_queries, *d_out, *probabilities, *d_scores, *delta;
  std::int64_t floats;
};

/// Scores of keys before the row's window become −∞, so that their weights are exactly 0.
void mask_before_window(const AttentionGeometry& g, float* scores, std::int64_t query,
                        std::int64_t first_key, std::int64_t keys) {
  const std::int64_t masked = g.first_visible(query) - first_key;
  for (std::int64_t i = 0; i < masked && i < keys; ++i) scores[i] = -__builtin_inff();
}

/// Nothing is done without a cap.
void cap_scores(const AttentionGeometry& g, float* scores, std::int64_t padded_keys) {
  if (!(g.shape.softcap > 0.0F)) return;
  const Softcap softcap(g.shape.softcap);
  for (std::int64_t i = 0; i < padded_keys; i += lanes)
    store(scores + i, softcap.value(load(scores + i, Full{})), Full{});
}

/// One row of scores becomes exp(score − largest); returns what older sums must be multiplied by.
float softmax_row(float* scores, std::int64_t keys, std::int64_t padded_keys, float* largest,
                  float* sum) {
  Vector row_largest = splat(*largest);
  for (std::int64_t i = 0; i < keys; i += lanes) {
    const Vector score = load(scores + i, Full{});
    row_largest = larger(inside(score, Part{keys - i}, splat(scores[0])), row_largest);
  }
  const float now = largest_lane(row_largest);
  Vector total{};
  for (std::int64_t i = 0; i < padded_keys; i += lanes) {
    const Vector weight = exponential(load(scores + i, Full{}) - now);
    const Vector seen = inside(weight, Part{keys - i});
    total += seen;
    store(scores + i, seen, Full{});
  }
  const float correction = exponential(splat(*largest - now))[0];
  *sum = *sum * correction + sum_of_lanes(total);
  *largest = now;
  return correction;
}

template <class T>
void forward_tile(const AttentionGeometry& g, const ForwardScratch& s, T* out, float* log_sum_exp,
                  const T* queries, std::int64_t first_query) {
  const std::int64_t rows = g.queries(first_query);
  pack_rows(s.queries, queries + first_query * g.row_width, g.row_width, rows, g.shape.head_size,
            g.depth, g.softmax_scale);
  __builtin_memset(s.out, 0, sizeof(float) * static_cast<std::size_t>(rows * g.depth));
  for (std::int64_t row = 0; row < rows; ++row) {
    s.largest[row] = -3.0e38F;
    s.sum[row] = 0.0F;
  }
  for (std::int64_t tile = g.first_tile(first_query); tile < g.key_tiles; ++tile) {
    const std::int64_t first_key = tile * key_tile;
    const std::int64_t keys = g.keys(first_key, first_query);
    if (keys <= 0) break;
    const std::int64_t padded = round_up(keys, lanes);
    tile_product(s.scores, key_tile, {s.queries, g.depth, 1},
                 s.keys_transposed + first_key * g.depth, key_tile, rows, padded, g.depth, false);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t visible = g.keys_of(first_query + row, first_key, keys);
      cap_scores(g, s.scores + row * key_tile, padded);
      mask_before_window(g, s.scores + row * key_tile, first_query + row, first_key, keys);
      const float correction =
          softmax_row(s.scores + row * key_tile, visible, padded, s.largest + row, s.sum + row);
      if (correction == 1.0F) continue;
      for_vectors(0, g.depth, [&](std::int64_t i, auto extent) {
        float* value = s.out + row * g.depth + i;
        store(value, load(value, extent) * correction, extent);
      });
    }
    tile_product(s.out, g.depth, {s.scores, key_tile, 1}, s.values + first_key * g.depth, g.depth,
                 rows, g.depth, keys, true);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    unpack_rows(out + (first_query + row) * g.out_width, 0, s.out + row * g.depth, 1,
                g.shape.head_size, g.depth, 1.0F / s.sum[row]);
    log_sum_exp[first_query + row] = s.largest[row] + __builtin_logf(s.sum[row]);
  }
}

/// P = exp(S − log_sum_exp) and dS = P∘(dP − delta) of one row, through the cap; what is masked
/// becomes zero.
template <bool is_capped>
void score_gradients(float* probabilities, float* d_scores, std::int64_t keys,
                     std::int64_t padded_keys, float log_sum_exp, float delta, float cap) {
  for (std::int64_t i = 0; i < padded_keys; i += lanes) {
    const Vector score = load(probabilities + i, Full{});
    const Vector probability = inside(exponential(score - log_sum_exp), Part{keys - i});
    store(probabilities + i, probability, Full{});
    Vector d_score = probability * (load(d_scores + i, Full{}) - delta);
    if (is_capped) d_score *= Softcap(cap).slope(score);
    store(d_scores + i, d_score, Full{});
  }
}

template <class T>
void backward_tile(const AttentionGeometry& g, const BackwardScratch& s, T* d_queries,
                   const T* d_out, const T* queries, const T* out, const float* log_sum_exp,
                   std::int64_t first_query) {
  const std::int64_t rows = g.queries(first_query);
  const std::int64_t size = g.shape.head_size;
  pack_rows(s.queries, queries + first_query * g.row_width, g.row_width, rows, size, g.depth,
            g.softmax_scale);
  pack_rows(s.d_out, d_out + first_query * g.out_width, g.out_width, rows, size, g.depth, 1.0F);
  for (std::int64_t row = 0; row < rows; ++row) {
    Vector sum{};
    for_vectors(0, size, [&](std::int64_t i, auto extent) {
      sum = multiply_add(load(out + (first_query + row) * g.out_width + i, extent),
                         load(s.d_out + row * g.depth + i, extent), sum);
    });
    s.delta[row] = sum_of_lanes(sum);
  }
  __builtin_memset(s.d_queries, 0, sizeof(float) * static_cast<std::size_t>(rows * g.depth));
  for (std::int64_t tile = g.first_tile(first_query); tile < g.key_tiles; ++tile) {
    const std::int64_t first_key = tile * key_tile;
    const std::int64_t keys = g.keys(first_key, first_query);
    if (keys <= 0) break;
    const std::int64_t padded = round_up(keys, lanes);
    const std::int64_t offset = first_key * g.depth;
    tile_product(s.probabilities, key_tile, {s.queries, g.depth, 1}, s.keys_transposed + offset,
                 key_tile, rows, padded, g.depth, false);
    tile_product(s.d_scores, key_tile, {s.d_out, g.depth, 1}, s.values_transposed + offset,
                 key_tile, rows, padded, g.depth, false);
    for (std::int64_t row = 0; row < rows; ++row) {
      cap_scores(g, s.probabilities + row * key_tile, padded);
      mask_before_window(g, s.probabilities + row * key_tile, first_query + row, first_key, keys);
      const std::int64_t visible = g.keys_of(first_query + row, first_key, keys);
      with_either<true, false>(g.shape.softcap > 0.0F, [&](auto is_capped) {
        score_gradients<is_capped>(s.probabilities + row * key_tile, s.d_scores + row * key_tile,
                                   visible, padded, log_sum_exp[first_query + row], s.delta[row],
                                   g.shape.softcap);
      });
    }
    tile_product(s.d_values + offset, g.depth, {s.probabilities, 1, key_tile}, s.d_out, g.depth,
                 keys, g.depth, rows, true);
    // The queries carry the softmax's scale, which is what d_keys needs.
    tile_product(s.d_keys + offset, g.depth, {s.d_scores, 1, key_tile}, s.queries, g.depth, keys,
                 g.depth, rows, true);
    tile_product(s.d_queries, g.depth, {s.d_scores, key_tile, 1}, s.keys + offset, g.depth, rows,
                 g.depth, keys, true);
  }
  unpack_rows(d_queries + first_query * g.row_width, g.row_width, s.d_queries, rows, size, g.depth,
              g.softmax_scale);
}

/// Packs one head's rows tile by tile: as they are to `rows`, and transposed to `transposed`.
template <class T>
void pack_head(const AttentionGeometry& g, const T* from, float* rows, std::int64_t rows_stride,
               float* transposed) {
  for (std::int64_t tile = 0; tile < g.key_tiles; ++tile) {
    const std::int64_t first = tile * key_tile;
    const std::int64_t left = g.shape.sequence - first;
    const std::int64_t count = left < key_tile ? left : key_tile;
    float* packed = rows + first * rows_stride;
    pack_rows(packed, from + first * g.row_width, g.row_width, count, g.shape.head_size, g.depth,
              1.0F);
    if (transposed != nullptr) {
      transpose_tile(transposed + first * g.depth, packed, count, g.depth);
    }
  }
}

/// body(batch, kv_head, scratch of this thread) for every key head of every sequence.
template <class Pieces, class Body>
void for_key_heads(const AttentionGeometry& g, void* workspace, Body body) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(workspace);
  float* base = reinterpret_cast<float*>((address + 63) / 64 * 64);
  const std::int64_t floats = Pieces(g, Scratch(nullptr)).floats;
  const std::int64_t items = g.shape.batch * g.shape.kv_heads;
  const std::int64_t elements = items * g.shape.sequence * g.depth * g.group;
#pragma omp parallel num_threads(threads_for(elements))
  {
    const Pieces pieces(g, Scratch(base + omp_get_thread_num() * floats));
#pragma omp for schedule(static)
    for (std::int64_t item = 0; item < items; ++item) {
      body(item / g.shape.kv_heads, item % g.shape.kv_heads, pieces);
    }
  }
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionShape& shape) {
  const AttentionGeometry g(shape);
  const std::int64_t forward = ForwardScratch(g, Scratch(nullptr)).floats;
  const std::int64_t backward = BackwardScratch(g, Scratch(nullptr)).floats;
  const std::int64_t floats = (forward > backward ? forward : backward) * cpu_threads();
  return sizeof(float) * static_cast<std::size_t>(floats) + 64;
}

void attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
                       void* workspace) {
  const AttentionGeometry g(shape);
  with_type(shape.type, [&](auto tag) {
    using T = decltype(tag);
    for_key_heads<ForwardScratch>(
        g, workspace, [&](std::int64_t batch, std::int64_t kv_head, const ForwardScratch& s) {
          const T* rows = static_cast<const T*>(qkv) + g.first_row(batch) * g.row_width;
          pack_head(g, rows + g.key_column(kv_head), s.rows, 0, s.keys_transposed);
          pack_head(g, rows + g.value_column(kv_head), s.values, g.depth, nullptr);
          for (std::int64_t i = 0; i < g.group; ++i) {
            const std::int64_t head = kv_head * g.group + i;
            const std::int64_t column = head * shape.head_size;
            for (std::int64_t query = 0; query < shape.sequence; query += query_tile) {
              forward_tile(g, s, static_cast<T*>(out) + g.first_row(batch) * g.out_width + column,
                           log_sum_exp + (batch * shape.heads + head) * shape.sequence,
                           rows + column, query);
            }
          }
        });
  });
}

void attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                        const void* qkv, const void* out, const float* log_sum_exp,
                        void* workspace) {
  const AttentionGeometry g(shape);
  with_type(shape.type, [&](auto tag) {
    using T = decltype(tag);
    for_key_heads<BackwardScratch>(
        g, workspace, [&](std::int64_t batch, std::int64_t kv_head, const BackwardScratch& s) {
          const T* rows = static_cast<const T*>(qkv) + g.first_row(batch) * g.row_width;
          T* d_rows = static_cast<T*>(d_qkv) + g.first_row(batch) * g.row_width;
          const std::int64_t out_offset = g.first_row(batch) * g.out_width;
          pack_head(g, rows + g.key_column(kv_head), s.keys, g.depth, s.keys_transposed);
          pack_head(g, rows + g.value_column(kv_head), s.rows, 0, s.values_transposed);
          const std::size_t bytes =
              sizeof(float) * static_cast<std::size_t>(g.key_tiles * key_tile * g.depth);
          __builtin_memset(s.d_keys, 0, bytes);
          __builtin_memset(s.d_values, 0, bytes);
          for (std::int64_t i = 0; i < g.group; ++i) {
            const std::int64_t head = kv_head * g.group + i;
            const std::int64_t column = head * shape.head_size;
            for (std::int64_t query = 0; query < shape.sequence; query += query_tile) {
              backward_tile(g, s, d_rows + column,
                            static_cast<const T*>(d_out) + out_offset + column, rows + column,
                            static_cast<const T*>(out) + out_offset + column,
                            log_sum_exp + (batch * shape.heads + head) * shape.sequence, query);
            }
          }
          unpack_rows(d_rows + g.key_column(kv_head), g.row_width, s.d_keys, shape.sequence,
                      shape.head_size, g.depth, 1.0F);
          unpack_rows(d_rows + g.value_column(kv_head), g.row_width, s.d_values, shape.sequence,
                      shape.head_size, g.depth, 1.0F);
        });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
