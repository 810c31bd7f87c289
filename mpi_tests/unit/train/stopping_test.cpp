#include "stopping.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace dstune::train {
namespace {

TEST(WarmupRuleTest, GivenTimesNeedExactlyTheLeastNumberOfSteps) {
  const WarmupRule rule({.start_profile_step = 3}, true);
  EXPECT_FALSE(rule.is_over({5, 1}));
  EXPECT_TRUE(rule.is_over({5, 1, 9}));
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
  } while (!rule.is_over(times));
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
  EXPECT_EQ(steps_taken(TimingRule({3, 5, 8}), noisy), 8U);
}

}  // namespace
}  // namespace dstune::train
