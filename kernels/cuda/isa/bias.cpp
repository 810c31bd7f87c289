// A bias that a library's product could not add itself.
#include "backend_parts.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct BiasAddition {
  Output c;
  Input bias;
  std::int64_t width, stride;

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    for_row<N>(block, width, [&](std::int64_t i) {
      Values<N> values = c.load<N>(row * stride + i);
      values += bias.load<N>(i);
      c.store(row * stride + i, values);
    });
  }
};

}  // namespace

void add_bias(const MatmulShape& shape, const void* bias, void* c) {
  const BiasAddition body{{c, shape.out_type}, {bias, shape.type}, shape.n, shape.row_of_c()};
  for_rows(shape.m, shape.n, body, are_rows_packed(shape.n, shape.row_of_c(), c, bias));
}

}  // namespace dstune::kernels::DSTUNE_ISA
