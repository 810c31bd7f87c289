// Rotary position embedding, angles in double: a block a position, which keeps its cosines and
// sines in shared memory.
#include "common/functions.hpp"
#include "common/rotation.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct Rotation {
  Output qkv;
  const double* frequencies;
  std::int64_t sequence, head_size, half;
  std::int64_t heads;      ///< of q and k together
  std::int64_t row_width;  ///< of q, k and v
  float magnitude;
  bool inverse;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t position = block.index();
    const Shared<float> cosines = block.shared<float>();
    const Shared<float> sines = block.shared<float>(half * std::int64_t{sizeof(float)});
    for (std::int64_t i = block.thread(); i < half; i += block.threads()) {
      const double angle = static_cast<double>(position) * frequencies[i];
      cosines[i] = magnitude * static_cast<float>(::cos(angle));
      sines[i] = magnitude * static_cast<float>(inverse ? -::sin(angle) : ::sin(angle));
    }
    block.sync();
    const std::int64_t row = block.piece() * sequence + position;
    for (std::int64_t item = block.thread(); item < heads * half; item += block.threads()) {
      const std::int64_t i = item % half;
      const std::int64_t low = row * row_width + item / half * head_size + i;
      const Pair pair = turned({qkv[low], qkv[low + half]}, cosines[i], sines[i]);
      qkv.set(low, pair.low);
      qkv.set(low + half, pair.high);
    }
  }
};

}  // namespace

void rotary(const AttentionShape& shape, std::int64_t rotary_size, void* qkv,
            const double* frequencies, float magnitude, bool inverse) {
  const std::int64_t half = rotary_size / 2;
  if (shape.batch <= 0 || shape.sequence <= 0 || half <= 0) return;
  const Rotation body{{qkv, shape.type},
                      frequencies,
                      shape.sequence,
                      shape.head_size,
                      half,
                      shape.heads + shape.kv_heads,
                      (shape.heads + 2 * shape.kv_heads) * shape.head_size,
                      magnitude,
                      inverse};
  launch({.blocks = shape.sequence,
          .shared_bytes = 2 * sizeof(float) * static_cast<std::size_t>(half),
          .pieces = shape.batch},
         body);
}

}  // namespace dstune::kernels::DSTUNE_ISA
