// Rotary position embedding, angles in double.
#include "common/functions.hpp"
#include "common/rotation.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

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
