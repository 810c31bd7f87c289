#include "stopping.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "step_series.hpp"

namespace dstune::train {
namespace {

constexpr MeasureOptions unasked{.start_profile_step = 3, .trial_budget_s = 1000};
constexpr MeasureOptions asked{
    .start_profile_step = 3, .trial_budget_s = 1000, .asks_for_warmup = true};
constexpr WarmupNeed unknown{.least = 1, .is_watched = true};
constexpr WarmupNeed warm{.least = 1, .is_watched = false};

/// How many of these steps are warm-up; all of them where it is not over.
std::size_t warmup_of(const WarmupRule& rule, const std::vector<double>& series) {
  std::vector<double> so_far;
  for (const double step_s : series) {
    if (rule.is_over(so_far)) break;
    so_far.push_back(step_s);
  }
  return so_far.size();
}

TEST(WarmupRuleTest, GivenTimesNeedExactlyTheLeastNumberOfSteps) {
  const WarmupRule rule(unasked, {.has_simulated_times = true}, unknown);
  EXPECT_EQ(warmup_of(rule, {5, 1, 9, 1, 1}), 3U);
}

TEST(WarmupRuleTest, WarmCodeWarmsUpByOneStep) {
  const WarmupRule rule(unasked, {}, warm);
  EXPECT_EQ(warmup_of(rule, {9, 1, 1, 1}), 1U);
  EXPECT_EQ(warmup_of(rule, {1, 9, 1, 1}), 1U);
}

TEST(WarmupRuleTest, NewCodeWarmsUpUntilAStepIsNoShorterThanTheOneBefore) {
  const WarmupRule rule(unasked, {}, unknown);
  EXPECT_EQ(warmup_of(rule, {1, 1, 1, 1}), 2U);
  EXPECT_EQ(warmup_of(rule, {1.04, 1, 1, 1}), 2U) << "noise";
  EXPECT_EQ(warmup_of(rule, {9, 1, 1, 1}), 3U);
  EXPECT_EQ(warmup_of(rule, {9, 3, 1, 1, 1}), 4U) << "they clearly still fall";
}

TEST(WarmupRuleTest, StepsThatDoNotSettleEndIt) {
  std::vector<double> falling;
  for (int step = 0; step < 20; ++step) falling.push_back(std::pow(0.5, step));
  EXPECT_EQ(warmup_of(WarmupRule(unasked, {}, unknown), falling), 13U);
  // Half of a slice is over, but not before as many steps as there were at least.
  const MeasureOptions short_slice{.start_profile_step = 3, .trial_budget_s = 5};
  EXPECT_EQ(warmup_of(WarmupRule(short_slice, {}, unknown), falling), 3U);
}

TEST(WarmupRuleTest, AUsersNumberHoldsWhateverIsWarm) {
  EXPECT_EQ(warmup_of(WarmupRule(asked, {}, warm), {1, 1, 1, 1, 1}), 3U);
  EXPECT_EQ(warmup_of(WarmupRule(asked, {}, warm), {9, 9, 9, 1, 1, 1}), 3U);
  EXPECT_EQ(warmup_of(WarmupRule(asked, {}, unknown), {9, 8, 4, 1, 1, 1}), 5U);
  MeasureOptions none = asked;
  none.start_profile_step = 0;
  EXPECT_EQ(warmup_of(WarmupRule(none, {}, warm), {9, 1}), 1U);
}

// Libraries that choose their algorithms may take half of the budget in the very first step.
TEST(WarmupRuleTest, WhatTheWorkloadNeedsIsNeverTimed) {
  const MeasureOptions short_slice{.start_profile_step = 0, .trial_budget_s = 10};
  const WarmupRule rule(short_slice, {}, {.least = 3});
  EXPECT_EQ(warmup_of(rule, {6, 1, 2, 1}), 3U);
}

TEST(WarmupRuleTest, WhatStayedBuiltWarmsUpByWhatItsTurnSays) {
  EXPECT_EQ(warmup_of(WarmupRule(KeptRun{.steps = 8}), {9, 1}), 1U);
  EXPECT_EQ(warmup_of(WarmupRule(KeptRun{.steps = 8, .warmup_steps = 0}), {9, 1}), 0U);
}

TEST(SettledTest, LongStepsBeforeTheOthersAreCounted) {
  EXPECT_EQ(steps_until_settled({9, 3, 1}, {1, 1, 1}), 2);
  EXPECT_EQ(steps_until_settled({9, 1, 3}, {1, 1, 1}), 1) << "an interruption";
  EXPECT_EQ(steps_until_settled({9, 3}, {1, 1, 1}), 2);
  EXPECT_EQ(steps_until_settled({1, 1}, {1, 1, 1}), 1) << "a first step may always be cold";
  EXPECT_EQ(steps_until_settled({}, {1, 1, 1}), 1);
}

TEST(SettledTest, TheNextRunWarmsUpByWhatTheFirstOneTook) {
  SettledSteps settled;
  EXPECT_EQ(settled.need_of("z1"), WarmupNeed{});
  settled.note("z1", 2);
  settled.note("z1", 1);
  EXPECT_EQ(settled.need_of("z1"), (WarmupNeed{.least = 2, .is_watched = false}));
  EXPECT_EQ(settled.need_of("z2"), WarmupNeed{});
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

TEST(TimingRuleTest, OnlyWorkloadsOfLongStepsLoseEarly) {
  const IncumbentEstimate best{.step_s = 1, .spread = 0.01, .degrees_of_freedom = 4};
  const std::vector<double> slow = {1.3, 1.3};
  for (const bool is_raced_early : {false, true}) {
    TimingRule rule(unasked, {.is_raced_early = is_raced_early});
    EXPECT_EQ(rule.is_race_look(2), is_raced_early);
    EXPECT_TRUE(rule.is_race_look(5));
    EXPECT_EQ(rule.decide({1.3}, best), StoppingDecision::go_on);
    EXPECT_EQ(rule.decide(slow, best),
              is_raced_early ? StoppingDecision::lost : StoppingDecision::go_on);
    EXPECT_EQ(rule.has_looked(), is_raced_early) << "the leader's verdict counts";
  }
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

TEST(TimingRuleTest, AHopelessChallengerEndsAtItsFirstStep) {
  const IncumbentEstimate incumbent{1, 0.001, 0.01, 4};
  TimingRule hopeless({3, 5, 1e6});
  EXPECT_EQ(hopeless.decide({5.5}, incumbent), StoppingDecision::lost);
  EXPECT_TRUE(hopeless.has_looked());
  TimingRule slow({3, 5, 1e6});
  EXPECT_EQ(slow.decide({4.5}, incumbent), StoppingDecision::go_on);
  EXPECT_TRUE(slow.has_looked()) << "the leader alone knows the incumbent";
  EXPECT_EQ(slow.decide({4.5, 4.5}, incumbent), StoppingDecision::go_on);
  EXPECT_FALSE(slow.has_looked());
}

TEST(TimingRuleTest, ALostRaceEndsAtALook) {
  const IncumbentEstimate incumbent{1, 0.001, 0.01, 4};
  TimingRule rule({3, 5, 1e6});
  std::vector<double> times;
  StoppingDecision verdict = StoppingDecision::go_on;
  while (verdict == StoppingDecision::go_on) {
    times.push_back(times.size() % 2 == 0 ? 1.5 : 1.52);
    verdict = rule.decide(times, incumbent);
    EXPECT_EQ(rule.has_looked(), times.size() == 1 || times.size() == 5);
  }
  EXPECT_EQ(verdict, StoppingDecision::lost);
  EXPECT_EQ(times.size(), 5U);
}

}  // namespace
}  // namespace dstune::train
