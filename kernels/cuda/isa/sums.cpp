// Sums in double: as many partial sums as the count alone decides, then these in order.

#include "backend_parts.hpp"
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/column_sums.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// A thread adds up packs, by N elements at a time: equally for every N.
template <int N, bool squared>
struct PartialSums {
  static constexpr int min_blocks = squared ? 0 : 4;
  Input x;
  std::int64_t count;
  double* partial;

  DSTUNE_DEVICE DType type() const { return x.type; }
  DSTUNE_DEVICE void assume(DType all) { x.type = all; }

  DSTUNE_DEVICE void operator()(const Block& block) const {
    double sum = 0.0;
    with_known_types(*this, [&](const PartialSums& known) { sum = known.of_thread(block); });
    sum = block_sum(block, sum);
    if (block.thread() == 0) partial[block.index()] = sum;
  }

 private:
  DSTUNE_DEVICE double of_thread(const Block& block) const {
    const std::int64_t first = block.index() * block.threads() + block.thread();
    const std::int64_t stride = block.blocks() * block.threads();
    const std::int64_t packs = count / pack;
    double sum = 0.0;
    const auto add = [&](float value) {
      const double wide = value;
      sum += squared ? wide * wide : wide;
    };
    const auto add_pack = [&](std::int64_t i) {
      for (int from = 0; from < pack; from += N) {
        const Values<N> values = x.load<N>(i * pack + from);
        for (int k = 0; k < N; ++k) add(values.of[k]);
      }
    };
    // Two without a branch between them, so that both are asked for at once.
    std::int64_t i = first;
    for (; i + stride < packs; i += 2 * stride) {
      add_pack(i);
      add_pack(i + stride);
    }
    if (i < packs) add_pack(i);
    for (std::int64_t rest = packs * pack + first; rest < count; rest += stride) add(x[rest]);
    return sum;
  }
};

struct SumOfPartialSums {
  const double* partial;
  std::int64_t count;
  double* total;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    double sum = 0.0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads()) sum += partial[i];
    sum = block_sum(block, sum);
    if (block.thread() == 0) *total += sum;
  }
};

struct FindClipFactor {
  ClipFactor clip;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    if (block.thread() == 0) clip.find();
  }
};

template <bool squared>
void add_sum(Input x, std::int64_t count, double* sum) {
  if (count <= 0) return;
  constexpr std::int64_t elements_per_block = 4096;
  const std::int64_t blocks = smaller_of(divide_up(count, elements_per_block), max_partial_sums);
  const cuda::Grid grid{.blocks = blocks, .shared_bytes = reduction_bytes};
  with_packs(are_packed(x.data), [&](auto n) {
    launch(grid, PartialSums<n, squared>{x, count, sum + 1});
  });
  launch({.shared_bytes = reduction_bytes}, SumOfPartialSums{sum + 1, blocks, sum});
}

// Gradients of biases: sums over rows.

struct BiasTerm {
  static constexpr int min_blocks = 4;
  static constexpr int kinds = 1;
  static constexpr int rows_together = 4;
  Input d_out;
  std::int64_t stride;

  DSTUNE_DEVICE DType type() const { return d_out.type; }
  DSTUNE_DEVICE void assume(DType all) { d_out.type = all; }

  template <int N>
  DSTUNE_DEVICE void add(std::int64_t row, std::int64_t column, Values<N>* sums) const {
    sums[0] += d_out.load<N>(row * stride + column);
  }
};

}  // namespace

void sum_of_squares(DType type, const void* x, std::int64_t count, double* sum) {
  add_sum<true>({x, type}, count, sum);
}

void sum_f32(const float* x, std::int64_t count, double* sum) {
  add_sum<false>({x, DType::f32}, count, sum);
}

void clip_factor(const double* squares, std::int64_t count, double clip, double loss_scale,
                 double* norm, float* factor) {
  launch({.threads = warp_size}, FindClipFactor{{squares, count, clip, loss_scale, norm, factor}});
}

void bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                   std::int64_t width, std::int64_t stride, bool accumulate, void* workspace) {
  sum_columns(BiasTerm{{d_out, type}, stride}, rows, width, {{d_bias, type}}, accumulate, workspace,
              are_rows_packed(width, stride, d_out));
}

}  // namespace dstune::kernels::DSTUNE_ISA
