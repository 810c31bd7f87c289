#pragma once
/// What the tests of matrix products have in common: products by a fake of cuBLASLt, on a fake of a
/// GPU whose clock the test sets, and kernels of ours that can be told from it.

#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/kernels/cuda.hpp"
#include "fake_blas.hpp"
#include "fake_gpu.hpp"
#include "libraries/matrix_products.hpp"

namespace dstune::kernels::test {

using cuda::Choice;
using cuda::MatrixProducts;

inline int own_additions = 0;
inline int own_activations = 0;
inline int own_sums = 0;

/// Equal elements, more than any matrix here has.
class Elements {
 public:
  Elements(DType type, float value) : type_(type) {
    cpu_table("portable")->fill(type, memory_, value, most);
  }
  [[nodiscard]] const void* at(int offset = 0) const { return memory_ + offset * element_bytes(); }
  [[nodiscard]] void* at(int offset = 0) { return memory_ + offset * element_bytes(); }
  /// That all of the first `count` from there on have.
  [[nodiscard]] float value(std::int64_t count, int offset = 0) {
    float values[most];
    cpu_table("portable")->convert(DType::f32, values, type_, at(offset), count);
    for (std::int64_t i = 1; i < count; ++i) EXPECT_EQ(values[i], values[0]);
    return values[0];
  }

 private:
  static constexpr int most = 40;
  [[nodiscard]] int element_bytes() const { return type_ == DType::f32 ? 4 : 2; }

  DType type_;
  alignas(16) char memory_[4 * most];
};

/// The elements are equal.
inline void own_add_bias(const MatmulShape& shape, const void* bias, void* c) {
  ++own_additions;
  float sum = 0.0F;
  float added = 0.0F;
  const Table& table = *cpu_table("portable");
  table.convert(DType::f32, &sum, shape.out_type, c, 1);
  table.convert(DType::f32, &added, shape.type, bias, 1);
  table.fill(shape.out_type, c, sum + added, shape.m * shape.n);
}

inline void own_activation_forward(DType type, Activation activation, void* out, const void* x,
                                   std::int64_t count) {
  ++own_activations;
  cpu_table("portable")->activation_forward(type, activation, out, x, count);
}

inline void own_activation_backward(DType type, Activation activation, void* d_x, const void* d_out,
                                    const void* x, std::int64_t count) {
  ++own_activations;
  cpu_table("portable")->activation_backward(type, activation, d_x, d_out, x, count);
}

inline void own_bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                              std::int64_t width, std::int64_t stride, bool accumulate,
                              void* workspace) {
  ++own_sums;
  cpu_table("portable")
      ->bias_backward(type, d_bias, d_out, rows, width, stride, accumulate, workspace);
}

inline void own_add(DType to, void* y, DType from, const void* x, std::int64_t count) {
  ++own_additions;
  cpu_table("portable")->add(to, y, from, x, count);
}

inline constexpr MatrixProducts::OwnKernels own_kernels{
    own_add_bias, own_activation_forward, own_activation_backward, own_bias_backward, own_add};

class MatrixProductsFixture : public testing::Test {
 protected:
  MatrixProductsFixture() {
    own_additions = own_activations = own_sums = 0;
    gpu_.clock = [this] {
      return seconds_[static_cast<std::size_t>(blas_.runs.back())] +
             more_seconds_[blas_.epilogues.back()];
    };
  }
  ~MatrixProductsFixture() override {
    EXPECT_EQ(blas_.fault, "");
    EXPECT_EQ(gpu_.taken, 0);
  }

  /// An algorithm for each, that takes so long.
  void set_algorithms(std::vector<double> seconds) {
    blas_.algorithms = static_cast<int>(seconds.size());
    seconds_ = std::move(seconds);
  }

  static constexpr MatmulShape in_bf16{
      .m = 2, .n = 8, .k = 3, .type = DType::bf16, .out_type = DType::bf16};

  MatrixProducts made(Choice choice = Choice::fastest) {
    return {&FakeBlas::functions(), gpu_, own_kernels, choice};
  }

  /// Lets each of the calls fail in turn that the run makes, which throws or gives what it is to.
  /// Nothing is left behind. How many calls there are.
  template <class Run>
  int fail_each_call(Choice choice, Run&& run) {
    int calls = 1;
    for (blas_.failing_call = -1; blas_.failing_call < calls; ++blas_.failing_call) {
      SCOPED_TRACE(blas_.failing_call);
      blas_.calls = 0;
      {
        MatrixProducts products = made(choice);
        try {
          run(products);
        } catch (const CudaOutOfMemory&) {
          // Memory may be there the next time.
          run(products);
        } catch (const std::runtime_error& error) {
          ++refusals_;
          EXPECT_THAT(error.what(), testing::HasSubstr("cuBLASLt does not multiply"));
        }
      }
      if (blas_.failing_call < 0) calls = blas_.calls;
      EXPECT_EQ(blas_.alive, 0);
    }
    return calls;
  }

  int refusals_ = 0;
  FakeBlas blas_;
  FakeGpu gpu_;
  std::vector<double> seconds_ = {1.0};
  std::map<cublasLtEpilogue_t, double> more_seconds_;
  std::vector<char> workspace_ = std::vector<char>(MatrixProducts::workspace_bytes);
};

}  // namespace dstune::kernels::test
