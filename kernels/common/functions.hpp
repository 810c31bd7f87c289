#pragma once
/// The functions that every backend has; common/table.cpp makes its table of them. kernels.hpp has
/// their contracts.

#include <type_traits>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::DSTUNE_ISA {

/// The function that a pointer of the table points to.
template <class Pointer>
using Function = std::remove_pointer_t<Pointer>;

Function<decltype(Table::matmul_activation_forward)> matmul_activation_forward;
Function<decltype(Table::matmul_activation_backward)> matmul_activation_backward;
Function<decltype(Table::matmul_bias_backward)> matmul_bias_backward;

Function<decltype(Table::embedding_forward)> embedding_forward;
Function<decltype(Table::embedding_backward)> embedding_backward;

/// LayerNorm; without a bias RMSNorm, and `mean` stays untouched.
Function<decltype(Table::layernorm_forward)> norm_forward;
Function<decltype(Table::layernorm_backward)> norm_backward;
Function<decltype(Table::norm_workspace_bytes)> norm_workspace_bytes;
Function<decltype(Table::bias_backward)> bias_backward;

Function<decltype(Table::head_norm_forward)> head_norm_forward;
Function<decltype(Table::head_norm_backward)> head_norm_backward;
Function<decltype(Table::rotary)> rotary;
Function<decltype(Table::attention_forward)> attention_forward;
Function<decltype(Table::attention_backward)> attention_backward;
Function<decltype(Table::attention_workspace_bytes)> attention_workspace_bytes;

Function<decltype(Table::activation_forward)> activation_forward;
Function<decltype(Table::activation_backward)> activation_backward;
Function<decltype(Table::swiglu_forward)> swiglu_forward;
Function<decltype(Table::swiglu_backward)> swiglu_backward;
Function<decltype(Table::cross_entropy)> cross_entropy;

Function<decltype(Table::add)> add;
Function<decltype(Table::convert)> convert;
Function<decltype(Table::quantize)> quantize;
Function<decltype(Table::dequantize)> dequantize;
Function<decltype(Table::scale)> scale;
Function<decltype(Table::zero)> zero;
Function<decltype(Table::fill)> fill;
Function<decltype(Table::fill_normal)> fill_normal;
Function<decltype(Table::sum_of_squares)> sum_of_squares;
Function<decltype(Table::sum_f32)> sum_f32;
Function<decltype(Table::clip_factor)> clip_factor;

Function<decltype(Table::adam)> adam;
Function<decltype(Table::lion)> lion;
Function<decltype(Table::sgd)> sgd;
Function<decltype(Table::adagrad)> adagrad;

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
