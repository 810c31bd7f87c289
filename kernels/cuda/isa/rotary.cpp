// Rotary position embedding, angles in double: a block a position, which keeps its cosines and
// sines in shared memory and turns it in all samples.
#include "common/functions.hpp"
#include "common/rotation.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct Rotation {
  Output qkv;
  const double* frequencies;
  std::int64_t batch, sequence, head_size, half;
  std::int64_t heads;      ///< of q and k together
  std::int64_t row_width;  ///< of q, k and v
  float magnitude;
  bool inverse;

  DSTUNE_DEVICE DType type() const { return qkv.type; }
  DSTUNE_DEVICE void assume(DType all) { qkv.type = all; }

  /// Cosines, then sines, of the block's position, which is its number.
  DSTUNE_DEVICE void find_angles(const Block& block) const {
    const Shared<float> cosines = block.shared<float>();
    const Shared<float> sines = block.shared<float>(half * std::int64_t{sizeof(float)});
    for (std::int64_t i = block.thread(); i < half; i += block.threads()) {
      const double angle = static_cast<double>(block.index()) * frequencies[i];
      cosines[i] = magnitude * static_cast<float>(::cos(angle));
      sines[i] = magnitude * static_cast<float>(inverse ? -::sin(angle) : ::sin(angle));
    }
    block.sync();
  }

  /// The position in all samples.
  template <int N>
  DSTUNE_DEVICE void turn(const Block& block) const {
    const Shared<float> cosines = block.shared<float>();
    const Shared<float> sines = block.shared<float>(half * std::int64_t{sizeof(float)});
    const int packs_of_head = static_cast<int>(half) / N;
    const int packs = static_cast<int>(heads) * packs_of_head;
    for (int item = block.thread(); item < static_cast<int>(batch) * packs;
         item += block.threads()) {
      const std::int64_t row = item / packs * sequence + block.index();
      const int of_row = item % packs;
      const int i = of_row % packs_of_head * N;
      const std::int64_t at = row * row_width + of_row / packs_of_head * head_size + i;
      Values<N> low = qkv.load<N>(at);
      Values<N> high = qkv.load<N>(at + half);
      for (int k = 0; k < N; ++k) {
        const Pair pair = turned({low.of[k], high.of[k]}, cosines[i + k], sines[i + k]);
        low.of[k] = pair.low;
        high.of[k] = pair.high;
      }
      qkv.store(at, low);
      qkv.store(at + half, high);
    }
  }
};

template <int N>
struct RotationBy {
  Rotation body;
  DSTUNE_DEVICE void operator()(const Block& block) const {
    body.find_angles(block);
    with_known_types(body, [&](const Rotation& known) { known.turn<N>(block); });
  }
};

}  // namespace

void rotary(const AttentionShape& shape, std::int64_t rotary_size, void* qkv,
            const double* frequencies, float magnitude, bool inverse) {
  const std::int64_t half = rotary_size / 2;
  if (shape.batch <= 0 || shape.sequence <= 0 || half <= 0) return;
  const Rotation body{{qkv, shape.type},
                      frequencies,
                      shape.batch,
                      shape.sequence,
                      shape.head_size,
                      half,
                      shape.heads + shape.kv_heads,
                      (shape.heads + 2 * shape.kv_heads) * shape.head_size,
                      magnitude,
                      inverse};
  const cuda::Grid grid{.blocks = shape.sequence,
                        .shared_bytes = 2 * sizeof(float) * static_cast<std::size_t>(half)};
  if (half % pack == 0 && shape.head_size % pack == 0 && is_packed(qkv)) {
    launch(grid, RotationBy<pack>{body});
  } else {
    launch(grid, RotationBy<1>{body});
  }
}

}  // namespace dstune::kernels::DSTUNE_ISA
