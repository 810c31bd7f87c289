// How cuBLASLt is used: what is timed, kept, left out, and refused. That what it is asked
// for is the product of each shape is shown by the kernels' own tests, which run on it here, too.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>

#include "libraries/candidates.hpp"
#include "matrix_products_fixture.hpp"
#include "thrown.hpp"

namespace dstune::kernels::test {
namespace {

using testing::ElementsAre;

class MatrixProductsTest : public MatrixProductsFixture {
 protected:
  /// 2×3 of ones with ones of 3×2, a bias of 10, added to 100: what every element of C becomes.
  float run(MatrixProducts& products, MatmulShape shape = {}, int offset = 0,
            int offset_of_bias = 0) {
    shape.m = shape.n = 2;
    if (shape.k == 0) shape.k = 3;
    const std::vector<float> ones(8, 1.0F);
    const Elements bias(DType::f32, 10.0F);
    alignas(16) float c[8];
    std::fill(std::begin(c), std::end(c), 100.0F);
    products.run(shape, ones.data(), ones.data(), bias.at(offset_of_bias), c + offset,
                 workspace_.data());
    for (int i = 1; i < 4; ++i) EXPECT_EQ(c[offset + i], c[offset]);
    return c[offset];
  }
};

TEST_F(MatrixProductsTest, TimesEachCandidateOnceAndKeepsTheFastest) {
  set_algorithms({3.0, 1.0, 2.0});
  MatrixProducts products = made();
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(gpu_.timings, timings_of(3));
  EXPECT_EQ(blas_.runs.back(), 1);
  blas_.runs.clear();
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_THAT(blas_.runs, ElementsAre(1, 1));
  EXPECT_EQ(blas_.searches, 1);
  EXPECT_EQ(gpu_.timings, timings_of(3));
}

TEST_F(MatrixProductsTest, EachShapeDeviceAndAlignmentHasItsOwn) {
  MatrixProducts products = made();
  run(products);
  run(products, {.k = 4});
  run(products, {.transpose_a = true});
  EXPECT_EQ(blas_.searches, 3);
  run(products, {}, 1);
  EXPECT_EQ(blas_.searches, 4);
  gpu_.device_number = 1;
  run(products);
  EXPECT_EQ(blas_.searches, 5);
  run(products, {}, 1);
  run(products, {.k = 4});
  EXPECT_EQ(blas_.searches, 7);
}

TEST_F(MatrixProductsTest, WhatIsAddedToIsTimedElsewhere) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  EXPECT_EQ(run(products, {.accumulate = true, .has_bias = true}), 113.0F);
  EXPECT_EQ(gpu_.timings, timings_of(4));  // with the bias and without
  EXPECT_EQ(blas_.runs.back(), 1);
}

TEST_F(MatrixProductsTest, WithoutMemoryForThatTheFirstIsTaken) {
  set_algorithms({3.0, 1.0});
  gpu_.free_memory_bytes = 0;
  MatrixProducts products = made();
  EXPECT_EQ(run(products, {.accumulate = true}), 103.0F);
  EXPECT_EQ(run(products, {.accumulate = true}), 103.0F);
  EXPECT_THAT(blas_.runs, ElementsAre(0, 0));
}

TEST_F(MatrixProductsTest, NothingIsTimedWhileAGraphIsRecorded) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  gpu_.recording = true;
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_THAT(blas_.runs, ElementsAre(0));
  gpu_.recording = false;
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(gpu_.timings, timings_of(2));
  EXPECT_EQ(blas_.runs.back(), 1);
}

TEST_F(MatrixProductsTest, TheFirstChoiceNeedsNoClock) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made(Choice::first);
  run(products);
  EXPECT_THAT(blas_.runs, ElementsAre(0));
  EXPECT_EQ(gpu_.timings, 0);
}

TEST_F(MatrixProductsTest, CandidatesThatFailAreLeftOut) {
  set_algorithms({1.0, 2.0, 3.0});
  blas_.failing = {0};
  MatrixProducts products = made();
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(blas_.runs.back(), 1);
  // One that fails later gives way to the next.
  blas_.failing = {0, 1};
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(blas_.runs.back(), 2);
  blas_.failing = {0, 1, 2};
  EXPECT_THROW(run(products), std::runtime_error);
  blas_.failing = {};
  EXPECT_THROW(run(products), std::runtime_error) << "once and for all";
}

TEST_F(MatrixProductsTest, AProductThatTheLibraryDoesNotDoIsNamed) {
  blas_.algorithms = 0;
  MatrixProducts products = made();
  for (const char* const time : {"first", "second"}) {
    EXPECT_EQ(dstune::test::thrown<std::runtime_error>([&] { run(products, {.k = 5}); }),
              "cuBLASLt does not multiply 2 x 5 by 5 x 2 in fp32 (its status 15)")
        << time;
  }
  EXPECT_EQ(blas_.searches, 1);
  blas_.algorithms = 1;
  EXPECT_EQ(run(products, {.k = 4}), 4.0F);
}

TEST_F(MatrixProductsTest, ABiasIsAddedWhereNoAlgorithmDoes) {
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
  EXPECT_EQ(own_additions, 0);
  blas_.adds_bias = false;
  EXPECT_EQ(run(products, {.transpose_b = true, .has_bias = true}), 13.0F);
  EXPECT_EQ(own_additions, 1);
}

TEST_F(MatrixProductsTest, ABiasIsAddedByWhatIsFaster) {
  set_algorithms({3.0, 1.0});
  more_seconds_[CUBLASLT_EPILOGUE_BIAS] = 1.0;
  MatrixProducts products = made();
  EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
  EXPECT_EQ(gpu_.timings, timings_of(4));
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  own_additions = 0;
  EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
  EXPECT_EQ(own_additions, 1);
}

TEST_F(MatrixProductsTest, TheFirstChoiceTakesTheEpilogueOfABias) {
  more_seconds_[CUBLASLT_EPILOGUE_BIAS] = 1.0;
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_BIAS));
  EXPECT_EQ(gpu_.timings, 0);
}

// An epilogue may move 16 bytes at once of what lies beside the matrices.
TEST_F(MatrixProductsTest, ABiasBetweenMultiplesOf16BytesIsAddedByOurKernel) {
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run(products, {.has_bias = true}, 0, 1), 13.0F);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_EQ(own_additions, 1);
}

TEST_F(MatrixProductsTest, AFailureAtAnyCallLeavesNothingBehind) {
  set_algorithms({2.0, 1.0});
  // Without the fused bias there is a second way.
  EXPECT_GT(fail_each_call(Choice::fastest,
                           [&](MatrixProducts& products) {
                             EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
                           }),
            15);
}

class RaggedProductsTest : public MatrixProductsTest {
 protected:
  static constexpr std::int64_t ragged = 517, row = 520;

  /// Ones times ones, in rows of A and C that begin at multiples of 16 bytes: `terms` in each
  /// element of C, and what is between rows as it was.
  void expect_sums(MatrixProducts& products, const MatmulShape& shape, float before) {
    const std::vector<float> ones(static_cast<std::size_t>(row * ragged), 1.0F);
    std::vector<float> c(static_cast<std::size_t>(shape.m * shape.row_of_c()), before);
    products.run(shape, ones.data(), ones.data(), nullptr, c.data(), workspace_.data());
    const float sum = static_cast<float>(shape.k) + (shape.accumulate ? before : 0.0F);
    for (std::int64_t i = 0; i < shape.m * shape.row_of_c(); ++i) {
      const bool is_between = i % shape.row_of_c() >= shape.n;
      ASSERT_EQ(c[static_cast<std::size_t>(i)], is_between ? before : sum) << i;
    }
  }
};

TEST_F(RaggedProductsTest, AreTheWholeInTwoParts) {
  for (const bool accumulates : {false, true}) {
    MatrixProducts products = made(Choice::first);
    MatmulShape columns{.m = 3, .n = ragged, .k = 8, .transpose_b = true, .stride_c = row};
    MatmulShape terms{.m = 3, .n = 8, .k = ragged, .stride_a = row};
    MatmulShape rows{.m = ragged, .n = 8, .k = 3, .transpose_a = true, .stride_a = row};
    blas_.searches = 0;
    for (MatmulShape* const shape : {&columns, &terms, &rows}) {
      shape->accumulate = accumulates;
      expect_sums(products, *shape, 100.0F);
    }
    EXPECT_EQ(blas_.searches, 6);
    // Too small, in whole packs, or where rows are ragged, too: as it is.
    expect_sums(products, {.m = 3, .n = 5, .k = 8, .transpose_b = true, .stride_c = 8}, 1.0F);
    expect_sums(products, {.m = 3, .n = 516, .k = 8, .transpose_b = true, .stride_c = row}, 1.0F);
    expect_sums(products, {.m = 3, .n = ragged, .k = 8, .transpose_b = true}, 1.0F);
    EXPECT_EQ(blas_.searches, 9);
  }
}

TEST_F(RaggedProductsTest, AreInPartsWhereThatIsFaster) {
  const MatmulShape shape{.m = 3, .n = ragged, .k = 8, .transpose_b = true, .stride_c = row};
  for (const double seconds_of_whole : {1.5, 2.5}) {
    MatrixProducts products = made();
    gpu_.timings = 0;
    blas_.runs.clear();
    // The two parts, of one candidate each, are timed before the whole.
    gpu_.clock = [&] { return gpu_.timings <= 2 ? 1.0 : seconds_of_whole; };
    expect_sums(products, shape, 1.0F);
    EXPECT_EQ(gpu_.timings, 3);
    blas_.runs.clear();
    expect_sums(products, shape, 1.0F);
    EXPECT_EQ(blas_.runs.size(), seconds_of_whole > 2 ? 2U : 1U);
    EXPECT_EQ(gpu_.timings, 3) << "once";
  }
}

TEST_F(MatrixProductsTest, AFailureForWantOfMemoryIsNoRefusal) {
  set_algorithms({2.0, 1.0});
  int calls = 0, lacks = 0;
  for (blas_.failing_call = -1; blas_.failing_call < std::max(calls, 1); ++blas_.failing_call) {
    blas_.calls = 0;
    gpu_.free_memory_bytes = std::size_t{1} << 20;
    MatrixProducts products = made();
    bool lacks_memory = false;
    try {
      run(products);
    } catch (const CudaOutOfMemory& error) {
      lacks_memory = true;
      EXPECT_THAT(error.what(), testing::HasSubstr("1 MiB"));
    } catch (const std::runtime_error&) {
      // A call that needs none is refused.
    }
    if (blas_.failing_call < 0) calls = blas_.calls;
    lacks += lacks_memory ? 1 : 0;
    if (!lacks_memory) continue;
    // With memory again all is as if it had not been.
    gpu_.free_memory_bytes = std::size_t{1} << 40;
    EXPECT_EQ(run(products), 3.0F) << "after a failure of call " << blas_.failing_call;
    EXPECT_EQ(blas_.runs.back(), 1) << "after a failure of call " << blas_.failing_call;
  }
  // Handle, description, layouts, preference, and the runs of two candidates and one that counts.
  EXPECT_EQ(lacks, 6 + 2 * runs_of_finalist + 1);
}

}  // namespace
}  // namespace dstune::kernels::test
