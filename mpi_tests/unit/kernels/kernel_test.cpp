#include "kernel_test.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

namespace dstune::kernels::test {
namespace {

constexpr std::int64_t guard_elements = 16;

std::uint16_t to_bfloat16(double value) {
  const float narrow = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(narrow);
  if (std::isnan(narrow)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  const std::uint32_t half = 0x8000;
  std::uint32_t upper = bits >> 16;
  const std::uint32_t rest = bits & 0xffff;
  if (rest > half || (rest == half && (upper & 1) != 0)) ++upper;
  return static_cast<std::uint16_t>(upper);
}

double from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Arithmetic in double is another way than the kernels'.
std::uint16_t to_float16(double value) {
  const float narrow = static_cast<float>(value);
  const unsigned sign = std::signbit(narrow) ? 0x8000U : 0U;
  if (std::isnan(narrow)) return static_cast<std::uint16_t>(sign | 0x7e00U);
  const double magnitude = std::abs(static_cast<double>(narrow));
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  // Eleven bits down from the highest, but no bit below 2^-24.
  const int unit = std::max(exponent - 11, -24);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, -unit)), unit);
  if (rounded >= 65536.0) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (rounded < 0x1p-14)
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(rounded * 0x1p24));
  const int power = std::ilogb(rounded);
  const auto fraction = static_cast<unsigned>(std::ldexp(rounded, 10 - power)) - 0x400U;
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(power + 15) << 10 | fraction);
}

double decoded_float16(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0x1f) {
    return sign * (fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::infinity());
  }
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 0x400, exponent - 25));
}

/// Tests read millions of them.
double from_float16(std::uint16_t bits) {
  static const Values all = [] {
    Values values;
    for (unsigned each = 0; each <= 0xffffU; ++each)
      values.push_back(decoded_float16(static_cast<std::uint16_t>(each)));
    return values;
  }();
  return all[bits];
}

}  // namespace

Buffer::Buffer(DType type, std::int64_t count)
    : type_(type),
      count_(count),
      bytes_(element_bytes() * static_cast<std::size_t>(count + guard_elements)) {
  for (std::int64_t i = 0; i < count_ + guard_elements; ++i)
    set(i, std::numeric_limits<double>::quiet_NaN());
}

Buffer::Buffer(DType type, const Values& values)
    : Buffer(type, static_cast<std::int64_t>(values.size())) {
  for (std::int64_t i = 0; i < count_; ++i) set(i, values[static_cast<std::size_t>(i)]);
}

bool Buffer::operator==(const Buffer& other) const {
  finish_kernels();
  return bytes_ == other.bytes_;
}

Values Buffer::values() const {
  finish_kernels();
  for (std::int64_t i = count_; i < count_ + guard_elements; ++i)
    EXPECT_TRUE(std::isnan(get(i))) << "written " << i - count_ + 1 << " past the end";
  Values values;
  values.reserve(static_cast<std::size_t>(count_));
  for (std::int64_t i = 0; i < count_; ++i) values.push_back(get(i));
  return values;
}

void Buffer::set(std::int64_t index, double value) {
  std::byte* to = bytes_.data() + element_bytes() * static_cast<std::size_t>(index);
  if (type_ == DType::f32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(to, &narrow, sizeof(narrow));
  } else {
    const std::uint16_t narrow = type_ == DType::bf16 ? to_bfloat16(value) : to_float16(value);
    std::memcpy(to, &narrow, sizeof(narrow));
  }
}

double Buffer::get(std::int64_t index) const {
  const std::byte* from = bytes_.data() + element_bytes() * static_cast<std::size_t>(index);
  if (type_ == DType::f32) {
    float narrow = 0.0F;
    std::memcpy(&narrow, from, sizeof(narrow));
    return narrow;
  }
  std::uint16_t narrow = 0;
  std::memcpy(&narrow, from, sizeof(narrow));
  return type_ == DType::bf16 ? from_bfloat16(narrow) : from_float16(narrow);
}

Workspace::Workspace(std::size_t bytes)
    : memory_(offset + bytes + guard_elements, std::byte{0xff}) {}

void Workspace::check() const {
  finish_kernels();
  EXPECT_TRUE(std::all_of(memory_.end() - guard_elements, memory_.end(), [](std::byte byte) {
    return byte == std::byte{0xff};
  })) << "written past the end of the workspace";
}

Values random_values(std::int64_t count, std::uint64_t seed, double scale) {
  // Most tests begin with the same ones: kept, they are made once.
  static std::map<std::pair<std::uint64_t, double>, Values> all;
  Values& values = all[{seed, scale}];
  for (auto i = static_cast<std::int64_t>(values.size()); i < count; ++i) {
    const std::uint64_t hash = counter_hash(seed, 7, static_cast<std::uint64_t>(i));
    const double uniform = static_cast<double>(hash >> 11) * 0x1p-53 * 2.0 - 1.0;
    values.push_back(from_float16(to_float16(from_bfloat16(to_bfloat16(uniform * scale)))));
  }
  return {values.begin(), values.begin() + count};
}

Tokens random_tokens(std::int64_t count, std::int32_t vocabulary, std::uint64_t seed) {
  Tokens tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t hash = counter_hash(seed, 8, static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(vocabulary)));
  }
  return tokens;
}

void expect_close(const Values& actual, const Values& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0.0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // Written so that a NaN fails.
    if (!(std::abs(actual[i] - expected[i]) <= tolerance * largest)) {
      ADD_FAILURE() << what << "[" << i << "] is " << actual[i] << ", expected " << expected[i]
                    << "; the largest is " << largest;
      return;
    }
  }
}

double activation_value(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return 0.5 * x *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::relu:
      return x > 0.0 ? x : 0.0;
    case Activation::silu:
      return x / (1.0 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double activation_slope(Activation activation, double x) {
  constexpr double step = 1e-5;
  return (activation_value(activation, x + step) - activation_value(activation, x - step)) /
         (2.0 * step);
}

double dot(const Values& a, const Values& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Values numeric_gradient(const std::function<double(const Values&)>& f, Values x) {
  constexpr double step = 1e-5;
  Values gradient;
  for (double& coordinate : x) {
    const double middle = coordinate;
    coordinate = middle + step;
    const double above = f(x);
    coordinate = middle - step;
    const double below = f(x);
    coordinate = middle;
    gradient.push_back((above - below) / (2.0 * step));
  }
  return gradient;
}

void KernelTest::SetUp() {
  const std::string& name = std::get<0>(GetParam());
  std::string why_not;
  table_ = find_table(name, why_not);
  if (table_ == nullptr) GTEST_SKIP() << name << ": " << why_not;
}

std::string parameter_name(const testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  const DType type = std::get<1>(info.param);
  return std::get<0>(info.param) + (type == DType::f32    ? "_in_f32"
                                    : type == DType::bf16 ? "_in_bf16"
                                                          : "_in_f16");
}

}  // namespace dstune::kernels::test
