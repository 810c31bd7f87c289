#pragma once
/// The part of the CUDA kernels' table that it has beside the functions of all backends. Libraries
/// do its matrix products, and attention in 16 bits.

#include <cstddef>
#include <cstdint>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::DSTUNE_ISA {

constexpr std::int64_t row_alignment_bytes = 128;
/// The number of partial sums of sum_of_squares() and sum_f32(), in the doubles behind their
/// result.
constexpr std::int64_t max_partial_sums = 1024;
constexpr std::int64_t sum_doubles = 1 + max_partial_sums;
constexpr const char* fp32_attention_note =
    "attention in fp32 is done by kernels of dstune-mpi, since cuDNN has none";

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace);
std::size_t matmul_workspace_bytes(const MatmulShape& shape);

/// c[m, n] += bias[n], where a product could not do it itself.
void add_bias(const MatmulShape& shape, const void* bias, void* c);

/// Attention by kernels of our own: the table's functions for shapes in fp32 and with a cap, which
/// the library's graphs here have not.
inline bool has_own_attention(const AttentionShape& shape) {
  return shape.type == DType::f32 || shape.softcap > 0.0F;
}
std::size_t own_attention_workspace_bytes(const AttentionShape& shape);
void own_attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp,
                           const void* qkv, void* workspace);
void own_attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                            const void* qkv, const void* out, const float* log_sum_exp,
                            void* workspace);

}  // namespace dstune::kernels::DSTUNE_ISA
