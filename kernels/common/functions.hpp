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
  each(swiglu_forward) \
  each(swiglu_backward) \
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

/// LayerNorm; without a bias RMSNorm, and `mean` stays untouched.
Function<decltype(Table::layernorm_forward)> norm_forward;
Function<decltype(Table::layernorm_backward)> norm_backward;

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

}  // namespace

}  // namespace dstune::kernels::DSTUNE_ISA
