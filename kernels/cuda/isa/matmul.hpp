#pragma once
/// Matrix products by kernels of our own; kernels.hpp has their contract.

#include <cstddef>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::DSTUNE_ISA {

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace);
std::size_t matmul_workspace_bytes(const MatmulShape& shape);

/// c[m, n] += bias[n], where a product could not do it itself.
void add_bias(const MatmulShape& shape, const void* bias, void* c);

}  // namespace dstune::kernels::DSTUNE_ISA
