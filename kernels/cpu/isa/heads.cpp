// RMSNorm of each head of q and k, in place in the packed qkv.

#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/column_sums.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class T>
float forward_head(T* head, T* raw, const T* weight, float offset, std::int64_t size,
                   float epsilon) {
  Vector squares{};
  for_vectors(0, size, [&](std::int64_t i, auto extent) {
    const Vector x = load(head + i, extent);
    store(raw + i, x, extent);
    squares = multiply_add(x, x, squares);
  });
  const float rstd =
      1.0F / __builtin_sqrtf(sum_of_lanes(squares) / static_cast<float>(size) + epsilon);
  for_vectors(0, size, [&](std::int64_t i, auto extent) {
    store(head + i, load(head + i, extent) * rstd * (load(weight + i, extent) + offset), extent);
  });
  return rstd;
}

/// d_x = rstd·(g − unit·mean(g·unit)) with g = d_out·weight.
template <class T>
void backward_head(T* d_head, float* d_weight, const T* raw, float rstd, const T* weight,
                   float offset, std::int64_t size) {
  Vector product_sum{};
  for_vectors(0, size, [&](std::int64_t i, auto extent) {
    const Vector d = load(d_head + i, extent);
    const Vector unit = load(raw + i, extent) * rstd;
    product_sum = multiply_add(d * (load(weight + i, extent) + offset), unit, product_sum);
    store(d_weight + i, multiply_add(d, unit, load(d_weight + i, extent)), extent);
  });
  const float mean = sum_of_lanes(product_sum) / static_cast<float>(size);
  for_vectors(0, size, [&](std::int64_t i, auto extent) {
    const Vector unit = load(raw + i, extent) * rstd;
    const Vector g = load(d_head + i, extent) * (load(weight + i, extent) + offset);
    store(d_head + i, multiply_add(unit, splat(-mean), g) * rstd, extent);
  });
}

void forward_part(const Heads& heads, DType type, void* qkv, void* raw, float* rstd,
                  const void* weight, float offset, float epsilon) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_items(heads.rows, heads.of_row * heads.size, [&](std::int64_t row) {
      for (std::int64_t head = 0; head < heads.of_row; ++head) {
        const std::int64_t number = row * heads.of_row + head;
        rstd[heads.rstd_at(number)] = forward_head(
            static_cast<T*>(qkv) + heads.begin(number), static_cast<T*>(raw) + heads.raw_at(number),
            static_cast<const T*>(weight), offset, heads.size, epsilon);
      }
    });
  });
}

void backward_part(const Heads& heads, DType type, void* d_qkv, void* d_weight, const void* raw,
                   const float* rstd, const void* weight, float offset, bool accumulate,
                   void* workspace) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const ColumnSums sums(heads.rows, heads.size, 1, workspace);
    sums.add_rows(heads.of_row * heads.size, [&](std::int64_t row, float* of_row) {
      for (std::int64_t head = 0; head < heads.of_row; ++head) {
        const std::int64_t number = row * heads.of_row + head;
        backward_head(static_cast<T*>(d_qkv) + heads.begin(number), of_row,
                      static_cast<const T*>(raw) + heads.raw_at(number),
                      rstd[heads.rstd_at(number)], static_cast<const T*>(weight), offset,
                      heads.size);
      }
    });
    sums.combine(static_cast<T*>(d_weight), 0, accumulate);
  });
}

// Rotary position embedding, angles in double.

/// Pairs whose cosines and sines are kept at a time.
constexpr std::int64_t chunk = 64;

template <class T>
void rotate(T* head, const float* cosines, const float* sines, std::int64_t first,
            std::int64_t count, std::int64_t half) {
  for_vectors(0, count, [&](std::int64_t i, auto extent) {
    T* low = head + first + i;
    T* high = low + half;
    const Pair pair = turned({load(low, extent), load(high, extent)}, load(cosines + i, extent),
                             load(sines + i, extent));
    store(low, pair.low, extent);
    store(high, pair.high, extent);
  });
}

}  // namespace

void head_norm_forward(const AttentionShape& shape, bool spans_heads, void* qkv, void* raw,
                       float* rstd, const void* q_weight, const void* k_weight, float offset,
                       float epsilon) {
  forward_part({shape, spans_heads, true}, shape.type, qkv, raw, rstd, q_weight, offset, epsilon);
  forward_part({shape, spans_heads, false}, shape.type, qkv, raw, rstd, k_weight, offset, epsilon);
}

void head_norm_backward(const AttentionShape& shape, bool spans_heads, void* d_qkv,
                        void* d_q_weight, void* d_k_weight, const void* raw, const float* rstd,
                        const void* q_weight, const void* k_weight, float offset,
                        bool accumulate_weights, void* workspace) {
  backward_part({shape, spans_heads, true}, shape.type, d_qkv, d_q_weight, raw, rstd, q_weight,
                offset, accumulate_weights, workspace);
  backward_part({shape, spans_heads, false}, shape.type, d_qkv, d_k_weight, raw, rstd, k_weight,
                offset, accumulate_weights, workspace);
}

void rotary(const AttentionShape& shape, std::int64_t rotary_size, void* qkv,
            const double* frequencies, float magnitude, bool inverse) {
  const std::int64_t half = rotary_size / 2;
  const std::int64_t rotated_heads = shape.heads + shape.kv_heads;
  const std::int64_t row_width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  with_type(shape.type, [&](auto tag) {
    using T = decltype(tag);
    for_items(shape.sequence, shape.batch * row_width, [&](std::int64_t position) {
      for (std::int64_t first = 0; first < half; first += chunk) {
        const std::int64_t count = half - first < chunk ? half - first : chunk;
        float cosines[chunk];
        float sines[chunk];
        for (std::int64_t i = 0; i < count; ++i) {
          const double angle = static_cast<double>(position) * frequencies[first + i];
          cosines[i] = magnitude * static_cast<float>(__builtin_cos(angle));
          sines[i] = magnitude *
                     static_cast<float>(inverse ? -__builtin_sin(angle) : __builtin_sin(angle));
        }
        for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
          T* row = static_cast<T*>(qkv) + (batch * shape.sequence + position) * row_width;
          for (std::int64_t head = 0; head < rotated_heads; ++head) {
            rotate(row + head * shape.head_size, cosines, sines, first, count, half);
          }
        }
      }
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
