// Gradients of biases: sums over rows.
#include "common/functions.hpp"
#include "isa/column_sums.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct BiasTerm {
  static constexpr int kinds = 1;
  static constexpr int rows_together = 4;
  Input d_out;
  std::int64_t stride;

  DSTUNE_DEVICE DType type() const { return d_out.type; }
  DSTUNE_DEVICE void assume(DType all) { d_out.type = all; }

  template <int N>
  DSTUNE_DEVICE void add(std::int64_t row, std::int64_t column, Values<N>* sums) const {
    const Values<N> d = d_out.load<N>(row * stride + column);
    for (int k = 0; k < N; ++k) sums[0].of[k] += d.of[k];
  }
};

}  // namespace

void bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                   std::int64_t width, std::int64_t stride, bool accumulate, void* workspace) {
  const BiasTerm term{{d_out, type}, stride};
  sum_columns(term, rows, width, stride, {{d_bias, type}}, accumulate, workspace, term.d_out);
}

}  // namespace dstune::kernels::DSTUNE_ISA
