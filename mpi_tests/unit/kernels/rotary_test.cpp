#include <cmath>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

class RotaryTest : public KernelTest {};

TEST_P(RotaryTest, TurnsQueriesAndKeysAndBack) {
  struct Size {
    std::int64_t head, rotated;
  };
  for (const auto& [head_size, rotary_size] :
       {Size{6, 6}, Size{64, 64}, Size{160, 160}, Size{64, 16}, Size{12, 6}}) {
    const AttentionShape shape{.batch = 2,
                               .sequence = 9,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_size = head_size,
                               .type = type()};
    const std::int64_t all_heads = shape.heads + 2 * shape.kv_heads;
    const float magnitude = head_size == 12 ? 1.25F : 1.0F;
    const Values frequencies = random_values(rotary_size / 2, 2);
    const Values qkv = random_values(shape.batch * shape.sequence * all_heads * head_size, 1);
    Values expected = qkv;
    for (std::size_t head = 0; head < qkv.size() / static_cast<std::size_t>(head_size); ++head) {
      const auto position = static_cast<std::int64_t>(head) / all_heads % shape.sequence;
      if (static_cast<std::int64_t>(head) % all_heads >= shape.heads + shape.kv_heads) continue;
      for (std::int64_t i = 0; i < rotary_size / 2; ++i) {
        const double angle =
            static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
        const double cosine = magnitude * std::cos(angle);
        const double sine = magnitude * std::sin(angle);
        const std::size_t low =
            head * static_cast<std::size_t>(head_size) + static_cast<std::size_t>(i);
        const std::size_t high = low + static_cast<std::size_t>(rotary_size / 2);
        expected[low] = qkv[low] * cosine - qkv[high] * sine;
        expected[high] = qkv[high] * cosine + qkv[low] * sine;
      }
    }
    const KernelVector<double> typed_frequencies(frequencies.begin(), frequencies.end());
    Buffer turned = typed(qkv);
    table().rotary(shape, rotary_size, turned.data(), typed_frequencies.data(), magnitude, false);
    expect_close(turned.values(), expected, tolerance(), "turned");
    table().rotary(shape, rotary_size, turned.data(), typed_frequencies.data(), 1 / magnitude,
                   true);
    expect_close(turned.values(), qkv, tolerance(), "turned back");
  }
}

DSTUNE_FOR_TABLES(RotaryTest);

}  // namespace
}  // namespace dstune::kernels::test
