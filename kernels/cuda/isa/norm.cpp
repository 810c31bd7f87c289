// LayerNorm and RMSNorm: one text, `Centred` says whether the mean is taken out.
#include "common/functions.hpp"
#include "isa/column_sums.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// A thread's share of a row: its first packs in registers, so that rows of up to 4096 elements are
/// read once; the others are read again.
template <int N>
class RowPart {
 public:
  DSTUNE_DEVICE RowPart(const Block& block, Input from, std::int64_t begin, std::int64_t width)
      : from_(from), begin_(begin), width_(width) {
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const std::int64_t i = place(block, j);
      if (i < width_) first_[j] = from_.load<N>(begin_ + i);
    }
  }

  /// step(i, values) for each pack.
  template <class Step>
  DSTUNE_DEVICE void for_each(const Block& block, Step step) const {
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const std::int64_t i = place(block, j);
      if (i < width_) step(i, first_[j]);
    }
    for (std::int64_t i = place(block, kept); i < width_; i += std::int64_t{N} * block.threads())
      step(i, from_.load<N>(begin_ + i));
  }
  /// Likewise of two parts of equal rows: step(i, values, others).
  template <class Step>
  DSTUNE_DEVICE void for_each_with(const Block& block, const RowPart& other, Step step) const {
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const std::int64_t i = place(block, j);
      if (i < width_) step(i, first_[j], other.first_[j]);
    }
    for (std::int64_t i = place(block, kept); i < width_; i += std::int64_t{N} * block.threads())
      step(i, from_.load<N>(begin_ + i), other.from_.load<N>(other.begin_ + i));
  }

 private:
  static constexpr int kept = 2;
  static DSTUNE_DEVICE std::int64_t place(const Block& block, int j) {
    return std::int64_t{N} * (block.thread() + j * block.threads());
  }

  Values<N> first_[kept] = {};
  Input from_;
  std::int64_t begin_, width_;
};

template <bool Centred>
struct NormForward {
  Output out, residual_out;
  float* mean;
  float* rstd;
  Input residual, x;
  Input weight, bias;
  std::int64_t width;
  float epsilon;

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * width;
    if (x.data != nullptr) {
      for_row<N>(block, width, [&](std::int64_t i) {
        Values<N> sum = residual.load<N>(begin + i);
        const Values<N> term = x.load<N>(begin + i);
        for (int k = 0; k < N; ++k) sum.of[k] += term.of[k];
        residual_out.store(begin + i, sum);
      });
    }
    // Every thread reads back what it stored, so that the backward pass sees the statistics of its
    // own input.
    const RowPart<N> part(block, {residual_out.data, residual_out.type}, begin, width);
    const float count = static_cast<float>(width);
    float centre = 0.0F;
    if (Centred) {
      float sum = 0.0F;
      part.for_each(block, [&](std::int64_t, const Values<N>& values) {
        for (int k = 0; k < N; ++k) sum += values.of[k];
      });
      centre = block_sum(block, sum) / count;
    }
    float squares = 0.0F;
    part.for_each(block, [&](std::int64_t, const Values<N>& values) {
      for (int k = 0; k < N; ++k) {
        const float apart = values.of[k] - centre;
        squares = multiply_add(apart, apart, squares);
      }
    });
    const float spread = 1.0F / square_root(block_sum(block, squares) / count + epsilon);
    part.for_each(block, [&](std::int64_t i, Values<N> values) {
      const Values<N> factor = weight.load<N>(i);
      Values<N> shift{};
      if (Centred) shift = bias.load<N>(i);
      for (int k = 0; k < N; ++k)
        values.of[k] = multiply_add((values.of[k] - centre) * spread, factor.of[k], shift.of[k]);
      out.store(begin + i, values);
    });
    if (block.thread() != 0) return;
    rstd[row] = spread;
    if (Centred) mean[row] = centre;
  }
};

/// d_x = rstd·(g − mean(g) − unit·mean(g·unit)) with g = d_out·weight; mean(g) only where Centred.
template <bool Centred>
struct NormBackward {
  Output d_x;
  Input d_out, input;
  const float* mean;
  const float* rstd;
  Input weight;
  std::int64_t width;
  bool accumulate;

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * width;
    const float centre = Centred ? mean[row] : 0.0F;
    const float spread = rstd[row];
    const RowPart<N> gradient(block, d_out, begin, width);
    const RowPart<N> part(block, input, begin, width);
    float sum = 0.0F;
    float product_sum = 0.0F;
    const auto add_up = [&](std::int64_t i, const Values<N>& d, const Values<N>& values) {
      const Values<N> factor = weight.load<N>(i);
      for (int k = 0; k < N; ++k) {
        const float g = d.of[k] * factor.of[k];
        sum += g;
        product_sum = multiply_add(g, (values.of[k] - centre) * spread, product_sum);
      }
    };
    gradient.for_each_with(block, part, add_up);
    const float count = static_cast<float>(width);
    const float g_mean = Centred ? block_sum(block, sum) / count : 0.0F;
    const float product_mean = block_sum(block, product_sum) / count;
    const auto finish = [&](std::int64_t i, const Values<N>& d, const Values<N>& values) {
      const Values<N> factor = weight.load<N>(i);
      Values<N> result{};
      if (accumulate) result = d_x.load<N>(begin + i);
      for (int k = 0; k < N; ++k) {
        const float unit = (values.of[k] - centre) * spread;
        const float apart = multiply_add(unit, -product_mean, d.of[k] * factor.of[k] - g_mean);
        result.of[k] = multiply_add(spread, apart, result.of[k]);
      }
      d_x.store(begin + i, result);
    };
    gradient.for_each_with(block, part, finish);
  }
};

template <bool Centred>
struct NormWeightTerm {
  static constexpr int kinds = Centred ? 2 : 1;
  Input d_out, input;
  const float* mean;
  const float* rstd;
  std::int64_t width;

  template <int N>
  DSTUNE_DEVICE void add(std::int64_t row, std::int64_t column, Values<N>* sums) const {
    const Values<N> d = d_out.load<N>(row * width + column);
    const Values<N> values = input.load<N>(row * width + column);
    const float centre = Centred ? mean[row] : 0.0F;
    const float spread = rstd[row];
    for (int k = 0; k < N; ++k) {
      const float unit = (values.of[k] - centre) * spread;
      sums[0].of[k] = multiply_add(d.of[k], unit, sums[0].of[k]);
      if (Centred) sums[kinds - 1].of[k] += d.of[k];
    }
  }
};

struct BiasTerm {
  static constexpr int kinds = 1;
  Input d_out;
  std::int64_t stride;

  template <int N>
  DSTUNE_DEVICE void add(std::int64_t row, std::int64_t column, Values<N>* sums) const {
    const Values<N> d = d_out.load<N>(row * stride + column);
    for (int k = 0; k < N; ++k) sums[0].of[k] += d.of[k];
  }
};

template <bool Centred>
void forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
             const void* residual, const void* x, const void* weight, const void* bias,
             std::int64_t rows, std::int64_t width, float epsilon) {
  const NormForward<Centred> body{
      {out, type}, {residual_out, type}, mean,         rstd,  {residual, type},
      {x, type},   {weight, type},       {bias, type}, width, epsilon};
  for_rows(rows, width, body, body.out, body.residual_out, body.residual, body.x, body.weight,
           body.bias);
}

/// The weights' gradients before d_x, which may take d_out's place.
template <bool Centred>
void backward(DType type, void* d_x, const Output (&d_weights)[Centred ? 2 : 1], const void* d_out,
              const void* input, const float* mean, const float* rstd, const void* weight,
              std::int64_t rows, std::int64_t width, bool accumulate_input, bool accumulate_weights,
              void* workspace) {
  const NormWeightTerm<Centred> term{{d_out, type}, {input, type}, mean, rstd, width};
  sum_columns(term, rows, width, width, d_weights, accumulate_weights, workspace, term.d_out,
              term.input);
  const NormBackward<Centred> body{{d_x, type}, {d_out, type},  {input, type}, mean,
                                   rstd,        {weight, type}, width,         accumulate_input};
  for_rows(rows, width, body, body.d_x, body.d_out, body.input, body.weight);
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

void layernorm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                        const void* input, const float* mean, const float* rstd, const void* weight,
                        std::int64_t rows, std::int64_t width, bool accumulate_input,
                        bool accumulate_weights, void* workspace) {
  backward<true>(type, d_x, {{d_weight, type}, {d_bias, type}}, d_out, input, mean, rstd, weight,
                 rows, width, accumulate_input, accumulate_weights, workspace);
}

void rmsnorm_backward(DType type, void* d_x, void* d_weight, const void* d_out, const void* input,
                      const float* rstd, const void* weight, std::int64_t rows, std::int64_t width,
                      bool accumulate_input, bool accumulate_weights, void* workspace) {
  backward<false>(type, d_x, {{d_weight, type}}, d_out, input, nullptr, rstd, weight, rows, width,
                  accumulate_input, accumulate_weights, workspace);
}

std::size_t norm_workspace_bytes(std::int64_t width) {
  return column_sum_bytes(width);
}

void bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                   std::int64_t width, std::int64_t stride, bool accumulate, void* workspace) {
  const BiasTerm term{{d_out, type}, stride};
  sum_columns(term, rows, width, stride, {{d_bias, type}}, accumulate, workspace, term.d_out);
}

}  // namespace dstune::kernels::DSTUNE_ISA
