#pragma once
/// What the table of the CUDA kernels has beside the functions of all backends: matrix products by
/// kernels of our own.

#include <cstddef>
#include <cstdint>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::DSTUNE_ISA {

constexpr std::int64_t row_alignment_bytes = 128;
/// Of sum_of_squares() and sum_f32(), in the doubles behind their result.
constexpr std::int64_t max_partial_sums = 1024;
constexpr std::int64_t sum_doubles = 1 + max_partial_sums;

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace);
std::size_t matmul_workspace_bytes(const MatmulShape& shape);

/// c[m, n] += bias[n], where a product could not do it itself.
void add_bias(const MatmulShape& shape, const void* bias, void* c);

}  // namespace dstune::kernels::DSTUNE_ISA
