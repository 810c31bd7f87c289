// Products with a bias's gradient, by cuBLASLt or after it.
#include <cstdint>

#include <gmock/gmock.h>

#include "matrix_products_fixture.hpp"

namespace dstune::kernels::test {
namespace {

using testing::ElementsAre;

class BiasGradientProductsTest : public MatrixProductsFixture {
 protected:
  /// The sums of 3 ones, in both, added to 100 where they accumulate.
  float run_bias_backward(MatrixProducts& products, bool accumulate = false, int offset = 0,
                          std::int64_t columns = 8) {
    MatmulShape shape = in_bf16;
    shape.m = columns;
    shape.n = 2;
    shape.transpose_a = true;
    shape.accumulate = accumulate;
    const Elements ones(shape.type, 1.0F);
    Elements c(shape.type, 100.0F);
    Elements d_bias(shape.type, 100.0F);
    products.run_bias_backward(shape, ones.at(), ones.at(), c.at(), d_bias.at(offset),
                               workspace_.data());
    const float product = c.value(shape.m * shape.n);
    EXPECT_EQ(product, accumulate ? 103.0F : 3.0F);
    EXPECT_EQ(d_bias.value(1, offset + static_cast<int>(columns)), 100.0F);
    return d_bias.value(shape.m, offset);
  }
};

TEST_F(BiasGradientProductsTest, ABiassGradientIsTheLibrarysWhereThatIsFaster) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_EQ(gpu_.timings, timings_of(4));  // with it and without
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BGRADB);
  own_sums = 0;
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_EQ(own_sums, 0);
  EXPECT_EQ(gpu_.timings, timings_of(4));
}

TEST_F(BiasGradientProductsTest, ABiassGradientIsOurKernelsWhereThatIsFaster) {
  more_seconds_[CUBLASLT_EPILOGUE_BGRADB] = 1.0;
  MatrixProducts products = made();
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  own_sums = 0;
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(own_sums, 1);
}

TEST_F(BiasGradientProductsTest, ABiassGradientIsOurKernelsWhereNoAlgorithmHasIt) {
  blas_.sums = false;
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_EQ(own_sums, 1);
}

TEST_F(BiasGradientProductsTest, TheFirstChoiceTakesTheEpilogue) {
  more_seconds_[CUBLASLT_EPILOGUE_BGRADB] = 1.0;
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_BGRADB));
  EXPECT_EQ(gpu_.timings, 0);
}

// An epilogue may move 16 bytes at once of what lies beside the matrices.
TEST_F(BiasGradientProductsTest, WhatLiesBetweenMultiplesOf16BytesIsOurKernels) {
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run_bias_backward(products, false, 4), 3.0F);
  EXPECT_EQ(own_sums, 1);
  // Where it is added to something the library's goes elsewhere first.
  EXPECT_EQ(run_bias_backward(products, true, 4), 103.0F);
  EXPECT_EQ(own_sums, 1);
  // And where it ends so.
  EXPECT_EQ(run_bias_backward(products, false, 0, 12), 3.0F);
  EXPECT_EQ(own_sums, 2);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BGRADB,
                                           CUBLASLT_EPILOGUE_DEFAULT));
}

// The epilogue overwrites.
TEST_F(BiasGradientProductsTest, WhatABiassGradientIsAddedToIsAddedToOnce) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  for (int time = 0; time < 2; ++time) {
    own_sums = own_additions = 0;
    EXPECT_EQ(run_bias_backward(products, true), 103.0F);
    EXPECT_EQ(gpu_.timings, timings_of(4));
  }
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(own_additions, 1);
  EXPECT_EQ(own_sums, 0);

  more_seconds_[CUBLASLT_EPILOGUE_BGRADB] = 1.5;
  MatrixProducts others = made();
  for (int time = 0; time < 2; ++time) {
    own_sums = own_additions = 0;
    EXPECT_EQ(run_bias_backward(others, true), 103.0F);
  }
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(own_additions, 0);
  EXPECT_EQ(own_sums, 1);

  gpu_.free_memory_bytes = 0;
  MatrixProducts untimed = made();
  EXPECT_EQ(run_bias_backward(untimed, true), 103.0F);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BGRADB);
}

TEST_F(BiasGradientProductsTest, AFailureAtAnyCallLeavesNothingBehind) {
  EXPECT_GT(fail_each_call(
                Choice::first,
                [&](MatrixProducts& products) { EXPECT_EQ(run_bias_backward(products), 3.0F); }),
            20);
  EXPECT_EQ(refusals_, 0);
}

}  // namespace
}  // namespace dstune::kernels::test
