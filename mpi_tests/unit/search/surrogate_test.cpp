#include "surrogate.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace dstune {
namespace {

/// `count` points on a line and one feature that means nothing.
Points line(std::size_t count) {
  Points points;
  points.num_features = 2;
  points.size = count;
  for (std::size_t point = 0; point < count; ++point) {
    points.features.push_back(static_cast<double>(point) / static_cast<double>(count - 1));
    points.features.push_back(static_cast<double>(point % 2));
  }
  return points;
}

TEST(SurrogateTest, PassesThroughWhatWasMeasuredAndIsUnsureFarAway) {
  const Points points = line(21);
  Surrogate surrogate(points);
  const std::vector<Sample> samples = {{0, 0.0, 1e-3}, {5, 0.2, 1e-3}, {10, 0.1, 1e-3}};
  surrogate.learn(samples);
  surrogate.condition(samples);
  for (const Sample& sample : samples) {
    EXPECT_NEAR(surrogate.at(sample.point).mean, sample.value, 5e-3);
    EXPECT_LT(surrogate.at(sample.point).deviation, 5e-3);
  }
  EXPECT_GT(surrogate.at(20).deviation, 5 * surrogate.at(5).deviation);
}

TEST(SurrogateTest, LearnsALinearEffectFromFewSamples) {
  const Points points = line(41);
  Surrogate surrogate(points);
  std::vector<Sample> samples;
  for (const std::size_t point : {0, 7, 12, 21, 26, 33})
    samples.push_back({point, 0.3 * points[point][0], 1e-3});
  surrogate.learn(samples);
  surrogate.condition(samples);
  EXPECT_NEAR(surrogate.at(40).mean, 0.3, 0.03);
}

TEST(SurrogateTest, ADifferenceIsSurerThanItsPartsWhereTheyMoveTogether) {
  const Points points = line(41);
  Surrogate surrogate(points);
  const std::vector<Sample> samples = {{0, 0.1, 1e-3}};
  surrogate.condition(samples);
  const Posterior difference = surrogate.difference(38, 40);
  EXPECT_NEAR(difference.mean, surrogate.at(38).mean - surrogate.at(40).mean, 1e-12);
  EXPECT_LT(difference.deviation, surrogate.at(38).deviation);
  EXPECT_DOUBLE_EQ(surrogate.difference(7, 7).deviation, 0);
}

TEST(SurrogateTest, TheChanceOfAnyAgreesWithTheChanceOfOne) {
  const Points points = line(11);
  Surrogate surrogate(points);
  const std::vector<Sample> samples = {{0, 0.0, 1e-3}, {4, 0.05, 1e-2}};
  surrogate.condition(samples);
  const Surrogate::Challenger challenger{10, -0.02};
  Posterior posterior = surrogate.difference(challenger.point, 4);
  posterior.mean += challenger.offset;
  EXPECT_NEAR(surrogate.chance_of_any(std::vector{challenger}, 4, 7), chance_above_zero(posterior),
              0.04);
  // Of several the chance is at least that of one, and no more than their sum.
  const std::vector<Surrogate::Challenger> challengers = {challenger, {8, -0.02}, {2, -0.02}};
  const double any = surrogate.chance_of_any(challengers, 4, 7);
  EXPECT_GE(any, surrogate.chance_of_any(std::vector{challenger}, 4, 7) - 0.04);
  EXPECT_EQ(any, surrogate.chance_of_any(challengers, 4, 7)) << "the same seed, the same draws";
}

TEST(SurrogateTest, IsHonestAboutWhatItDoesNotKnow) {
  // Half of the points measured, the others held against what is believed of them: of standard
  // deviations, few are far off.
  std::mt19937_64 random(3);
  const Points points = line(40);
  int outside = 0;
  int all = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto phase = static_cast<double>(random() % 1000) / 100;
    std::vector<double> truth;
    for (std::size_t point = 0; point < points.size; ++point)
      truth.push_back(0.1 * std::sin(5 * points[point][0] + phase) + 0.05 * points[point][1]);
    std::vector<Sample> samples;
    for (std::size_t point = 0; point < points.size; ++point)
      if (random() % 3 == 0) samples.push_back({point, truth[point], 2e-3});
    if (samples.size() < 5) continue;
    Surrogate surrogate(points);
    surrogate.learn(samples);
    surrogate.condition(samples);
    for (std::size_t point = 0; point < points.size; ++point) {
      const Posterior posterior = surrogate.at(point);
      outside +=
          std::abs(truth[point] - posterior.mean) > 2.58 * posterior.deviation + 1e-3 ? 1 : 0;
      ++all;
    }
  }
  EXPECT_LT(outside, all / 20);
}

TEST(PosteriorTest, ChancesAndExcessesOfANormalNumber) {
  EXPECT_DOUBLE_EQ(chance_above_zero({0, 1}), 0.5);
  EXPECT_NEAR(chance_above_zero({1.959964, 1}), 0.975, 1e-6);
  EXPECT_EQ(chance_above_zero({-1, 0}), 0);
  EXPECT_NEAR(expected_improvement({0, 1}), 1 / std::sqrt(2 * 3.14159265358979), 1e-9);
  EXPECT_EQ(expected_improvement({-1, 0}), 0);
  EXPECT_EQ(expected_improvement({2, 0}), 2);
}

}  // namespace
}  // namespace dstune
