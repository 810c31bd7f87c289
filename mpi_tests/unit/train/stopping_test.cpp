#include "stopping.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "step_series.hpp"

namespace dstune::train {
namespace {

TEST(WarmupRuleTest, GivenTimesNeedExactlyTheLeastNumberOfSteps) {
  const WarmupRule rule({.start_profile_step = 3}, true);
  EXPECT_FALSE(rule.is_over({5, 1}));
  EXPECT_TRUE(rule.is_over({5, 1, 9}));
}

// Libraries that choose their algorithms may take half of the budget in the very first step.
TEST(WarmupRuleTest, WhatTheWorkloadNeedsIsNeverTimed) {
  const WarmupRule rule({.start_profile_step = 0, .trial_budget_s = 10}, false, 3);
  EXPECT_FALSE(rule.is_over({}));
  EXPECT_FALSE(rule.is_over({6}));
  EXPECT_FALSE(rule.is_over({6, 1}));
  EXPECT_TRUE(rule.is_over({6, 1, 2}));
  EXPECT_FALSE(WarmupRule({.start_profile_step = 4}, true, 3).is_over({1, 1, 1}));
}

TEST(WarmupRuleTest, EndsWhenThreeStepsAreWithinFivePercentOfTheThreeBefore) {
  const WarmupRule rule({.start_profile_step = 3, .trial_budget_s = 1000}, false);
  EXPECT_FALSE(rule.is_over({3, 2, 1}));
  EXPECT_FALSE(rule.is_over({3, 2, 1, 1, 1, 1}));
  EXPECT_FALSE(rule.is_over({1.06, 1.06, 1.06, 1, 1, 1}));
  EXPECT_TRUE(rule.is_over({9, 1.04, 1.04, 1.04, 1, 1, 1}));
}

TEST(WarmupRuleTest, EndsAfterTenMoreStepsOrHalfOfTheBudget) {
  std::vector<double> falling;
  for (int step = 0; step < 12; ++step) falling.push_back(std::pow(0.5, step));
  const WarmupRule rule({.start_profile_step = 3, .trial_budget_s = 1000}, false);
  EXPECT_FALSE(rule.is_over(falling));
  falling.push_back(1e-4);
  EXPECT_TRUE(rule.is_over(falling));
  EXPECT_TRUE(
      WarmupRule({.start_profile_step = 3, .trial_budget_s = 12}, false).is_over({3, 2, 1}));
}

std::size_t steps_taken(TimingRule rule, double (*time_of)(std::size_t)) {
  std::vector<double> times;
  do {
    times.push_back(time_of(times.size()));
  } while (rule.decide(times, {}) == StoppingDecision::go_on);
  return times.size();
}

TEST(TimingRuleTest, TakesAtLeastFiveStepsAndWhatWasAskedFor) {
  const auto constant = [](std::size_t) { return 0.5; };
  EXPECT_EQ(steps_taken(TimingRule({3, 5, 100}), constant), 5U);
  EXPECT_EQ(steps_taken(TimingRule({3, 14, 100}), constant), 12U);
  EXPECT_EQ(steps_taken(TimingRule({3, 5, 0.1}), constant), 5U);
}

TEST(TimingRuleTest, StepsWithoutLengthEndAtTheLeastNumber) {
  EXPECT_EQ(steps_taken(TimingRule({3, 5, 10}), [](std::size_t) { return 0.0; }), 5U);
}

TEST(TimingRuleTest, GoesOnWhileTheIntervalIsWide) {
  const auto noisy = [](std::size_t step) { return step % 2 == 0 ? 1.0 : 1.2; };
  const std::size_t steps = steps_taken(TimingRule({3, 5, 1e6}), noisy);
  EXPECT_GT(steps, 5U);
  EXPECT_LT(steps, 1000U);
  EXPECT_EQ(
      steps_taken(TimingRule({3, 5, 8.0 * default_policy().measuring.slices_of_budget}), noisy),
      8U);
}

// The interval at the moment at which it was narrow enough to stop: the one that is reported.
TEST(TimingRuleTest, TheIntervalAtItsEndCoversTheMean) {
  std::mt19937_64 generator(3);
  for (const double autocorrelation : {0.0, 0.5, 0.8}) {
    for (const double deviation : {0.01, 0.03, 0.1}) {
      constexpr int runs = 600;
      int covered = 0;
      for (int run = 0; run < runs; ++run) {
        TimingRule rule({.trial_budget_s = 200});
        test::StepSeries series(generator, 1, deviation, autocorrelation);
        std::vector<double> times;
        do {
          times.push_back(series.next());
        } while (rule.decide(times, {}) == StoppingDecision::go_on);
        const Interval interval = mean_interval(times);
        covered += interval.low <= 1 && 1 <= interval.high ? 1 : 0;
      }
      // Ending at a narrow interval is ending at a lucky one, a little.
      EXPECT_GE(covered, 0.87 * runs) << autocorrelation << ' ' << deviation;
      EXPECT_LE(covered, 0.99 * runs) << autocorrelation << ' ' << deviation;
    }
  }
}

TEST(TimingRuleTest, ALostRaceEndsAtALook) {
  const IncumbentEstimate incumbent{1, 0.001, 0.01, 4};
  TimingRule rule({3, 5, 1e6});
  std::vector<double> times;
  StoppingDecision verdict = StoppingDecision::go_on;
  while (verdict == StoppingDecision::go_on) {
    times.push_back(times.size() % 2 == 0 ? 1.5 : 1.52);
    verdict = rule.decide(times, incumbent);
    EXPECT_EQ(rule.has_looked(), times.size() == 5 || verdict != StoppingDecision::go_on);
  }
  EXPECT_EQ(verdict, StoppingDecision::lost);
  EXPECT_EQ(times.size(), 5U);
}

}  // namespace
}  // namespace dstune::train
