#include <cmath>
#include <limits>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

const std::int64_t counts[] = {1, 7, 65, 4096, 40001};

class ElementwiseTest : public KernelTest {};

TEST_P(ElementwiseTest, AddScaleFillAndZero) {
  run_in_way(2);
  for (const std::int64_t count : counts) {
    const Values x = random_values(count, 1);
    const Values y = random_values(count, 2);
    Values sum = x;
    Values scaled = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum[i] += y[i];
      scaled[i] *= 0.75;
    }
    Buffer result = typed(x);
    table().add(type(), result.data(), type(), typed(y).data(), count);
    EXPECT_TRUE(result == typed(sum));
    Buffer wide(DType::f32, x);
    table().add(DType::f32, wide.data(), type(), typed(y).data(), count);
    EXPECT_TRUE(wide == Buffer(DType::f32, sum));
    result = typed(x);
    table().scale(type(), result.data(), 0.75F, count);
    EXPECT_TRUE(result == typed(scaled));
    result = poisoned(count);
    table().fill(type(), result.data(), -1.5F, count);
    EXPECT_TRUE(result == typed(Values(x.size(), -1.5)));
    result = poisoned(count);
    table().zero(result.data(), static_cast<std::size_t>(count) * (type() == DType::f32 ? 4 : 2));
    EXPECT_TRUE(result == typed(Values(x.size(), 0.0)));
  }
}

TEST_P(ElementwiseTest, ConvertsBothWays) {
  run_in_way(2);
  for (const std::int64_t count : counts) {
    Values fine;
    for (const double value : random_values(count, 1))
      fine.push_back(static_cast<float>(value * 1.01));
    const Buffer from(DType::f32, fine);
    Buffer to = poisoned(count);
    table().convert(type(), to.data(), DType::f32, from.data(), count);
    EXPECT_TRUE(to == typed(fine));
    Buffer back(DType::f32, count);
    table().convert(DType::f32, back.data(), type(), to.data(), count);
    EXPECT_TRUE(back == Buffer(DType::f32, to.values()));
    Buffer same = poisoned(count);
    table().convert(type(), same.data(), type(), to.data(), count);
    EXPECT_TRUE(same == to);
    for (const DType other : {DType::bf16, DType::f16}) {
      Buffer narrow(other, count);
      table().convert(other, narrow.data(), type(), to.data(), count);
      EXPECT_TRUE(narrow == Buffer(other, to.values()));
    }
  }
}

TEST_P(ElementwiseTest, RoundsTiesToEvenAndKeepsSpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Values values = {1.0, 1.00390625, 1.01171875, -1.00390625, 1.00390637, 3.4e38, -infinity,
                         infinity, 0.0, 1e-30, 65504.00001, -0.0,
                         // Halves: ties, the largest, the smallest, and those between.
                         1.00048828125, 1.00146484375, 65519.99, 65520.0, -65536.0, 1e5, 6.1e-5,
                         6.10352e-5, -5.9604645e-8, 2.9802322e-8, 2.9802326e-8, 8.9406967e-8,
                         3.0e-6, -6.097555e-5};
  const auto count = static_cast<std::int64_t>(values.size());
  Buffer to = poisoned(count);
  table().convert(type(), to.data(), DType::f32, Buffer(DType::f32, values).data(), count);
  EXPECT_TRUE(to == typed(values));
  const Buffer broken(DType::f32, Values{std::numeric_limits<double>::quiet_NaN()});
  Buffer kept = typed({1.0});
  table().convert(type(), kept.data(), DType::f32, broken.data(), 1);
  EXPECT_TRUE(std::isnan(kept.values()[0]));
}

TEST_P(ElementwiseTest, SumsAreExactAndTheSameInAllWays) {
  for (const std::int64_t count : {1, 7, 65, 4097, 300001}) {
    const Values x = random_values(count, 1);
    double sum = 0.0;
    for (const double value : x) sum += value;
    const Buffer typed_x = typed(x);
    const Buffer floats(DType::f32, x);
    // The sums are added to what is there.
    const auto squares = [&] {
      KernelVector<double> result(static_cast<std::size_t>(table().sum_doubles), 0.5);
      table().sum_of_squares(type(), typed_x.data(), count, result.data());
      finish_kernels();
      return result[0];
    };
    KernelVector<double> plain(static_cast<std::size_t>(table().sum_doubles), 0.5);
    table().sum_f32(static_cast<const float*>(floats.data()), count, plain.data());
    finish_kernels();
    // The bits are those of the numbers, wherever they lie.
    Values after_another{0.25};
    after_another.insert(after_another.end(), x.begin(), x.end());
    const Buffer moved = typed(after_another);
    KernelVector<double> of_moved(static_cast<std::size_t>(table().sum_doubles), 0.5);
    const std::size_t element_bytes = type() == DType::f32 ? 4 : 2;
    table().sum_of_squares(type(), static_cast<const char*>(moved.data()) + element_bytes, count,
                           of_moved.data());
    finish_kernels();
    EXPECT_EQ(of_moved[0], squares());
    EXPECT_NEAR(squares(), 0.5 + dot(x, x), 1e-12 * dot(x, x) + 1e-15);
    EXPECT_NEAR(plain[0], 0.5 + sum, 1e-12 * dot(x, x) + 1e-15);
    expect_same_in_all_ways(squares);
  }
}

TEST_P(ElementwiseTest, ClipFactorIsThatOfTheNorm) {
  const KernelVector<double> squares{9.0, 16.0, 144.0};
  const auto clipped = [&](std::int64_t count, double clip, double loss_scale) {
    KernelVector<double> norm(1);
    KernelVector<float> factor(1);
    table().clip_factor(squares.data(), count, clip, loss_scale, norm.data(), factor.data());
    finish_kernels();
    return std::pair(norm[0], factor[0]);
  };
  EXPECT_EQ(clipped(3, 2.0, 1.0), std::pair(13.0, static_cast<float>(1.0 / (13.000001 / 2.0))));
  EXPECT_EQ(clipped(2, 8.0, 1.0), std::pair(5.0, 1.0F));
  EXPECT_EQ(clipped(2, 8.0, 4.0), std::pair(1.25, 0.25F));
  EXPECT_EQ(clipped(2, 1.0, 4.0), std::pair(1.25, static_cast<float>(1.0 / (1.250001 * 4.0))));
}

TEST_P(ElementwiseTest, FillNormalFollowsTheFormula) {
  run_in_way(2);
  const std::int64_t count = 40001;
  const std::int64_t first = 12345678901;
  const double deviation = 0.02;
  Values expected;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t hash = counter_hash(42, 3, static_cast<std::uint64_t>(first + i));
    const double sum = static_cast<double>((hash & 0xffff) + ((hash >> 16) & 0xffff) +
                                           ((hash >> 32) & 0xffff) + (hash >> 48));
    expected.push_back((sum - 131070.0) * (deviation / std::sqrt((0x1p32 - 1.0) / 3.0)));
  }
  Buffer drawn = poisoned(count);
  table().fill_normal(type(), drawn.data(), 42, 3, first, count, deviation);
  EXPECT_TRUE(drawn == typed(expected));
  const double variance = dot(expected, expected) / static_cast<double>(count);
  EXPECT_NEAR(std::sqrt(variance), deviation, 0.02 * deviation);
}

DSTUNE_FOR_TABLES(ElementwiseTest);

}  // namespace
}  // namespace dstune::kernels::test
