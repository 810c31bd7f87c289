#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

double half(double value) {
  return Buffer(DType::f16, Values{value}).values()[0];
}

struct Quantized {
  KernelVector<std::uint8_t> codes;
  KernelVector<float> scales;
  bool operator==(const Quantized&) const = default;
};

/// A code as a number.
int code_of(const Quantized& quantized, std::int64_t i, int bits) {
  if (bits == 8) return static_cast<std::int8_t>(quantized.codes[static_cast<std::size_t>(i)]);
  const int nibble = quantized.codes[static_cast<std::size_t>(i / 2)] >> (i % 2 * 4) & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

class QuantizationTest : public KernelTest {
 protected:
  [[nodiscard]] Quantized quantize(const Buffer& x, std::int64_t count, std::int64_t group,
                                   int bits) const {
    Quantized result{KernelVector<std::uint8_t>(static_cast<std::size_t>(count * bits / 8)),
                     KernelVector<float>(static_cast<std::size_t>(count / group))};
    table().quantize(type(), bits, result.codes.data(), result.scales.data(), x.data(), count,
                     group);
    finish_kernels();
    return result;
  }
};

TEST_P(QuantizationTest, CodesAreTheNearestOfAnEvenScale) {
  run_in_way(2);
  for (const int bits : {8, 4}) {
    for (const std::int64_t group : {8, 24, 7992}) {
      const std::int64_t count = 5 * group;
      Values values = random_values(count, static_cast<std::uint64_t>(group));
      for (std::size_t i = 0; i < static_cast<std::size_t>(group); ++i) values[i] *= 300;
      std::fill_n(values.begin() + group, group, 0.0);
      const Buffer x = typed(values);
      const Quantized found = quantize(x, count, group, bits);
      const Values stored = x.values();
      for (std::int64_t run = 0; run < 5; ++run) {
        double largest = 0;
        for (std::int64_t i = run * group; i < (run + 1) * group; ++i)
          largest = std::max(largest, std::abs(half(stored[static_cast<std::size_t>(i)])));
        const double scale = largest == 0 ? 1 : 2 * largest / (1 << bits);
        EXPECT_NEAR(found.scales[static_cast<std::size_t>(run)], scale, 1e-6 * scale);
        for (std::int64_t i = run * group; i < (run + 1) * group; ++i) {
          const double exact = half(stored[static_cast<std::size_t>(i)]) / scale;
          const double most = (1 << (bits - 1)) - 1;
          const int code = code_of(found, i, bits);
          ASSERT_LE(std::abs(code - std::min(exact, most)), 0.5 + 1e-4) << exact;
        }
      }
    }
  }
}

TEST_P(QuantizationTest, CodesStandForSumsOfHalves) {
  run_in_way(2);
  for (const int bits : {8, 4}) {
    for (const int parts : {1, 3}) {
      const std::int64_t group = 40, count = 120;
      std::vector<Quantized> each;
      Quantized all;
      Values expected(static_cast<std::size_t>(count));
      for (int part = 0; part < parts; ++part) {
        const Values values = random_values(count, static_cast<std::uint64_t>(part));
        const Quantized one = quantize(typed(values), count, group, bits);
        for (std::int64_t i = 0; i < count; ++i) {
          const double scale = one.scales[static_cast<std::size_t>(i / group)];
          expected[static_cast<std::size_t>(i)] += half(code_of(one, i, bits) * scale) / 2;
        }
        all.codes.insert(all.codes.end(), one.codes.begin(), one.codes.end());
        all.scales.insert(all.scales.end(), one.scales.begin(), one.scales.end());
      }
      Buffer y = poisoned(count);
      table().dequantize(type(), bits, y.data(), all.codes.data(), all.scales.data(), count, group,
                         parts, 2);
      expect_close(y.values(), expected, tolerance(), "sums");
    }
  }
}

TEST_P(QuantizationTest, WhatIsNotFiniteSpoilsItsRunAlone) {
  for (const double broken :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const int bits : {8, 4}) {
      Values values = random_values(64, 1);
      values[21] = broken;
      const Quantized found = quantize(typed(values), 64, 16, bits);
      Buffer y = poisoned(64);
      table().dequantize(type(), bits, y.data(), found.codes.data(), found.scales.data(), 64, 16, 1,
                         1);
      const Values back = y.values();
      for (std::size_t i = 0; i < 64; ++i)
        EXPECT_EQ(std::isfinite(back[i]), i / 16 != 1) << i << " of " << bits << " bits";
    }
  }
}

TEST_P(QuantizationTest, IsTheSameInAllWays) {
  const std::int64_t count = (is_emulated() ? 4 : 64) * 800;
  const Buffer x = typed(random_values(count, 3));
  expect_same_in_all_ways([&] { return quantize(x, count, 800, 4); });
}

DSTUNE_FOR_TABLES(QuantizationTest);

}  // namespace
}  // namespace dstune::kernels::test
