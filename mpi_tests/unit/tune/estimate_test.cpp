#include "control/estimate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;
using Kind = TimeEstimate::Kind;

/// So many members, of which as many run at once.
std::vector<TimeEstimate::Member> members_of(std::size_t count, int num_at_once = 1) {
  return std::vector<TimeEstimate::Member>(count, {.num_at_once = num_at_once});
}

TimeEstimate::Expected expected(double first_runs, double finals = 0, double final_s = 0) {
  return {.first_runs = ExpectedRuns::exactly(first_runs),
          .finals = ExpectedRuns::exactly(finals),
          .final_s = final_s};
}

/// Runs members one after the other, from one on; returns when the last one ended.
double run(TimeEstimate& estimate, std::size_t first, std::size_t count, double each_s,
           double from_s) {
  for (std::size_t member = first; member < first + count; ++member) {
    estimate.started(member, member, Kind::first, from_s);
    from_s += each_s;
    estimate.ended(member, from_s, true);
  }
  return from_s;
}

TEST(TimeEstimateTest, SaysNothingBeforeTheFirstRunHasEnded) {
  TimeEstimate estimate(members_of(3));
  EXPECT_FALSE(estimate.left(expected(3), 1));
  estimate.started(1, 0, Kind::first, 1);
  EXPECT_FALSE(estimate.left(expected(2), 2));
  estimate.ended(1, 3, true);
  EXPECT_TRUE(estimate.left(expected(2), 3));
  EXPECT_FALSE(estimate.left({}, 3)) << "nobody says how many are left";
}

TEST(TimeEstimateTest, AGridTakesAsLongAsItsMembersDid) {
  TimeEstimate estimate(members_of(10));
  const double now_s = run(estimate, 0, 4, 2, 5);
  const auto left = estimate.left(expected(6), now_s);
  ASSERT_TRUE(left);
  EXPECT_THAT(left->seconds, DoubleNear(12, 1e-9));
  EXPECT_THAT(left->assumes, HasSubstr("about 6 more experiments of 2.00 s"));
  EXPECT_THAT(left->assumes, Not(HasSubstr("at once")));
  EXPECT_LT(left->low_s, 12);
  EXPECT_GT(left->high_s, 12);
  EXPECT_GT(left->low_s, 6);
  EXPECT_LT(left->high_s, 24);
}

TEST(TimeEstimateTest, PausesBetweenRunsGoOn) {
  TimeEstimate estimate(members_of(10));
  double now_s = 0;
  for (std::size_t member = 0; member < 5; ++member)
    now_s = run(estimate, member, 1, 2, member > 0 ? now_s + 1 : 0);
  EXPECT_THAT(estimate.left(expected(5), now_s)->seconds, DoubleNear(14, 1e-9));
}

TEST(TimeEstimateTest, SeveralAtOnceTakeAShareOfTheTime) {
  TimeEstimate estimate(members_of(12, 2));
  for (std::size_t member = 0; member < 4; member += 2) {
    const auto begin_s = static_cast<double>(member);
    estimate.started(member, member, Kind::first, begin_s);
    estimate.started(member + 1, member + 1, Kind::first, begin_s);
    estimate.ended(member, begin_s + 2, true);
    estimate.ended(member + 1, begin_s + 2, true);
  }
  const auto left = estimate.left(expected(8), 4);
  EXPECT_THAT(left->seconds, DoubleNear(8, 1e-9));
  EXPECT_THAT(left->assumes, HasSubstr("of 2.00 s, 2 at once"));
}

TEST(TimeEstimateTest, LargerGroupsThatAreLeftRunOneByOne) {
  std::vector<TimeEstimate::Member> members = members_of(8, 4);
  members.resize(12, {.num_at_once = 1});
  TimeEstimate estimate(members);
  for (std::size_t member = 0; member < 8; ++member)
    estimate.started(member, member, Kind::first, member < 4 ? 0 : 2);
  for (std::size_t member = 0; member < 8; ++member)
    estimate.ended(member, member < 4 ? 2 : 4, true);
  EXPECT_THAT(estimate.left(expected(4), 4)->seconds, DoubleNear(8, 1e-9));
}

TEST(TimeEstimateTest, LongerStepsThatAreLeftTakeLongerWherePredictionsHold) {
  for (const bool holds : {true, false}) {
    std::vector<TimeEstimate::Member> members;
    for (int member = 0; member < 12; ++member)
      members.push_back({.num_at_once = 1, .predicted_step_s = 0.1 * (member + 1)});
    TimeEstimate estimate(members);
    double now_s = 0, rest_s = 0;
    for (std::size_t member = 0; member < 12; ++member) {
      const double duration_s = holds ? 1 + 10 * members[member].predicted_step_s : 5;
      if (member < 6)
        now_s = run(estimate, member, 1, duration_s, now_s);
      else
        rest_s += duration_s;
    }
    EXPECT_THAT(estimate.left(expected(6), now_s)->seconds, DoubleNear(rest_s, 1e-6)) << holds;
  }
}

TEST(TimeEstimateTest, ATunerChoosesWhatTakesAsLongAsItsLastChoices) {
  std::vector<TimeEstimate::Member> members(100, {.num_at_once = 1, .predicted_step_s = 9});
  TimeEstimate estimate(members);
  const double now_s = run(estimate, 0, 20, 1, 0);
  EXPECT_THAT(estimate.left(expected(10), now_s)->seconds, DoubleNear(10, 1e-9));
}

TEST(TimeEstimateTest, RunsUnderWayHaveTheirRestToGo) {
  TimeEstimate estimate(members_of(6));
  const double now_s = run(estimate, 0, 4, 4, 0);
  estimate.started(4, 4, Kind::first, now_s);
  EXPECT_THAT(estimate.left(expected(1), now_s + 1)->seconds, DoubleNear(7, 0.5));
  EXPECT_GT(estimate.left(expected(0), now_s + 9)->seconds, 0) << "it takes longer than others";
}

TEST(TimeEstimateTest, WhatIsKnownIsNotExpected) {
  TimeEstimate estimate({{.num_at_once = 2}, {.num_at_once = 1}, {.num_at_once = 1}});
  estimate.known(0);
  const double now_s = run(estimate, 1, 1, 2, 0);
  EXPECT_THAT(estimate.left(expected(1), now_s)->seconds, DoubleNear(2, 1e-9));
}

TEST(TimeEstimateTest, FinalsFollowAndAreCountedByTheirOwnTimes) {
  TimeEstimate estimate(members_of(4));
  double now_s = run(estimate, 0, 4, 2, 0);
  auto left = estimate.left(expected(0, 6, 3), now_s);
  EXPECT_THAT(left->seconds, DoubleNear(18, 1.2));
  EXPECT_THAT(left->assumes, HasSubstr("finals of about 6 runs"));
  for (std::uint64_t number = 10; number < 12; ++number) {
    estimate.started(number, 0, Kind::final, now_s);
    now_s += 1;
    estimate.ended(number, now_s, true);
  }
  // The tuner's own count does not matter any more.
  left = estimate.left(expected(3, 4, 3), now_s);
  EXPECT_THAT(left->seconds, DoubleNear(4, 1e-9));
  EXPECT_THAT(left->assumes, HasSubstr("about 4 more runs of the finals"));
}

TEST(TimeEstimateTest, TheTimeLimitEndsItSooner) {
  TimeEstimate estimate(members_of(100));
  const double now_s = run(estimate, 0, 10, 2, 0);
  TimeEstimate::Expected limited = expected(90);
  limited.time_left_s = 30;
  const auto left = estimate.left(limited, now_s);
  EXPECT_THAT(left->seconds, DoubleNear(30, 1e-9));
  EXPECT_LE(left->high_s, 30);
  EXPECT_THAT(left->assumes, HasSubstr("time limit"));
  EXPECT_THAT(estimate.left(expected(90), now_s)->assumes, Not(HasSubstr("time limit")));
}

TEST(TimeEstimateTest, DoubtOfCountsWidensTheEnds) {
  TimeEstimate estimate(members_of(100));
  const double now_s = run(estimate, 0, 10, 1, 0);
  TimeEstimate::Expected doubtful = expected(0);
  doubtful.first_runs = ExpectedRuns{10, 4, 30};
  const auto left = estimate.left(doubtful, now_s);
  EXPECT_THAT(left->seconds, DoubleNear(10, 1e-9));
  EXPECT_LT(left->low_s, 4);
  EXPECT_GT(left->high_s, 30);
}

}  // namespace
}  // namespace dstune
