// RMSNorm of each head of q and k, in place in the packed qkv: a warp a head.

#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/column_sums.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct HeadNormForward {
  Heads heads;
  Output qkv, raw;
  float* rstd;
  Input weight;
  float offset, epsilon;

  DSTUNE_DEVICE DType type() const { return qkv.type; }
  DSTUNE_DEVICE void assume(DType all) { qkv.type = raw.type = weight.type = all; }

  DSTUNE_DEVICE void head(const Block& block, std::int64_t number, int lane) const {
    const std::int64_t begin = heads.begin(number);
    const std::int64_t raw_begin = heads.raw_at(number);
    float squares = 0.0F;
    for (std::int64_t i = lane; i < heads.size; i += warp_size) {
      const float x = qkv[begin + i];
      raw.set(raw_begin + i, x);
      squares = multiply_add(x, x, squares);
    }
    const float count = static_cast<float>(heads.size);
    const float spread = 1.0F / square_root(warp_sum(block, squares) / count + epsilon);
    for (std::int64_t i = lane; i < heads.size; i += warp_size)
      qkv.set(begin + i, qkv[begin + i] * spread * (weight[i] + offset));
    if (lane == 0) rstd[heads.rstd_at(number)] = spread;
  }
};

/// d_x = rstd·(g − unit·mean(g·unit)) with g = d_out·weight.
struct HeadNormBackward {
  Heads heads;
  Output d_qkv;
  Input raw;
  const float* rstd;
  Input weight;
  float offset;

  DSTUNE_DEVICE DType type() const { return d_qkv.type; }
  DSTUNE_DEVICE void assume(DType all) { d_qkv.type = raw.type = weight.type = all; }

  DSTUNE_DEVICE void head(const Block& block, std::int64_t number, int lane) const {
    const std::int64_t begin = heads.begin(number);
    const std::int64_t raw_begin = heads.raw_at(number);
    const float spread = rstd[heads.rstd_at(number)];
    float product_sum = 0.0F;
    for (std::int64_t i = lane; i < heads.size; i += warp_size) {
      const float unit = raw[raw_begin + i] * spread;
      product_sum = multiply_add(d_qkv[begin + i] * (weight[i] + offset), unit, product_sum);
    }
    const float mean = warp_sum(block, product_sum) / static_cast<float>(heads.size);
    for (std::int64_t i = lane; i < heads.size; i += warp_size) {
      const float unit = raw[raw_begin + i] * spread;
      const float g = d_qkv[begin + i] * (weight[i] + offset);
      d_qkv.set(begin + i, multiply_add(unit, -mean, g) * spread);
    }
  }
};

template <class Body>
struct EachHead {
  Body body;
  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t number = block.index() * max_warps + block.thread() / warp_size;
    if (number >= body.heads.rows * body.heads.of_row) return;
    with_known_types(
        body, [&](const Body& known) { known.head(block, number, block.thread() % warp_size); });
  }
};

template <class Body>
void for_heads(const Body& body) {
  const std::int64_t count = body.heads.rows * body.heads.of_row;
  if (count <= 0 || body.heads.size <= 0) return;
  launch({.blocks = divide_up(count, max_warps), .threads = max_warps * warp_size},
         EachHead<Body>{body});
}

struct HeadWeightTerm {
  static constexpr int min_blocks = 4;
  static constexpr int kinds = 1;
  static constexpr int rows_together = 1;  // of many heads each
  Heads heads;
  Input d_qkv, raw;
  const float* rstd;

  DSTUNE_DEVICE DType type() const { return d_qkv.type; }
  DSTUNE_DEVICE void assume(DType all) { d_qkv.type = raw.type = all; }

  template <int N>
  DSTUNE_DEVICE void add(std::int64_t row, std::int64_t column, Values<N>* sums) const {
    for (std::int64_t head = 0; head < heads.of_row; ++head) {
      const std::int64_t number = row * heads.of_row + head;
      const Values<N> x = raw.load<N>(heads.raw_at(number) + column);
      const Values<N> d = d_qkv.load<N>(heads.begin(number) + column);
      const float spread = rstd[heads.rstd_at(number)];
      for (int k = 0; k < N; ++k)
        sums[0].of[k] = multiply_add(d.of[k], x.of[k] * spread, sums[0].of[k]);
    }
  }
};

void backward_part(const Heads& heads, DType type, void* d_qkv, void* d_weight, const void* raw,
                   const float* rstd, const void* weight, float offset, bool accumulate,
                   bool packed, void* workspace) {
  const HeadWeightTerm term{heads, {d_qkv, type}, {raw, type}, rstd};
  sum_columns(term, heads.rows, heads.size, {{d_weight, type}}, accumulate, workspace, packed);
  for_heads(HeadNormBackward{heads, {d_qkv, type}, {raw, type}, rstd, {weight, type}, offset});
}

// Rotary position embedding, angles in double: a block a position, which keeps its cosines and
// sines in shared memory and turns it in all samples.

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

void head_norm_forward(const AttentionShape& shape, bool spans_heads, void* qkv, void* raw,
                       float* rstd, const void* q_weight, const void* k_weight, float offset,
                       float epsilon) {
  const DType type = shape.type;
  for_heads(HeadNormForward{{shape, spans_heads, true},
                            {qkv, type},
                            {raw, type},
                            rstd,
                            {q_weight, type},
                            offset,
                            epsilon});
  for_heads(HeadNormForward{{shape, spans_heads, false},
                            {qkv, type},
                            {raw, type},
                            rstd,
                            {k_weight, type},
                            offset,
                            epsilon});
}

void head_norm_backward(const AttentionShape& shape, bool spans_heads, void* d_qkv,
                        void* d_q_weight, void* d_k_weight, const void* raw, const float* rstd,
                        const void* q_weight, const void* k_weight, float offset,
                        bool accumulate_weights, void* workspace) {
  const bool packed = are_rows_packed(shape.head_size, shape.head_size, d_qkv, raw);
  backward_part({shape, spans_heads, true}, shape.type, d_qkv, d_q_weight, raw, rstd, q_weight,
                offset, accumulate_weights, packed, workspace);
  backward_part({shape, spans_heads, false}, shape.type, d_qkv, d_k_weight, raw, rstd, k_weight,
                offset, accumulate_weights, packed, workspace);
}

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
  with_packs(are_rows_packed(half, shape.head_size, qkv),
             [&](auto n) { launch(grid, RotationBy<n>{body}); });
}

}  // namespace dstune::kernels::DSTUNE_ISA
