// A load that lasts is found by the runs before and after it, and taken off the runs under it.
#include "dstune/ranking/loads.hpp"

#include <chrono>
#include <cmath>

#include <gtest/gtest.h>

#include "dstune/ranking/run_again.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

/// Runs of 1 s, one after the other, with errors of 1 %.
class LoadsTest : public testing::Test {
 protected:
  /// A member that is believed to take `predicted_s` a step takes `step_s`.
  bool run(std::size_t member, double step_s, std::optional<double> predicted_s = std::nullopt) {
    RunFacts facts;
    facts.run = runs_[member]++;
    facts.begin_s = now_s_;
    facts.end_s = now_s_ += 1;
    facts.log_speed = -std::log(step_s);
    facts.error = 0.01;
    loads_.add(member, facts, predicted_s ? std::optional(-std::log(*predicted_s)) : std::nullopt);
    return loads_.update();
  }
  double expected(std::size_t member, std::size_t run = 0) {
    return loads_.of(member, run).expected;
  }

  Loads loads_;
  std::map<std::size_t, std::size_t> runs_;
  double now_s_ = 0;
};

TEST_F(LoadsTest, ThereIsNoneWhereRunsOfAMemberAgree) {
  for (std::size_t member = 0; member < 8; ++member) {
    run(member, 1 + 0.1 * static_cast<double>(member), 1.02 + 0.1 * static_cast<double>(member));
    run(0, member % 2 == 0 ? 1.01 : 0.99, 1.02);
  }
  for (std::size_t member = 0; member < 8; ++member) EXPECT_NEAR(expected(member), 0, 0.01);
  EXPECT_FALSE(loads_.is_in_doubt());
}

TEST_F(LoadsTest, ControlsTellHowMuchSlowerTheRunsBetweenThemWere) {
  run(0, 1);
  run(1, 1.2);
  run(0, 1.5);
  run(2, 2.1);
  run(3, 1.8);
  run(0, 1.5);
  run(4, 1.1);
  run(0, 1);
  const double load = std::log(1.5);
  for (const std::size_t member : {2U, 3U}) EXPECT_NEAR(expected(member), load, 0.05);
  for (const std::size_t control : {1U, 2U}) EXPECT_NEAR(expected(0, control), load, 0.05);
  EXPECT_NEAR(expected(0), 0, 0.03);
  EXPECT_NEAR(expected(0, 3), 0, 0.03);
}

TEST_F(LoadsTest, WhatRanFirstUnderALoadIsValuedAnewWhenItHasGone) {
  for (std::size_t member = 0; member < 5; ++member) run(member, 1.5, 1);
  EXPECT_NEAR(expected(0), 0, 0.05) << "nothing tells it from a slow machine";
  run(5, 1, 1);
  EXPECT_TRUE(loads_.is_in_doubt());
  EXPECT_TRUE(run(0, 1, 1));
  for (std::size_t member = 0; member < 5; ++member)
    EXPECT_NEAR(expected(member), std::log(1.5), 0.06);
  EXPECT_NEAR(expected(5), 0, 0.03);
}

TEST_F(LoadsTest, OneRunThatIsMuchSlowerThanPredictedIsInDoubtUntilAControl) {
  for (std::size_t member = 0; member < 6; ++member) run(member, 1, 1);
  EXPECT_FALSE(loads_.is_in_doubt());
  run(6, 1.6, 1);
  EXPECT_TRUE(loads_.is_in_doubt());
  run(0, 1, 1);
  EXPECT_FALSE(loads_.is_in_doubt());
  EXPECT_LT(expected(6), 0.15) << "its knobs are slow";
}

TEST_F(LoadsTest, WhatIsForgottenTellsNothing) {
  run(0, 1);
  run(0, 1.5);
  run(0, 1.5);
  EXPECT_GT(loads_.now().expected, 0.2);
  loads_.forget(0);
  loads_.update();
  EXPECT_EQ(loads_.now().expected, 0);
  EXPECT_EQ(expected(0, 1), 0);
}

}  // namespace
}  // namespace dstune
