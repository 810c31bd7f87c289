#pragma once
/// The functions that every backend has; common/table.cpp makes its table of them. kernels.hpp has
/// their contracts.

#include <type_traits>

#include "dstune/kernels/kernels.hpp"

/// Those that have the names of their entries.
// clang-format off
#define DSTUNE_FUNCTIONS(each) \
  each(matmul_activation_forward) \
  each(matmul_activation_backward) \
  each(matmul_bias_backward) \
  each(embedding_forward) \
  each(embedding_backward) \
  each(norm_workspace_bytes) \
  each(bias_backward) \
  each(head_norm_forward) \
  each(head_norm_backward) \
  each(rotary) \
  each(attention_forward) \
  each(attention_backward) \
  each(attention_workspace_bytes) \
  each(activation_forward) \
  each(activation_backward) \
  each(gated_forward) \
  each(gated_backward) \
  each(cross_entropy) \
  each(add) \
  each(convert) \
  each(quantize) \
  each(dequantize) \
  each(scale) \
  each(zero) \
  each(fill) \
  each(fill_normal) \
  each(sum_of_squares) \
  each(sum_f32) \
  each(clip_factor) \
  each(adam) \
  each(lion) \
  each(sgd) \
  each(adagrad)
// clang-format on

namespace dstune::kernels::DSTUNE_ISA {

/// The function that a pointer of the table points to.
template <class Pointer>
using Function = std::remove_pointer_t<Pointer>;

#define DSTUNE_DECLARE(name) Function<decltype(Table::name)> name;
DSTUNE_FUNCTIONS(DSTUNE_DECLARE)
#undef DSTUNE_DECLARE

/// LayerNorm; without a bias RMSNorm with the offset, and `mean` stays untouched.
void norm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                  const void* residual, const void* x, const void* weight, const void* bias,
                  float offset, std::int64_t rows, std::int64_t width, float epsilon);
void norm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                   const void* input, const float* mean, const float* rstd, const void* weight,
                   float offset, std::int64_t rows, std::int64_t width, bool accumulate_input,
                   bool accumulate_weights, void* workspace);

namespace {

template <auto number>
struct Constant {
  constexpr operator decltype(number)() const { return number; }
};

/// call(one) or call(other), as a constant.
template <auto one, auto other, class Call>
void with_either(bool is_one, Call call) {
  if (is_one) {
    call(Constant<one>());
  } else {
    call(Constant<other>());
  }
}

/// call(the activation that gates), as a constant: silu or gelu_tanh.
template <class Call>
void with_gate(Activation activation, Call call) {
  with_either<Activation::silu, Activation::gelu_tanh>(activation == Activation::silu, call);
}

}  // namespace

}  // namespace dstune::kernels::DSTUNE_ISA
