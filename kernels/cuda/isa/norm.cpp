// LayerNorm and RMSNorm, forward: one text, `Centred` says whether the mean is taken out.
#include "common/functions.hpp"
#include "isa/row_part.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <bool Centred, int kept>
struct NormForward {
  Output out, residual_out;
  float* mean;
  float* rstd;
  Input residual, x;
  Input weight, bias;
  std::int64_t width;
  float epsilon;

  DSTUNE_DEVICE DType type() const { return out.type; }
  DSTUNE_DEVICE void assume(DType all) {
    out.type = residual_out.type = residual.type = x.type = weight.type = bias.type = all;
  }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * width;
    const RowPart<N, kept> part(block, row, width);
    const typename RowPart<N, kept>::Kept input = sum_of<N>(part, begin);
    const float count = static_cast<float>(width);
    float centre = 0.0F;
    if (Centred) {
      float sum = 0.0F;
      part.for_each(
          [&](int, const Values<N>& values) {
            for (int k = 0; k < N; ++k) sum += values.of[k];
          },
          input);
      centre = block_sum(block, sum) / count;
    }
    float squares = 0.0F;
    part.for_each(
        [&](int, const Values<N>& values) {
          for (int k = 0; k < N; ++k) {
            const float apart = values.of[k] - centre;
            squares = multiply_add(apart, apart, squares);
          }
        },
        input);
    const float spread = 1.0F / square_root(block_sum(block, squares) / count + epsilon);
    part.for_each(
        [&](int i, Values<N> values) {
          const Values<N> factor = weight.load<N>(i);
          Values<N> shift{};
          if (Centred) shift = bias.load<N>(i);
          for (int k = 0; k < N; ++k)
            values.of[k] =
                multiply_add((values.of[k] - centre) * spread, factor.of[k], shift.of[k]);
          out.store(begin + i, values);
        },
        input);
    if (block.thread() != 0) return;
    rstd[row] = spread;
    if (Centred) mean[row] = centre;
  }

 private:
  /// What is normed: residual + x, stored in residual_out and taken as it is there, so that the
  /// backward pass sees the statistics of its own input; or residual_out itself.
  template <int N>
  DSTUNE_DEVICE typename RowPart<N, kept>::Kept sum_of(const RowPart<N, kept>& part,
                                                       std::int64_t begin) const {
    const Input stored{residual_out.data, residual_out.type};
    if (x.data == nullptr) return part.load(stored);
    typename RowPart<N, kept>::Kept sum = part.load(residual);
    const typename RowPart<N, kept>::Kept terms = part.load(x);
    sum.from = stored;
    const auto add = [&](int i, Values<N>& values, const Values<N>& term) {
      for (int k = 0; k < N; ++k) values.of[k] += term.of[k];
      values = residual_out.rounded(values);
      residual_out.store(begin + i, values);
    };
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const int i = part.place(j);
      if (i < width) add(i, sum.of[j], terms.of[j]);
    }
    part.for_others([&](int i) {
      Values<N> values = residual.load<N>(begin + i);
      add(i, values, x.load<N>(begin + i));
    });
    return sum;
  }
};

template <bool Centred>
void forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
             const void* residual, const void* x, const void* weight, const void* bias,
             std::int64_t rows, std::int64_t width, float epsilon) {
  with_kept(width, [&](auto kept) {
    const NormForward<Centred, kept> body{
        {out, type}, {residual_out, type}, mean,         rstd,  {residual, type},
        {x, type},   {weight, type},       {bias, type}, width, epsilon};
    for_rows(rows, width, body, body.out, body.residual_out, body.residual, body.x, body.weight,
             body.bias);
  });
}

}  // namespace

void layernorm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                       const void* residual, const void* x, const void* weight, const void* bias,
                       std::int64_t rows, std::int64_t width, float epsilon) {
  forward<true>(type, out, residual_out, mean, rstd, residual, x, weight, bias, rows, width,
                epsilon);
}

void rmsnorm_forward(DType type, void* out, void* residual_out, float* rstd, const void* residual,
                     const void* x, const void* weight, std::int64_t rows, std::int64_t width,
                     float epsilon) {
  forward<false>(type, out, residual_out, nullptr, rstd, residual, x, weight, nullptr, rows, width,
                 epsilon);
}

}  // namespace dstune::kernels::DSTUNE_ISA
