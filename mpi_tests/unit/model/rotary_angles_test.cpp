#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/model/model_spec.hpp"

namespace dstune {
namespace {

ModelSpec with(const RopeScaling& rope, double theta) {
  ModelSpec model = preset("llama-7b");
  model.head_size = 64;
  model.rope_theta = theta;
  model.rope = rope;
  return model;
}

void expect_frequencies(const ModelSpec& model, std::int64_t length,
                        const std::vector<std::pair<std::size_t, double>>& expected) {
  const RotaryAngles angles = rotary_angles(model, length);
  ASSERT_EQ(angles.frequencies.size(), 32U);
  for (const auto& [number, frequency] : expected)
    EXPECT_NEAR(angles.frequencies[number], frequency, 1e-12 * frequency) << number;
}

// Values of transformers 5.23, computed in double precision.
TEST(RotaryAnglesTest, LlamaThreeDividesLowFrequencies) {
  const ModelSpec model =
      with({.kind = RopeKind::llama3, .factor = 32, .original_positions = 8192}, 500'000);
  expect_frequencies(model, 1024,
                     {{0, 1},
                      {8, 0.037606030930863933},
                      {12, 0.0072926647372171085},
                      {15, 0.0012905479282092638},
                      {20, 8.5702554898814781e-06},
                      {31, 9.4183067254349087e-08}});
}

TEST(RotaryAnglesTest, YarnRamps) {
  const ModelSpec model = with({.kind = RopeKind::yarn,
                                .factor = 4,
                                .original_positions = 32768,
                                .attention_factor = 1.138629436111989},
                               1'000'000);
  expect_frequencies(model, 1024,
                     {{0, 1},
                      {8, 0.031622776601683791},
                      {12, 0.005154795480911533},
                      {15, 0.0010266176840396614},
                      {20, 4.4456985250973067e-05},
                      {31, 3.8498163151487298e-07}});
  EXPECT_EQ(rotary_angles(model, 1024).magnitude, 1.138629436111989);
}

TEST(RotaryAnglesTest, LinearDividesAll) {
  expect_frequencies(with({.kind = RopeKind::linear, .factor = 4}, 10'000), 1024,
                     {{0, 0.25}, {8, 0.025}, {31, 3.3338035804083099e-05}});
}

TEST(RotaryAnglesTest, LongRopeGoesByTheSequencesLength) {
  RopeScaling rope{.kind = RopeKind::longrope, .original_positions = 64, .attention_factor = 1.5};
  rope.short_factor.assign(32, 1.0);
  rope.long_factor.assign(32, 2.0);
  const ModelSpec model = with(rope, 10'000);
  expect_frequencies(model, 64, {{0, 1}, {8, 0.1}});
  expect_frequencies(model, 65, {{0, 0.5}, {8, 0.05}});
  EXPECT_EQ(rotary_angles(model, 64).magnitude, 1.5);
}

}  // namespace
}  // namespace dstune
