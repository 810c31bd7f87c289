// Products with an activation, by cuBLASLt or after it.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "matrix_products_fixture.hpp"

namespace dstune::kernels::test {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float gelu = -0.15429F;  // of −0.5

constexpr float slope = 3 * 0.86737F;  // at 0.5

constexpr float rounding = 0.01F;

/// Of elements, from a multiple of 16 bytes on.
struct Offsets {
  int bias = 0, c = 0, activated = 0;
};

class ActivationProductsTest : public MatrixProductsFixture {
 protected:
  /// 2×3 of ones with ones of 3×8, a bias of −3.5: what the activation of every −0.5, or without
  /// the bias 3, becomes.
  float run_forward(MatrixProducts& products, bool has_bias,
                    Activation activation = Activation::gelu_tanh, MatmulShape shape = in_bf16,
                    const Offsets& offsets = {}) {
    shape.has_bias = has_bias;
    const Elements ones(shape.type, 1.0F);
    const Elements bias(shape.type, -3.5F);
    Elements c(shape.type, 100.0F);
    Elements activated(shape.type, 100.0F);
    products.run_activation_forward(shape, activation, ones.at(), ones.at(), bias.at(offsets.bias),
                                    c.at(offsets.c), activated.at(offsets.activated),
                                    workspace_.data());
    const float product = c.value(shape.m * shape.n, offsets.c);
    EXPECT_EQ(product, has_bias ? -0.5F : 3.0F);
    return activated.value(shape.m * shape.n, offsets.activated);
  }
  /// 3 times the slope at 0.5.
  float run_backward(MatrixProducts& products, Activation activation = Activation::gelu_tanh,
                     const MatmulShape& shape = in_bf16, int offset_of_x = 0) {
    const Elements ones(shape.type, 1.0F);
    const Elements x(shape.type, 0.5F);
    Elements c(shape.type, 100.0F);
    products.run_activation_backward(shape, activation, ones.at(), ones.at(), x.at(offset_of_x),
                                     c.at(), workspace_.data());
    return c.value(shape.m * shape.n);
  }

  [[nodiscard]] bool asked_for_gelu() const {
    return std::any_of(blas_.searched.begin(), blas_.searched.end(),
                       [](auto epilogue) { return epilogue > CUBLASLT_EPILOGUE_BIAS; });
  }
};

TEST_F(ActivationProductsTest, GeluIsTheLibrarysWhereThatIsFaster) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  EXPECT_NEAR(run_forward(products, true), gelu, rounding);
  EXPECT_EQ(gpu_.timings, timings_of(6));  // with bias and GELU, with the bias, with neither
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  EXPECT_NEAR(run_forward(products, false), 2.9964F, 2 * rounding);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_GELU_AUX);
  EXPECT_NEAR(run_backward(products), slope, rounding);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DGELU);
  EXPECT_EQ(gpu_.timings, timings_of(6) + 2 * timings_of(4));
  own_activations = 0;
  run_forward(products, true);
  run_forward(products, false);
  run_backward(products);
  EXPECT_EQ(gpu_.timings, timings_of(6) + 2 * timings_of(4));
  EXPECT_EQ(own_activations, 0);
}

TEST_F(ActivationProductsTest, GeluIsOurKernelsWhereThatIsFaster) {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DGELU})
    more_seconds_[epilogue] = 1.0;
  MatrixProducts products = made();
  for (int time = 0; time < 2; ++time) {
    own_activations = own_additions = 0;
    EXPECT_NEAR(run_forward(products, true), gelu, rounding);
    EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BIAS);
    EXPECT_NEAR(run_forward(products, false), 2.9964F, 2 * rounding);
    EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
    EXPECT_NEAR(run_backward(products), slope, rounding);
    EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  }
  EXPECT_EQ(own_activations, 3);
  EXPECT_EQ(own_additions, 0);
}

TEST_F(ActivationProductsTest, TheFirstChoiceTakesTheEpilogue) {
  more_seconds_[CUBLASLT_EPILOGUE_GELU_AUX_BIAS] = 1.0;
  MatrixProducts products = made(Choice::first);
  EXPECT_NEAR(run_forward(products, true), gelu, rounding);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
  EXPECT_EQ(gpu_.timings, 0);
}

TEST_F(ActivationProductsTest, GeluIsAskedForWhereTheLibraryHasTheSame) {
  MatrixProducts products = made();
  for (const Activation other : {Activation::gelu, Activation::relu, Activation::silu}) {
    run_forward(products, true, other);
    run_backward(products, other);
  }
  MatmulShape narrow = in_bf16;
  narrow.n = 10;
  MatmulShape in_fp32 = in_bf16;
  in_fp32.type = in_fp32.out_type = DType::f32;
  for (const MatmulShape& shape : {narrow, in_fp32}) {
    EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, shape), gelu, rounding);
    EXPECT_NEAR(run_backward(products, Activation::gelu_tanh, shape), slope, rounding);
  }
  EXPECT_FALSE(asked_for_gelu());
  MatmulShape in_fp16 = in_bf16;
  in_fp16.type = in_fp16.out_type = DType::f16;
  EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, in_fp16), gelu, rounding);
  EXPECT_TRUE(asked_for_gelu());
}

TEST_F(ActivationProductsTest, AnActivationsAlignmentIsItsOwn) {
  MatrixProducts products = made();
  for (const int offset : {0, 1, 0, 1}) {
    EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, in_bf16, {.activated = offset}),
                gelu, rounding);
  }
  EXPECT_EQ(blas_.searches, 6);
}

// An epilogue may move 16 bytes at once of what lies beside the matrices, and GELU comes after a
// bias.
TEST_F(ActivationProductsTest, WhatLiesBetweenMultiplesOf16BytesIsOurKernels) {
  MatrixProducts products = made(Choice::first);
  for (int offset = 1; offset <= 4; offset *= 2) {
    EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, in_bf16, {.bias = offset}), gelu,
                rounding);
  }
  EXPECT_EQ(own_additions, 3);
  EXPECT_EQ(own_activations, 3);
  EXPECT_THAT(blas_.epilogues, Each(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, in_bf16, {.c = 4}), gelu,
              rounding);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BIAS);
  EXPECT_NEAR(run_backward(products, Activation::gelu_tanh, in_bf16, 4), slope, rounding);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
}

TEST_F(ActivationProductsTest, AFailureAtAnyCallLeavesNothingBehind) {
  EXPECT_GT(fail_each_call(Choice::first,
                           [&](MatrixProducts& products) {
                             EXPECT_NEAR(run_forward(products, true), gelu, rounding);
                           }),
            25);
}

}  // namespace
}  // namespace dstune::kernels::test
