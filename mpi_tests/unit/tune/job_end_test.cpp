#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "start/time_budget.hpp"

namespace dstune {
namespace {

using Clock = std::chrono::system_clock;

std::optional<TimeLimit> find(std::optional<double> option_s,
                              const std::map<std::string, const char*>& variables, double now_s) {
  const auto look_up = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  };
  const Clock::time_point now(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(now_s)));
  return find_time_limit(option_s, look_up, now);
}

TEST(TimeLimitTest, OptionGoesBeforeTheBatchSystem) {
  const auto limit = find(90.0, {{"SLURM_JOB_END_TIME", "5000"}}, 1000);

  ASSERT_TRUE(limit);
  EXPECT_DOUBLE_EQ(limit->left_s, 90);
  EXPECT_EQ(limit->source, "--time-limit");
}

TEST(TimeLimitTest, SlurmSaysWhenTheJobEnds) {
  const auto limit = find(std::nullopt, {{"SLURM_JOB_END_TIME", "5000"}}, 1000);

  ASSERT_TRUE(limit);
  EXPECT_NEAR(limit->left_s, 4000, 1e-6);
  EXPECT_EQ(limit->source, "SLURM_JOB_END_TIME");
}

TEST(TimeLimitTest, NonsenseIsPassedOver) {
  EXPECT_FALSE(find(std::nullopt, {{"SLURM_JOB_END_TIME", "soon"}}, 1000));
  const auto limit =
      find(std::nullopt, {{"SLURM_JOB_END_TIME", "12:00"}, {"SCR_END_TIME", "1500"}}, 1000);
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->source, "SCR_END_TIME");
}

TEST(TimeBudgetTest, CountsFromTheStartOfTheProgram) {
  JobOptions options;
  options.time_limit_s = 100;
  options.reserve_s = 10;
  options.began = SteadyClock::now() - std::chrono::seconds(45);
  const TimeBudget budget = time_budget(options);
  ASSERT_TRUE(budget.end_at);
  EXPECT_NEAR(seconds(*budget.end_at - options.began), 90, 1e-6);
  EXPECT_NEAR(budget.used_share(), 0.5, 0.05);
  EXPECT_FALSE(budget.is_over());
  options.began -= std::chrono::seconds(60);
  EXPECT_TRUE(time_budget(options).is_over());
  EXPECT_EQ(time_budget(options).used_share(), 1);
}

TEST(TimeBudgetTest, ALimitBeyondNumbersIsFarAway) {
  for (const double limit_s : {std::numeric_limits<double>::infinity(), 1e300, 1e12}) {
    JobOptions options;
    options.time_limit_s = limit_s;
    const TimeBudget budget = time_budget(options);
    ASSERT_TRUE(budget.end_at);
    EXPECT_GT(seconds(*budget.end_at - SteadyClock::now()), 1e8) << limit_s;
    EXPECT_DOUBLE_EQ(budget.reserve_s, 60);
  }
  EXPECT_EQ(to_duration(std::numeric_limits<double>::quiet_NaN()), to_duration(far_away_s));
  EXPECT_EQ(to_duration(1e30), to_duration(far_away_s));
  EXPECT_EQ(to_duration(-1e30), -to_duration(far_away_s));
  EXPECT_EQ(to_duration(1.5), std::chrono::milliseconds(1500));
}

TEST(TimeBudgetTest, ALimitInThePastIsOver) {
  JobOptions options;
  options.time_limit_s = -5;
  const TimeBudget budget = time_budget(options);
  EXPECT_TRUE(budget.is_over());
  EXPECT_GE(budget.reserve_s, 0);
}

TEST(TimeLimitTest, NobodySays) {
  EXPECT_FALSE(find(std::nullopt, {}, 1000));
}

}  // namespace
}  // namespace dstune
