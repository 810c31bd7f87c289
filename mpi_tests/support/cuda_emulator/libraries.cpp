// The processor in the place of cuBLASLt and cuDNN.
#include "backend_parts.hpp"
#include "common/functions.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

const Table& processor() {
  return *cpu_table("portable");
}

}  // namespace

std::size_t matmul_workspace_bytes(const MatmulShape& shape) {
  return processor().matmul_workspace_bytes(shape);
}

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* workspace) {
  processor().matmul(shape, a, b, bias, c, workspace);
}

std::size_t attention_workspace_bytes(const AttentionShape& shape) {
  return has_own_attention(shape) ? own_attention_workspace_bytes(shape)
                                  : processor().attention_workspace_bytes(shape);
}

void attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
                       void* workspace) {
  (has_own_attention(shape) ? own_attention_forward : processor().attention_forward)(
      shape, out, log_sum_exp, qkv, workspace);
}

void attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                        const void* qkv, const void* out, const float* log_sum_exp,
                        void* workspace) {
  (has_own_attention(shape) ? own_attention_backward : processor().attention_backward)(
      shape, d_qkv, d_out, qkv, out, log_sum_exp, workspace);
}

}  // namespace dstune::kernels::DSTUNE_ISA
