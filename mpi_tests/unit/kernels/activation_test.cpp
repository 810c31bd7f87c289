#include <cmath>
#include <limits>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

class ActivationTest : public KernelTest {};

constexpr Activation activations[] = {Activation::gelu_tanh, Activation::gelu, Activation::relu,
                                      Activation::silu};

TEST_P(ActivationTest, EqualsTheFormulaAndItsSlope) {
  for (const Activation activation : activations) {
    for (const std::int64_t count : {1, 7, 65, 1027}) {
      const Values x = random_values(count, 1, 8.0);
      const Values d_out = random_values(count, 2);
      Values expected;
      Values expected_slope;
      for (std::size_t i = 0; i < x.size(); ++i) {
        expected.push_back(activation_value(activation, x[i]));
        expected_slope.push_back(d_out[i] * activation_slope(activation, x[i]));
      }
      Buffer out = poisoned(count);
      Buffer d_x = poisoned(count);
      table().activation_forward(type(), activation, out.data(), typed(x).data(), count);
      table().activation_backward(type(), activation, d_x.data(), typed(d_out).data(),
                                  typed(x).data(), count);
      expect_close(out.values(), expected, tolerance(), "out");
      expect_close(d_x.values(), expected_slope, tolerance(), "d_x");

      Buffer in_place = typed(x);
      table().activation_forward(type(), activation, in_place.data(), in_place.data(), count);
      EXPECT_TRUE(in_place == out);
      Buffer d_in_place = typed(d_out);
      table().activation_backward(type(), activation, d_in_place.data(), d_in_place.data(),
                                  typed(x).data(), count);
      EXPECT_TRUE(d_in_place == d_x);
    }
  }
}

TEST_P(ActivationTest, IsRightFarFromZero) {
  const double far = type() == DType::f16 ? 6e4 : 1e30;
  const Values x = {-far, -1e4, -50.0, -1e-6, 1e-6, 50.0, 1e4, far};
  const Buffer typed_x = typed(x);
  const auto count = static_cast<std::int64_t>(x.size());
  const Buffer ones = typed(Values(x.size(), 1.0));
  const Values rounded = typed_x.values();
  for (const Activation activation : activations) {
    Buffer out = poisoned(count);
    Buffer d_x = poisoned(count);
    table().activation_forward(type(), activation, out.data(), typed_x.data(), count);
    table().activation_backward(type(), activation, d_x.data(), ones.data(), typed_x.data(), count);
    const Values values = out.values();
    const Values slopes = d_x.values();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = activation_value(activation, rounded[i]);
      EXPECT_NEAR(values[i], wanted, tolerance() * std::abs(wanted) + 1e-7);
      const double near_zero =
          activation == Activation::relu ? (rounded[i] > 0.0 ? 1.0 : 0.0) : 0.5;
      const double expected =
          std::abs(rounded[i]) < 1.0 ? near_zero : (rounded[i] > 0.0 ? 1.0 : 0.0);
      EXPECT_NEAR(slopes[i], expected, 1e-5);
    }
  }
}

// Where x·Φ(x) is small against x, an error of the distribution would show.
TEST_P(ActivationTest, ExactGeluKeepsItsTail) {
  Values x;
  for (int i = 0; i < 60; ++i) x.push_back(-0.1 * i);
  const Buffer typed_x = typed(x);
  const auto count = static_cast<std::int64_t>(x.size());
  Buffer out = poisoned(count);
  table().activation_forward(type(), Activation::gelu, out.data(), typed_x.data(), count);
  const Values rounded = typed_x.values();
  const Values values = out.values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double allowed = type() == DType::f32 ? 1e-6 : 1e-2;
    EXPECT_NEAR(values[i], activation_value(Activation::gelu, rounded[i]),
                allowed * std::abs(rounded[i]) * 0.5);
  }
}

TEST_P(ActivationTest, PassesNotANumberOn) {
  for (const Activation activation : activations) {
    Buffer x = typed(Values(33, std::numeric_limits<double>::quiet_NaN()));
    table().activation_forward(type(), activation, x.data(), x.data(), 33);
    for (const double value : x.values()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(ActivationTest, GatedProductsEqualTheFormulaAndItsSlopes) {
  for (const auto& [rows, activation] : {std::pair{std::int64_t{1}, Activation::silu},
                                         {7, Activation::silu},
                                         {7, Activation::gelu_tanh},
                                         {2, Activation::gelu_tanh}}) {
    for (const std::int64_t width : {48, 65, 3}) {
      const Values gate_up = random_values(rows * 2 * width, 1, 5.0);
      const Values d_out = random_values(rows * width, 2);
      Values expected(d_out.size());
      Values expected_slopes(gate_up.size());
      for (std::size_t i = 0; i < d_out.size(); ++i) {
        const std::size_t gate =
            i / static_cast<std::size_t>(width) * static_cast<std::size_t>(width) + i;
        const std::size_t up = gate + static_cast<std::size_t>(width);
        const double opening = activation_value(activation, gate_up[gate]);
        expected[i] = opening * gate_up[up];
        expected_slopes[gate] =
            d_out[i] * gate_up[up] * activation_slope(activation, gate_up[gate]);
        expected_slopes[up] = d_out[i] * opening;
      }
      Buffer out = poisoned(rows * width);
      Buffer d_gate_up = poisoned(rows * 2 * width);
      table().gated_forward(type(), activation, out.data(), typed(gate_up).data(), rows, width);
      table().gated_backward(type(), activation, d_gate_up.data(), typed(d_out).data(),
                             typed(gate_up).data(), rows, width);
      expect_close(out.values(), expected, tolerance(), "out");
      expect_close(d_gate_up.values(), expected_slopes, tolerance(), "d_gate_up");
      Buffer in_place = typed(gate_up);
      table().gated_backward(type(), activation, in_place.data(), typed(d_out).data(),
                             in_place.data(), rows, width);
      EXPECT_TRUE(in_place == d_gate_up);
    }
  }
}

DSTUNE_FOR_TABLES(ActivationTest);

}  // namespace
}  // namespace dstune::kernels::test
