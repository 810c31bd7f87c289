#pragma once
/// The common part of the processor's tables, for any instruction set: plain functions, safe to
/// call from code of each.

#include <cstddef>
#include <cstdint>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {

/// Rows may begin anywhere, and sums are done when a call returns.
constexpr std::int64_t row_alignment_bytes = 1;
constexpr std::int64_t sum_doubles = 1;
constexpr const char* fp32_attention_note = "";

/// Matrix products through oneDNN.
std::size_t matmul_workspace_bytes(const MatmulShape& shape);
void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace);

/// The threads that pay off for work of about so many elements: 1 … cpu_threads().
int threads_for(std::int64_t elements);

}  // namespace dstune::kernels
