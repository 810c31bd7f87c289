#include "common/functions.hpp"
#include "isa/matmul.hpp"
#include "isa/partial_sums.hpp"

#define DSTUNE_TEXT_OF(name) #name
#define DSTUNE_NAME_TEXT(name) DSTUNE_TEXT_OF(name)

namespace dstune::kernels::DSTUNE_ISA {

extern const Table table;
const Table table = {
    .name = DSTUNE_NAME_TEXT(DSTUNE_ISA),
    .row_alignment_bytes = 128,
    .matmul_workspace_bytes = matmul_workspace_bytes,
    .matmul = matmul,
    .matmul_activation_forward = matmul_activation_forward,
    .matmul_activation_backward = matmul_activation_backward,
    .matmul_bias_backward = matmul_bias_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .layernorm_forward = layernorm_forward,
    .layernorm_backward = layernorm_backward,
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
    .sum_doubles = 1 + max_partial_sums,
    .clip_factor = clip_factor,
    .adam = adam,
    .lion = lion,
    .sgd = sgd,
    .adagrad = adagrad,
    .fill_normal = fill_normal,
    .fill = fill,
};

}  // namespace dstune::kernels::DSTUNE_ISA
