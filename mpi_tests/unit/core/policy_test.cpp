#include "dstune/core/policy.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/policy_changes.hpp"

namespace dstune {
namespace {

/// Takes the place of any member.
struct Anything {
  template <class Type>
  operator Type() const;  // NOLINT(google-explicit-constructor)
};

/// The number of an aggregate's members.
template <class Group, class... Taken>
constexpr std::size_t num_members() {
  if constexpr (requires { Group{Taken{}..., Anything{}}; })
    return num_members<Group, Taken..., Anything>();
  else
    return sizeof...(Taken);
}

TEST(PolicyTest, ANumberCanBeChangedByItsName) {
  const double tolerated = default_policy().racing.tolerated;
  EXPECT_TRUE(change_policy("racing.tolerated", 2));
  EXPECT_EQ(default_policy().racing.tolerated, 2 * tolerated);
  EXPECT_TRUE(change_policy("racing.tolerated", 0.5));
  EXPECT_EQ(default_policy().racing.tolerated, tolerated);

  ASSERT_EQ(default_policy().tries.tries_after_loss, 2);
  EXPECT_TRUE(change_policy("tries.tries_after_loss", 0.1));
  EXPECT_EQ(default_policy().tries.tries_after_loss, 1) << "a count is never 0";
  EXPECT_TRUE(change_policy("tries.tries_after_loss", 2));

  const double knob = default_policy().surrogate.knob.start;
  EXPECT_TRUE(change_policy("surrogate.knob", 2));
  EXPECT_DOUBLE_EQ(default_policy().surrogate.knob.start, knob + std::log(2)) << "a logarithm";
  EXPECT_TRUE(change_policy("surrogate.knob", 0.5));
  EXPECT_DOUBLE_EQ(default_policy().surrogate.knob.start, knob);
  EXPECT_TRUE(change_policy("surrogate.knob.freedom", 2));
  EXPECT_EQ(default_policy().surrogate.knob.freedom, 2);
  EXPECT_TRUE(change_policy("surrogate.knob.freedom", 0.5));
  EXPECT_FALSE(change_policy("surrogate.knob.start", 2));

  EXPECT_FALSE(change_policy("racing.looks", 2)) << "a list";
  EXPECT_FALSE(change_policy("tolerated", 2));
}

TEST(PolicyTest, EveryChoiceHasARowWithItsReason) {
  const json::Value groups = policy_json(default_policy());
  EXPECT_EQ(groups.size(), num_members<Policy>());
  const auto expect_rows = [&](const char* name, std::size_t count) {
    EXPECT_EQ(groups.at(name).size(), count + 1) << name << ": and its source";
    for (const auto& [key, row] : groups.at(name).items()) {
      if (key == "source") continue;
      EXPECT_FALSE(row.at("value").is_null()) << key;
      EXPECT_FALSE(row.at("unit").get<std::string>().empty()) << key;
      EXPECT_FALSE(row.at("reason").get<std::string>().empty()) << key;
    }
  };
  expect_rows("timeouts", num_members<Policy::Timeouts>());
  expect_rows("tries", num_members<Policy::Tries>());
  expect_rows("intervals", num_members<Policy::Intervals>());
  expect_rows("racing", num_members<Policy::Racing>());
  expect_rows("measuring", num_members<Policy::Measuring>());
  expect_rows("answering", num_members<Policy::Answering>());
  expect_rows("runs", num_members<Policy::Runs>());
  expect_rows("repeating", num_members<Policy::Repeating>());
  expect_rows("flags", num_members<Policy::Flags>());
  expect_rows("calibrating", num_members<Policy::Calibrating>());
  expect_rows("planning", num_members<Policy::Planning>());
  expect_rows("race", num_members<Policy::Race>());
  expect_rows("surrogate", num_members<Policy::Surrogate>());
  expect_rows("memory", num_members<Policy::Memory>());
  expect_rows("sizes", num_members<Policy::Sizes>());
  expect_rows("model_based", num_members<Policy::ModelBased>());
  expect_rows("verifying", num_members<Policy::Verifying>());
  expect_rows("predicting", num_members<Policy::Predicting>());
  expect_rows("profiling", num_members<Policy::Profiling>());
}

TEST(PolicyTest, ShowsWhatWasSet) {
  Policy policy;
  policy.race.cap_share = 0.5;
  policy.surrogate.own = {-2, 1};
  const json::Value groups = policy_json(policy);
  EXPECT_EQ(groups.at("race").at("cap_share").at("value"), 0.5);
  EXPECT_EQ(groups.at("surrogate").at("own").at("value").at("start"), -2);
  EXPECT_EQ(policy_json(default_policy()).at("race").at("cap_share").at("value"), 0.35);
}

TEST(PolicyTest, DecidesWhatItIsGivenTo) {
  Policy policy;
  policy.racing.tolerated = 0.5;
  policy.intervals.least_correlation_of_few = 0.6;
  policy.measuring.slices_of_budget = 1;
  const std::vector<double> steps_s(5, 1.2);
  EXPECT_TRUE(has_lost_race(steps_s, {.step_s = 1}));
  EXPECT_FALSE(has_lost_race(steps_s, {.step_s = 1}, policy));
  const std::vector<double> few = {1, 2, 1, 2, 1};
  EXPECT_GT(mean_interval(few, policy.intervals).high, mean_interval(few).high);
  EXPECT_EQ(MeasureOptions{.trial_budget_s = 3}.slice_s(policy.measuring), 3);
}

}  // namespace
}  // namespace dstune
