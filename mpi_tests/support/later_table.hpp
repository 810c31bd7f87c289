#pragma once
/// A table whose functions do what they are asked for when its turn comes.

#include "dstune/kernels/kernels.hpp"

namespace dstune::test {

/// A function of the table `now`, called with the arguments of the call when what was handed to
/// ask() is called.
template <const kernels::Table& (*now)(), auto ask, auto member>
struct Later;
template <const kernels::Table& (*now)(), auto ask, class... Args,
          void (*kernels::Table::*member)(Args...)>
struct Later<now, ask, member> {
  static void call(Args... args) {
    ask([=] { (now().*member)(args...); });
  }
};

template <const kernels::Table& (*now)(), auto ask, auto... members>
void put_off(kernels::Table& table) {
  ((table.*members = Later<now, ask, members>::call), ...);
}

/// What tells sizes answers at once.
template <const kernels::Table& (*now)(), auto ask>
kernels::Table later_table() {
  using kernels::Table;
  Table table = now();
  put_off<now, ask, &Table::matmul, &Table::matmul_activation_forward,
          &Table::matmul_activation_backward, &Table::matmul_bias_backward,
          &Table::embedding_forward, &Table::embedding_backward, &Table::layernorm_forward,
          &Table::layernorm_backward, &Table::rmsnorm_forward, &Table::rmsnorm_backward,
          &Table::head_norm_forward, &Table::head_norm_backward, &Table::rotary,
          &Table::attention_forward, &Table::attention_backward, &Table::activation_forward,
          &Table::activation_backward, &Table::gated_forward, &Table::gated_backward,
          &Table::bias_backward, &Table::cross_entropy, &Table::add, &Table::convert,
          &Table::quantize, &Table::dequantize, &Table::scale, &Table::zero, &Table::sum_of_squares,
          &Table::sum_f32, &Table::clip_factor, &Table::adam, &Table::lion, &Table::sgd,
          &Table::adagrad, &Table::fill_normal, &Table::fill>(table);
  return table;
}

}  // namespace dstune::test
