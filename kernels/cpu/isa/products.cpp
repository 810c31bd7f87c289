// Matrix products with what comes after them.
#include "backend_parts.hpp"
#include "common/functions.hpp"

namespace dstune::kernels::DSTUNE_ISA {

void matmul_activation_forward(const MatmulShape& shape, Activation activation, const void* a,
                               const void* b, const void* bias, void* c, void* activated,
                               void* workspace) {
  matmul(shape, a, b, bias, c, workspace);
  activation_forward(shape.out_type, activation, activated, c, shape.m * shape.n);
}

void matmul_activation_backward(const MatmulShape& shape, Activation activation, const void* a,
                                const void* b, const void* x, void* c, void* workspace) {
  matmul(shape, a, b, nullptr, c, workspace);
  activation_backward(shape.out_type, activation, c, c, x, shape.m * shape.n);
}

void matmul_bias_backward(const MatmulShape& shape, const void* a, const void* b, void* c,
                          void* d_bias, void* workspace) {
  matmul(shape, a, b, nullptr, c, workspace);
  bias_backward(shape.type, d_bias, a, shape.k, shape.m, shape.row_of_a(), shape.accumulate,
                workspace);
}

}  // namespace dstune::kernels::DSTUNE_ISA
