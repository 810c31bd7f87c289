// A backend's table, and those of its functions that are made of others.
#include "backend_parts.hpp"
#include "common/functions.hpp"

#define DSTUNE_TEXT_OF(name) #name
#define DSTUNE_NAME_TEXT(name) DSTUNE_TEXT_OF(name)

namespace dstune::kernels::DSTUNE_ISA {
namespace {

void rmsnorm_forward(DType type, void* out, void* residual_out, float* rstd, const void* residual,
                     const void* x, const void* weight, std::int64_t rows, std::int64_t width,
                     float epsilon) {
  norm_forward(type, out, residual_out, nullptr, rstd, residual, x, weight, nullptr, rows, width,
               epsilon);
}

void rmsnorm_backward(DType type, void* d_x, void* d_weight, const void* d_out, const void* input,
                      const float* rstd, const void* weight, std::int64_t rows, std::int64_t width,
                      bool accumulate_input, bool accumulate_weights, void* workspace) {
  norm_backward(type, d_x, d_weight, nullptr, d_out, input, nullptr, rstd, weight, rows, width,
                accumulate_input, accumulate_weights, workspace);
}

}  // namespace

extern const Table table;
const Table table = {
    .name = DSTUNE_NAME_TEXT(DSTUNE_ISA),
    .row_alignment_bytes = row_alignment_bytes,
    .fp32_attention_note = fp32_attention_note,
    .matmul_workspace_bytes = matmul_workspace_bytes,
    .matmul = matmul,
    .matmul_activation_forward = matmul_activation_forward,
    .matmul_activation_backward = matmul_activation_backward,
    .matmul_bias_backward = matmul_bias_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .layernorm_forward = norm_forward,
    .layernorm_backward = norm_backward,
    .rmsnorm_forward = rmsnorm_forward,
    .rmsnorm_backward = rmsnorm_backward,
    .norm_workspace_bytes = norm_workspace_bytes,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .rotary = rotary,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .attention_workspace_bytes = attention_workspace_bytes,
    .activation_forward = activation_forward,
    .activation_backward = activation_backward,
    .swiglu_forward = swiglu_forward,
    .swiglu_backward = swiglu_backward,
    .bias_backward = bias_backward,
    .cross_entropy = cross_entropy,
    .add = add,
    .convert = convert,
    .quantize = quantize,
    .dequantize = dequantize,
    .scale = scale,
    .zero = zero,
    .sum_of_squares = sum_of_squares,
    .sum_f32 = sum_f32,
    .sum_doubles = sum_doubles,
    .clip_factor = clip_factor,
    .adam = adam,
    .lion = lion,
    .sgd = sgd,
    .adagrad = adagrad,
    .fill_normal = fill_normal,
    .fill = fill,
};

}  // namespace dstune::kernels::DSTUNE_ISA
