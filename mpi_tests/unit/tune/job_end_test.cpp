#include <map>
#include <string>

#include <gtest/gtest.h>

#include "control/controller.hpp"

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

TEST(TimeLimitTest, NobodySays) {
  EXPECT_FALSE(find(std::nullopt, {}, 1000));
}

}  // namespace
}  // namespace dstune
