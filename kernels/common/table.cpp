// A backend's table, and those of its functions that are made of others.
#include "backend_parts.hpp"
#include "common/functions.hpp"

#define DSTUNE_TEXT_OF(name) #name
#define DSTUNE_NAME_TEXT(name) DSTUNE_TEXT_OF(name)

namespace dstune::kernels::DSTUNE_ISA {
namespace {

void layernorm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                       const void* residual, const void* x, const void* weight, const void* bias,
                       std::int64_t rows, std::int64_t width, float epsilon) {
  norm_forward(type, out, residual_out, mean, rstd, residual, x, weight, bias, 0.0F, rows, width,
               epsilon);
}

void layernorm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                        const void* input, const float* mean, const float* rstd, const void* weight,
                        std::int64_t rows, std::int64_t width, bool accumulate_input,
                        bool accumulate_weights, void* workspace) {
  norm_backward(type, d_x, d_weight, d_bias, d_out, input, mean, rstd, weight, 0.0F, rows, width,
                accumulate_input, accumulate_weights, workspace);
}

void rmsnorm_forward(DType type, void* out, void* residual_out, float* rstd, const void* residual,
                     const void* x, const void* weight, float offset, std::int64_t rows,
                     std::int64_t width, float epsilon) {
  norm_forward(type, out, residual_out, nullptr, rstd, residual, x, weight, nullptr, offset, rows,
               width, epsilon);
}

void rmsnorm_backward(DType type, void* d_x, void* d_weight, const void* d_out, const void* input,
                      const float* rstd, const void* weight, float offset, std::int64_t rows,
                      std::int64_t width, bool accumulate_input, bool accumulate_weights,
                      void* workspace) {
  norm_backward(type, d_x, d_weight, nullptr, d_out, input, nullptr, rstd, weight, offset, rows,
                width, accumulate_input, accumulate_weights, workspace);
}

}  // namespace

extern const Table table;
constinit const Table table = [] {
  Table entries{};
  entries.name = DSTUNE_NAME_TEXT(DSTUNE_ISA);
  entries.row_alignment_bytes = row_alignment_bytes;
  entries.fp32_attention_note = fp32_attention_note;
  entries.matmul_workspace_bytes = matmul_workspace_bytes;
  entries.matmul = matmul;
  entries.layernorm_forward = layernorm_forward;
  entries.layernorm_backward = layernorm_backward;
  entries.rmsnorm_forward = rmsnorm_forward;
  entries.rmsnorm_backward = rmsnorm_backward;
  entries.sum_doubles = sum_doubles;
#define DSTUNE_ENTER(name) entries.name = name;
  DSTUNE_FUNCTIONS(DSTUNE_ENTER)
#undef DSTUNE_ENTER
  return entries;
}();

}  // namespace dstune::kernels::DSTUNE_ISA
