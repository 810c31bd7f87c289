#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "dstune/core/interval.hpp"
#include "step_series.hpp"

namespace dstune {
namespace {

TEST(SpreadTest, PoolsTheRunsOfEachConfiguration) {
  EXPECT_EQ(spread_of({{1}, {2}, {}}).degrees_of_freedom, 0);
  // Logarithms -1 and 1 around 0, -2, 0, 2 around 0: squares 2 + 8 over 1 + 2 degrees.
  const double e = std::exp(1);
  const Spread spread = spread_of({{1 / e, e}, {5 / (e * e), 5, 5 * e * e}, {7}});
  EXPECT_NEAR(spread.deviation, std::sqrt(10.0 / 3), 1e-12);
  EXPECT_EQ(spread.degrees_of_freedom, 3);
}

TEST(SpreadTest, IsBelievedToBeOnePercentUntilRunsSayOtherwise) {
  EXPECT_DOUBLE_EQ(pooled_spread({}).deviation, 0.01);
  EXPECT_EQ(pooled_spread({0.05, 2}).degrees_of_freedom, 6);
  EXPECT_GT(pooled_spread({0.05, 2}).deviation, 0.02);
  EXPECT_LT(pooled_spread({0, 8}).deviation, 0.006);
}

TEST(RaceTest, LooksAtFewMomentsOnly) {
  const IncumbentEstimate estimate{1, 0, 0.01, 4};
  for (std::size_t steps = 2; steps < 400; ++steps) {
    const auto& looks = default_policy().racing.looks;
    const bool is_look = std::ranges::find(looks, steps) != looks.end();
    EXPECT_EQ(has_lost_race(std::vector<double>(steps, 2.0), estimate), is_look) << steps;
  }
  EXPECT_FALSE(has_lost_race(std::vector<double>(5, 2.0), {})) << "no bar";
}

TEST(RaceTest, OnePercentIsAlwaysAllowed) {
  const IncumbentEstimate exact{1, 0, 0, 4};
  EXPECT_FALSE(has_lost_race(std::vector<double>(5, 1.0099), exact));
  EXPECT_TRUE(has_lost_race(std::vector<double>(5, 1.0101), exact));
}

// Steps of one run differ by a factor where something interrupts them; one alone tells little.
TEST(RaceTest, OneStepDecidesWhereItIsHopeless) {
  const IncumbentEstimate estimate{0.1, 0.001, 0.01, 4};
  EXPECT_FALSE(has_lost_race({0.5}, estimate));
  EXPECT_TRUE(has_lost_race({0.6}, estimate));
  EXPECT_FALSE(has_lost_race({0.6}, {0.1, 0.1, 0.1, 4})) << "the best is hardly known";
  EXPECT_FALSE(has_lost_race({0.6}, {})) << "no bar";
}

// A fifth and what runs differ by show in two steps of the engine.
TEST(RaceTest, TwoStepsDecideWhereBothAreLong) {
  const IncumbentEstimate estimate{1, 0.01, 0.01, 4};
  EXPECT_TRUE(has_lost_race_early({1.32, 1.36}, estimate));
  EXPECT_FALSE(has_lost_race_early({1.28, 1.28}, estimate));
  EXPECT_FALSE(has_lost_race_early({1.1, 9}, estimate)) << "something interrupted one of them";
  EXPECT_FALSE(has_lost_race_early({1.36, 1.36}, {1, 0.04, 0.04, 4})) << "runs differ";
  EXPECT_FALSE(has_lost_race_early({1.36, 1.36}, {})) << "no bar";
}

TEST(RaceTest, ThreeStepsDecideMore) {
  const IncumbentEstimate estimate{1, 0.01, 0.01, 4};
  EXPECT_TRUE(has_lost_race_early({1.21, 1.22, 1.21}, estimate));
  EXPECT_FALSE(has_lost_race_early({1.18, 1.18, 1.18}, estimate));
  for (const std::size_t steps : {1, 4, 5})
    EXPECT_FALSE(has_lost_race_early(std::vector<double>(steps, 9), estimate)) << steps;
}

TEST(RaceTest, AColdStepDecidesWhereNothingColdExplainsIt) {
  const IncumbentEstimate estimate{0.1, 0.001, 0.01, 4};
  EXPECT_FALSE(has_lost_race_cold(11, estimate)) << "code may be compiled for so long";
  EXPECT_FALSE(has_lost_race_cold(1.9, estimate)) << "nor is 19 times as long enough";
  EXPECT_TRUE(has_lost_race_cold(34, estimate));
  EXPECT_FALSE(has_lost_race_cold(34, {1.5, 0.001, 0.01, 4}));
  EXPECT_FALSE(has_lost_race_cold(34, {})) << "no bar";
}

/// A race as it is run: an incumbent that was measured once, or also repeated, and a challenger of
/// another true speed. Every run has a mean of its own.
class SimulatedRaces {
 public:
  SimulatedRaces(double spread, double autocorrelation, int repeats)
      : spread_(spread), autocorrelation_(autocorrelation), repeats_(repeats) {}

  /// Share of challengers, this much slower than the incumbent in truth, that are stopped.
  double share_stopped(double slower_by) {
    constexpr int races = 1500;
    int stopped = 0;
    for (int race = 0; race < races; ++race) {
      const IncumbentEstimate estimate = incumbent();
      test::StepSeries challenger = run_of(1 + slower_by);
      std::vector<double> timed_s;
      bool has_lost = false;
      while (!has_lost && timed_s.size() < default_policy().racing.looks.back()) {
        timed_s.push_back(challenger.next());
        has_lost = has_lost_race(timed_s, estimate);
      }
      stopped += has_lost ? 1 : 0;
    }
    return static_cast<double>(stopped) / races;
  }

 private:
  test::StepSeries run_of(double mean_s) {
    return {generator_, test::mean_of_run(generator_, mean_s, spread_), 0.03, autocorrelation_};
  }

  IncumbentEstimate incumbent() {
    std::vector<double> means_s;
    double square_error = 0;
    for (int run = 0; run <= repeats_; ++run) {
      const MeanEstimate step = estimate_mean(run_of(1).take(100));
      means_s.push_back(step.mean);
      square_error += std::pow(step.standard_error / step.mean, 2);
    }
    return estimate_incumbent(means_s, square_error / static_cast<double>(means_s.size()),
                              pooled_spread(spread_of({means_s})));
  }

  std::mt19937_64 generator_{19};
  double spread_;
  double autocorrelation_;
  int repeats_;
};

TEST(RaceTest, AChallengerThatIsTwoPercentBetterIsHardlyEverStopped) {
  for (const int repeats : {0, 2}) {
    for (const double autocorrelation : {0.0, 0.5, 0.8}) {
      const double share = SimulatedRaces(0.02, autocorrelation, repeats).share_stopped(-0.02);
      RecordProperty("stopped_" + std::to_string(autocorrelation), std::to_string(share));
      EXPECT_LE(share, 0.01) << autocorrelation << ' ' << repeats;
    }
  }
}

TEST(RaceTest, AnEqualChallengerIsRarelyStopped) {
  EXPECT_LE(SimulatedRaces(0.02, 0.8, 2).share_stopped(0), 0.03);
}

TEST(RaceTest, AChallengerThatIsTenPercentWorseIsMostlyStopped) {
  for (const int repeats : {0, 2}) {
    const double share = SimulatedRaces(0.02, 0.8, repeats).share_stopped(0.10);
    RecordProperty("stopped_" + std::to_string(repeats), std::to_string(share));
    EXPECT_GE(share, 0.6) << repeats;
  }
  EXPECT_GE(SimulatedRaces(0.01, 0.8, 2).share_stopped(0.10), 0.9);
  EXPECT_EQ(SimulatedRaces(0.02, 0.8, 2).share_stopped(0.30), 1);
}

}  // namespace
}  // namespace dstune
