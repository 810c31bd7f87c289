// How cuBLASLt is used: what is timed, kept, left out, and done without it. That what it is asked
// for is the product of each shape is shown by the kernels' own tests, which run on it here, too.
#include "libraries/matrix_products.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/kernels/cuda.hpp"
#include "fake_blas.hpp"
#include "fake_gpu.hpp"

namespace dstune::kernels::test {
namespace {

using cuda::Choice;
using cuda::MatrixProducts;
using testing::ElementsAre;

int own_products = 0;
int own_additions = 0;
int own_activations = 0;
int own_sums = 0;

/// Equal elements, more than any matrix here has.
class Elements {
 public:
  Elements(DType type, float value) : type_(type) {
    cpu_table("portable")->fill(type, memory_, value, most);
  }
  [[nodiscard]] const void* at() const { return memory_; }
  [[nodiscard]] void* at(int offset = 0) {
    return memory_ + offset * (type_ == DType::f32 ? 4 : 2);
  }
  /// That all of the first `count` from there on have.
  [[nodiscard]] float value(std::int64_t count, int offset = 0) {
    float values[most];
    cpu_table("portable")->convert(DType::f32, values, type_, at(offset), count);
    for (std::int64_t i = 1; i < count; ++i) EXPECT_EQ(values[i], values[0]);
    return values[0];
  }

 private:
  static constexpr int most = 40;
  DType type_;
  alignas(16) char memory_[4 * most];
};

void own_matmul(const MatmulShape& shape, const void*, const void*, const void*, void* c, void*) {
  ++own_products;
  // Not what a product would be, to be told from one.
  cpu_table("portable")->fill(shape.out_type, c, -7.0F, shape.m * shape.n);
}

/// The elements are equal.
void own_add_bias(const MatmulShape& shape, const void* bias, void* c) {
  ++own_additions;
  float sum = 0.0F;
  float added = 0.0F;
  const Table& table = *cpu_table("portable");
  table.convert(DType::f32, &sum, shape.out_type, c, 1);
  table.convert(DType::f32, &added, shape.type, bias, 1);
  table.fill(shape.out_type, c, sum + added, shape.m * shape.n);
}

void own_activation_forward(DType type, Activation activation, void* out, const void* x,
                            std::int64_t count) {
  ++own_activations;
  cpu_table("portable")->activation_forward(type, activation, out, x, count);
}

void own_activation_backward(DType type, Activation activation, void* d_x, const void* d_out,
                             const void* x, std::int64_t count) {
  ++own_activations;
  cpu_table("portable")->activation_backward(type, activation, d_x, d_out, x, count);
}

void own_bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                       std::int64_t width, std::int64_t stride, bool accumulate, void* workspace) {
  ++own_sums;
  cpu_table("portable")
      ->bias_backward(type, d_bias, d_out, rows, width, stride, accumulate, workspace);
}

constexpr MatrixProducts::OwnKernels own_kernels{own_matmul, own_add_bias, own_activation_forward,
                                                 own_activation_backward, own_bias_backward};

class MatrixProductsTest : public testing::Test {
 protected:
  MatrixProductsTest() {
    own_products = own_additions = own_activations = own_sums = 0;
    gpu_.clock = [this] {
      return seconds_[static_cast<std::size_t>(blas_.runs.back())] +
             more_seconds_[blas_.epilogues.back()];
    };
  }
  ~MatrixProductsTest() override {
    EXPECT_EQ(blas_.fault, "");
    EXPECT_EQ(gpu_.taken, 0);
  }

  /// An algorithm for each, that takes so long.
  void set_algorithms(std::vector<double> seconds) {
    blas_.algorithms = static_cast<int>(seconds.size());
    seconds_ = std::move(seconds);
  }

  /// 2×3 of ones with ones of 3×2, a bias of 10, added to 100: what every element of C becomes.
  float run(MatrixProducts& products, MatmulShape shape = {}, int offset = 0) {
    shape.m = shape.n = 2;
    if (shape.k == 0) shape.k = 3;
    const std::vector<float> ones(8, 1.0F);
    const std::vector<float> bias(8, 10.0F);
    alignas(16) float c[8];
    std::fill(std::begin(c), std::end(c), 100.0F);
    products.run(shape, ones.data(), ones.data(), bias.data(), c + offset, workspace_.data());
    for (int i = 1; i < 4; ++i) EXPECT_EQ(c[offset + i], c[offset]);
    return c[offset];
  }

  static constexpr MatmulShape in_bf16{
      .m = 2, .n = 8, .k = 3, .type = DType::bf16, .out_type = DType::bf16};

  /// 2×3 of ones with ones of 3×8, a bias of −3.5: what the activation of every −0.5, or without
  /// the bias 3, becomes.
  float run_forward(MatrixProducts& products, bool has_bias,
                    Activation activation = Activation::gelu_tanh, MatmulShape shape = in_bf16,
                    int offset = 0) {
    shape.has_bias = has_bias;
    const Elements ones(shape.type, 1.0F);
    const Elements bias(shape.type, -3.5F);
    Elements c(shape.type, 100.0F);
    Elements activated(shape.type, 100.0F);
    products.run_activation_forward(shape, activation, ones.at(), ones.at(), bias.at(), c.at(),
                                    activated.at(offset), workspace_.data());
    const float product = c.value(shape.m * shape.n);
    EXPECT_TRUE(product == (has_bias ? -0.5F : 3.0F) || product == -7.0F) << product;
    return activated.value(shape.m * shape.n, offset);
  }
  /// 3 times the slope at 0.5.
  float run_backward(MatrixProducts& products, Activation activation = Activation::gelu_tanh,
                     const MatmulShape& shape = in_bf16) {
    const Elements ones(shape.type, 1.0F);
    const Elements x(shape.type, 0.5F);
    Elements c(shape.type, 100.0F);
    products.run_activation_backward(shape, activation, ones.at(), ones.at(), x.at(), c.at(),
                                     workspace_.data());
    return c.value(shape.m * shape.n);
  }

  /// The sums of 3 ones, in both, added to 100 where they accumulate.
  float run_bias_backward(MatrixProducts& products, bool accumulate = false, int offset = 0) {
    MatmulShape shape = in_bf16;
    shape.transpose_a = true;
    shape.accumulate = accumulate;
    const Elements ones(shape.type, 1.0F);
    Elements c(shape.type, 100.0F);
    Elements d_bias(shape.type, 100.0F);
    products.run_bias_backward(shape, ones.at(), ones.at(), c.at(), d_bias.at(offset),
                               workspace_.data());
    const float product = c.value(shape.m * shape.n);
    EXPECT_TRUE(product == (accumulate ? 103.0F : 3.0F) || product == -7.0F) << product;
    EXPECT_EQ(d_bias.value(1, offset + 2), 100.0F);
    return d_bias.value(shape.m, offset);
  }

  MatrixProducts made(Choice choice = Choice::fastest) {
    return {&FakeBlas::functions(), gpu_, own_kernels, choice};
  }

  [[nodiscard]] bool asked_for_gelu() const {
    return std::any_of(blas_.searched.begin(), blas_.searched.end(),
                       [](auto epilogue) { return epilogue > CUBLASLT_EPILOGUE_BIAS; });
  }

  FakeBlas blas_;
  FakeGpu gpu_;
  std::vector<double> seconds_ = {1.0};
  std::map<cublasLtEpilogue_t, double> more_seconds_;
  std::vector<char> workspace_ = std::vector<char>(MatrixProducts::workspace_bytes);
};

TEST_F(MatrixProductsTest, TimesEachCandidateOnceAndKeepsTheFastest) {
  set_algorithms({3.0, 1.0, 2.0});
  MatrixProducts products = made();
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(gpu_.timings, 3);
  EXPECT_EQ(blas_.runs.back(), 1);
  blas_.runs.clear();
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_EQ(run(products), 3.0F);
  EXPECT_THAT(blas_.runs, ElementsAre(1, 1));
  EXPECT_EQ(blas_.searches, 1);
  EXPECT_EQ(gpu_.timings, 3);
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
  EXPECT_EQ(gpu_.timings, 4);  // with the bias and without
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
  EXPECT_EQ(gpu_.timings, 2);
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
  EXPECT_EQ(own_products, 0);
  blas_.failing = {0, 1, 2};
  EXPECT_EQ(run(products), -7.0F);
  blas_.failing = {};
  EXPECT_EQ(run(products), -7.0F);
  EXPECT_EQ(own_products, 2);
}

TEST_F(MatrixProductsTest, OurOwnKernelServesWhereThereIsNone) {
  blas_.algorithms = 0;
  MatrixProducts products = made();
  EXPECT_EQ(run(products), -7.0F);
  EXPECT_EQ(run(products), -7.0F);
  EXPECT_EQ(blas_.searches, 1);

  MatrixProducts without(nullptr, gpu_, own_kernels, Choice::fastest);
  EXPECT_EQ(run(without), -7.0F);
  EXPECT_EQ(blas_.searches, 1);
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
  EXPECT_EQ(gpu_.timings, 4);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  own_additions = 0;
  EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
  EXPECT_EQ(own_additions, 1);
}

constexpr float activated = -0.15429F;  // of −0.5
constexpr float sloped = 3 * 0.86737F;  // at 0.5
constexpr float rounding = 0.01F;

TEST_F(MatrixProductsTest, GeluIsTheLibrarysWhereThatIsFaster) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  EXPECT_NEAR(run_forward(products, true), activated, rounding);
  EXPECT_EQ(gpu_.timings, 6);  // with bias and GELU, with the bias, with neither
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  EXPECT_NEAR(run_forward(products, false), 2.9964F, 2 * rounding);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_GELU_AUX);
  EXPECT_NEAR(run_backward(products), sloped, rounding);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DGELU);
  EXPECT_EQ(gpu_.timings, 6 + 4 + 4);
  own_activations = 0;
  run_forward(products, true);
  run_forward(products, false);
  run_backward(products);
  EXPECT_EQ(gpu_.timings, 6 + 4 + 4);
  EXPECT_EQ(own_activations, 0);
}

TEST_F(MatrixProductsTest, GeluIsOurKernelsWhereThatIsFaster) {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DGELU})
    more_seconds_[epilogue] = 1.0;
  MatrixProducts products = made();
  for (int time = 0; time < 2; ++time) {
    own_activations = own_additions = 0;
    EXPECT_NEAR(run_forward(products, true), activated, rounding);
    EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BIAS);
    EXPECT_NEAR(run_forward(products, false), 2.9964F, 2 * rounding);
    EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
    EXPECT_NEAR(run_backward(products), sloped, rounding);
    EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  }
  EXPECT_EQ(own_activations, 3);
  EXPECT_EQ(own_additions, 0);
}

TEST_F(MatrixProductsTest, TheFirstChoiceTakesEpilogues) {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BGRADB})
    more_seconds_[epilogue] = 1.0;
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
  EXPECT_NEAR(run_forward(products, true), activated, rounding);
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                           CUBLASLT_EPILOGUE_BGRADB));
  EXPECT_EQ(gpu_.timings, 0);
}

TEST_F(MatrixProductsTest, GeluIsAskedForWhereTheLibraryHasTheSame) {
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
    EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, shape), activated, rounding);
    EXPECT_NEAR(run_backward(products, Activation::gelu_tanh, shape), sloped, rounding);
  }
  EXPECT_FALSE(asked_for_gelu());
  MatmulShape in_fp16 = in_bf16;
  in_fp16.type = in_fp16.out_type = DType::f16;
  EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, in_fp16), activated, rounding);
  EXPECT_TRUE(asked_for_gelu());
}

TEST_F(MatrixProductsTest, AnActivationsAlignmentIsItsOwn) {
  MatrixProducts products = made();
  for (const int offset : {0, 1, 0, 1}) {
    EXPECT_NEAR(run_forward(products, true, Activation::gelu_tanh, in_bf16, offset), activated,
                rounding);
  }
  EXPECT_EQ(blas_.searches, 6);
}

TEST_F(MatrixProductsTest, ABiassGradientIsTheLibrarysWhereThatIsFaster) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_EQ(gpu_.timings, 4);  // with it and without
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BGRADB);
  own_sums = 0;
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  // What is less aligned has its own choice.
  EXPECT_EQ(run_bias_backward(products, false, 1), 3.0F);
  EXPECT_EQ(gpu_.timings, 8);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_EQ(gpu_.timings, 8);
}

TEST_F(MatrixProductsTest, ABiassGradientIsOurKernelsWhereThatIsFaster) {
  more_seconds_[CUBLASLT_EPILOGUE_BGRADB] = 1.0;
  MatrixProducts products = made();
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  own_sums = 0;
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_EQ(blas_.epilogues.back(), CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(own_sums, 1);
}

TEST_F(MatrixProductsTest, ABiassGradientIsOurKernelsWhereNoAlgorithmHasIt) {
  blas_.sums = false;
  MatrixProducts products = made(Choice::first);
  EXPECT_EQ(run_bias_backward(products), 3.0F);
  EXPECT_THAT(blas_.epilogues, ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
  EXPECT_EQ(own_sums, 1);
  MatrixProducts without(nullptr, gpu_, own_kernels, Choice::fastest);
  EXPECT_EQ(run_bias_backward(without), 3.0F);
  EXPECT_EQ(own_products, 1);
  EXPECT_EQ(own_sums, 2);
}

// The epilogue overwrites.
TEST_F(MatrixProductsTest, ABiassGradientIsAddedByOurKernels) {
  set_algorithms({3.0, 1.0});
  MatrixProducts products = made();
  for (int time = 1; time <= 2; ++time) {
    EXPECT_EQ(run_bias_backward(products, true), 103.0F);
    EXPECT_EQ(own_sums, time);
  }
  EXPECT_EQ(gpu_.timings, 2);
  EXPECT_THAT(blas_.searched, ElementsAre(CUBLASLT_EPILOGUE_DEFAULT));
}

TEST_F(MatrixProductsTest, WithoutALibraryOurKernelsActivate) {
  MatrixProducts products(nullptr, gpu_, own_kernels, Choice::fastest);
  EXPECT_NEAR(run_forward(products, true), 0.0F, rounding);
  EXPECT_NEAR(run_backward(products), -7 * 0.86737F, 3 * rounding);
  EXPECT_EQ(own_activations, 2);
  EXPECT_EQ(own_additions, 0);
}

TEST_F(MatrixProductsTest, AFailureAtAnyCallLeadsToOurOwnKernelAndLeavesNothingBehind) {
  set_algorithms({2.0, 1.0});
  int calls = 0;
  for (blas_.failing_call = -1; blas_.failing_call < std::max(calls, 1); ++blas_.failing_call) {
    blas_.calls = 0;
    {
      MatrixProducts products = made();
      // Without the fused bias there is a second way before our own kernel.
      try {
        const float result = run(products, {.has_bias = true});
        EXPECT_TRUE(result == 13.0F || result == -7.0F) << result << blas_.failing_call;
      } catch (const CudaOutOfMemory&) {
        // … unless memory is what it lacked: that passes.
        EXPECT_EQ(run(products, {.has_bias = true}), 13.0F);
      }
    }
    if (blas_.failing_call < 0) calls = blas_.calls;
    EXPECT_EQ(blas_.alive, 0) << "after a failure of call " << blas_.failing_call;
  }
  EXPECT_GT(calls, 15);
}

// Our own kernel would serve the shape from then on, and hide it.
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
    }
    if (blas_.failing_call < 0) calls = blas_.calls;
    lacks += lacks_memory ? 1 : 0;
    if (!lacks_memory) continue;
    // With memory again all is as if it had not been.
    gpu_.free_memory_bytes = std::size_t{1} << 40;
    EXPECT_EQ(run(products), 3.0F) << "after a failure of call " << blas_.failing_call;
    EXPECT_EQ(blas_.runs.back(), 1) << "after a failure of call " << blas_.failing_call;
  }
  // Handle, description, layouts, preference, and 13 runs: two that load, ten timed, one that
  // counts.
  EXPECT_EQ(lacks, 6 + 13);
}

TEST_F(MatrixProductsTest, NeitherDoesOneWithAnActivation) {
  int calls = 0;
  for (blas_.failing_call = -1; blas_.failing_call < std::max(calls, 1); ++blas_.failing_call) {
    blas_.calls = 0;
    {
      MatrixProducts products = made(Choice::first);
      try {
        const float result = run_forward(products, true);
        EXPECT_TRUE(std::abs(result - activated) < rounding || std::abs(result) < 1e-6F)
            << result << blas_.failing_call;
      } catch (const CudaOutOfMemory&) {
        EXPECT_NEAR(run_forward(products, true), activated, rounding);
      }
    }
    if (blas_.failing_call < 0) calls = blas_.calls;
    EXPECT_EQ(blas_.alive, 0) << "after a failure of call " << blas_.failing_call;
  }
  EXPECT_GT(calls, 25);
}

TEST_F(MatrixProductsTest, NeitherDoesOneWithABiassGradient) {
  int calls = 0;
  for (blas_.failing_call = -1; blas_.failing_call < std::max(calls, 1); ++blas_.failing_call) {
    blas_.calls = 0;
    {
      MatrixProducts products = made(Choice::first);
      try {
        EXPECT_EQ(run_bias_backward(products), 3.0F) << blas_.failing_call;
      } catch (const CudaOutOfMemory&) {
        EXPECT_EQ(run_bias_backward(products), 3.0F);
      }
    }
    if (blas_.failing_call < 0) calls = blas_.calls;
    EXPECT_EQ(blas_.alive, 0) << "after a failure of call " << blas_.failing_call;
  }
  EXPECT_GT(calls, 20);
}

}  // namespace
}  // namespace dstune::kernels::test
