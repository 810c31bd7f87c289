#pragma once
/// What the kernels' tests share: typed buffers with poison and a guard, comparison with references
/// in double, and the fixture that runs a test for every table and storage type.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "backend.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::test {

using Values = std::vector<double>;

/// Elements of a storage type. Starts as NaN everywhere; the elements past the end must stay so.
class Buffer {
 public:
  Buffer(DType type, std::int64_t count);
  /// The values rounded to the type.
  Buffer(DType type, const Values& values);

  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  float* floats() { return static_cast<float*>(data()); }
  /// The elements; fails the test where something wrote past the end.
  Values values() const;
  bool operator==(const Buffer& other) const;

 private:
  std::size_t element_bytes() const { return type_ == DType::f32 ? 4 : 2; }
  void set(std::int64_t index, double value);
  double get(std::int64_t index) const;

  DType type_;
  std::int64_t count_;
  KernelVector<std::byte> bytes_;
};

/// Scratch of as many bytes as were asked for, which begins where no wide element could.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);
  void* data() { return memory_.data() + offset; }
  /// Fails the test where something wrote past the end.
  void check() const;

 private:
  static constexpr std::size_t offset = 4;
  KernelVector<std::byte> memory_;
};

/// Uniform in [−scale, scale), the same for equal seeds, exactly representable in every type.
Values random_values(std::int64_t count, std::uint64_t seed, double scale = 1.0);
Tokens random_tokens(std::int64_t count, std::int32_t vocabulary, std::uint64_t seed);

/// Every difference at most `tolerance` × the largest expected magnitude.
void expect_close(const Values& actual, const Values& expected, double tolerance,
                  const std::string& what);

/// The activation's formula in double, and its slope by central differences.
double activation_value(Activation activation, double x);
double activation_slope(Activation activation, double x);

double dot(const Values& a, const Values& b);
/// Central differences of f at x, in every coordinate.
Values numeric_gradient(const std::function<double(const Values&)>& f, Values x);

/// What results in a type may be off by: fp32 sums, or one rounding to 8 or 11 bits.
constexpr double tolerance_of(DType type) {
  return type == DType::f32 ? 1e-5 : type == DType::bf16 ? 1e-2 : 2e-3;
}

/// A test for one table and one storage type.
class KernelTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  void SetUp() override;
  void TearDown() override { run_in_way(1); }

  const Table& table() const { return *table_; }
  DType type() const { return std::get<1>(GetParam()); }
  double tolerance() const { return tolerance_of(type()); }
  Buffer typed(const Values& values) const { return {type(), values}; }
  Buffer poisoned(std::int64_t count) const { return {type(), count}; }

 private:
  const Table* table_ = nullptr;
};

std::string parameter_name(const testing::TestParamInfo<std::tuple<std::string, DType>>& info);

#define DSTUNE_FOR_TABLES(fixture)                                                                 \
  INSTANTIATE_TEST_SUITE_P(Tables, fixture,                                                        \
                           testing::Combine(testing::ValuesIn(table_names()),                      \
                                            testing::Values(DType::f32, DType::bf16, DType::f16)), \
                           parameter_name)

/// What `run` returns must be equal, bit for bit, in all ways: with 1, 2 and 3 threads, or in other
/// orders of blocks and threads.
template <class Run>
void expect_same_in_all_ways(Run run) {
  run_in_way(1);
  const auto first = run();
  for (const int way : {2, 3}) {
    run_in_way(way);
    EXPECT_TRUE(run() == first) << "differs in way " << way;
  }
  run_in_way(1);
}

}  // namespace dstune::kernels::test
