#include "dstune/search/tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Members that are planned, with a micro-batch and a chain each.
PlannedSpace space_of(const std::vector<std::pair<std::int64_t, int>>& sizes_and_chains) {
  PlannedSpace space;
  for (const auto& [size, chain] : sizes_and_chains) {
    PlannedMember member;
    member.planned.experiment.config.micro_batch = size;
    if (chain >= 0) member.micro_batch_chain = chain;
    space.members.push_back(member);
  }
  return space;
}

PlannedSpace plain_space(int count) {
  return space_of(std::vector<std::pair<std::int64_t, int>>(count, {1, -1}));
}

Observation ended(Status status, std::optional<double> value = {}) {
  if (!value) return {status, std::nullopt};
  return {status, MetricValue{*value, *value, *value}};
}

std::vector<std::size_t> take_all(Tuner& tuner) {
  std::vector<std::size_t> taken;
  while (const auto index = tuner.next()) taken.push_back(*index);
  return taken;
}

TEST(TunerTest, GridsearchRunsEveryPlannedMemberInOrder) {
  auto space = plain_space(5);
  space.members[1].planned.status = PlanStatus::infeasible;
  space.members[3].planned.status = PlanStatus::pruned;
  for (const char* type : {"gridsearch", "random"}) {
    const auto tuner = make_tuner(type, space, {});
    EXPECT_FALSE(tuner->is_done());
    EXPECT_THAT(take_all(*tuner), ElementsAre(0, 2, 4));
    EXPECT_TRUE(tuner->is_done());
    EXPECT_THAT(tuner->skipped(), IsEmpty());
  }
}

TEST(TunerTest, KnownResultsAreNotRunAgain) {
  const auto tuner = make_tuner("gridsearch", plain_space(3), {});
  tuner->observe(1, ended(Status::ok, 4.0));
  EXPECT_THAT(take_all(*tuner), ElementsAre(0, 2));
}

TEST(TunerTest, AChainWaitsForTheSmallerSize) {
  const auto tuner = make_tuner("gridsearch", space_of({{1, 0}, {2, 0}, {4, 0}, {1, 1}}), {});
  EXPECT_EQ(tuner->next(), 0U);
  EXPECT_EQ(tuner->next(), 3U) << "another chain need not wait";
  EXPECT_FALSE(tuner->next());
  EXPECT_FALSE(tuner->is_done());
  tuner->observe(0, ended(Status::ok, 100.0));
  EXPECT_EQ(tuner->next(), 1U);
  EXPECT_FALSE(tuner->next());
  tuner->observe(1, ended(Status::ok, 110.0));
  EXPECT_EQ(tuner->next(), 2U);
  EXPECT_TRUE(tuner->is_done());
}

TEST(TunerTest, AChainEndsAtThePlateau) {
  const auto tuner = make_tuner("gridsearch", space_of({{1, 0}, {2, 0}, {4, 0}, {8, 0}}), {});
  tuner->next();
  tuner->observe(0, ended(Status::ok, 100.0));
  tuner->next();
  tuner->observe(1, ended(Status::ok, 104.9));
  EXPECT_FALSE(tuner->next());
  EXPECT_TRUE(tuner->is_done());
  const auto skipped = tuner->skipped();
  ASSERT_EQ(skipped.size(), 2U);
  EXPECT_EQ(skipped[0].index, 2U);
  EXPECT_EQ(skipped[0].reason, "micro-batch 2 brought 4.9 % over 1, less than 5 %");
}

TEST(TunerTest, NothingRunsAboveASizeThatFailed) {
  for (const auto status : {Status::out_of_memory, Status::failed, Status::timed_out}) {
    const auto tuner = make_tuner("gridsearch", space_of({{1, 0}, {2, 0}, {4, 0}}), {});
    tuner->next();
    tuner->observe(0, ended(status));
    EXPECT_TRUE(tuner->is_done());
    ASSERT_EQ(tuner->skipped().size(), 2U);
    EXPECT_THAT(tuner->skipped()[1].reason, HasSubstr(std::string(to_text(status))));
  }
}

TEST(TunerTest, LatencyIsBetterWhereItIsSmaller) {
  TuningOptions options;
  options.metric = Metric::latency;
  const auto tuner = make_tuner("gridsearch", space_of({{1, 0}, {2, 0}, {4, 0}}), options);
  tuner->next();
  tuner->observe(0, ended(Status::ok, 10.0));
  tuner->next();
  tuner->observe(1, ended(Status::ok, 9.0));
  EXPECT_EQ(tuner->next(), 2U);
}

TEST(TunerTest, AKnownLargerSizeIsJudgedWhenTheSmallerOneComes) {
  const auto tuner = make_tuner("gridsearch", space_of({{1, 0}, {2, 0}, {4, 0}}), {});
  tuner->observe(1, ended(Status::ok, 100.0));
  tuner->observe(0, ended(Status::ok, 100.0));
  EXPECT_TRUE(tuner->is_done());
  EXPECT_EQ(tuner->skipped().size(), 1U);
}

TEST(TunerTest, EarlyStoppingCountsFromTheBestOne) {
  TuningOptions options;
  options.early_stopping = 2;
  const auto tuner = make_tuner("gridsearch", plain_space(6), options);
  for (const double value : {1.0, 3.0, 2.0})
    tuner->observe(*tuner->next(), ended(Status::ok, value));
  EXPECT_FALSE(tuner->is_done());
  tuner->observe(*tuner->next(), ended(Status::failed));
  EXPECT_TRUE(tuner->is_done());
  EXPECT_FALSE(tuner->next());
  ASSERT_EQ(tuner->skipped().size(), 2U);
  EXPECT_THAT(tuner->skipped()[0].reason, HasSubstr("early stopping"));
}

TEST(TunerTest, EarlyStoppingEndsASearchInWhichEverythingFails) {
  TuningOptions options;
  options.early_stopping = 3;
  const auto tuner = make_tuner("gridsearch", plain_space(9), options);
  int run = 0;
  while (const auto index = tuner->next()) {
    tuner->observe(*index, ended(Status::failed));
    ++run;
  }
  EXPECT_EQ(run, 3);
}

TEST(TunerTest, ZeroTurnsEarlyStoppingOff) {
  TuningOptions options;
  options.early_stopping = 0;
  const auto tuner = make_tuner("gridsearch", plain_space(20), options);
  int run = 0;
  while (const auto index = tuner->next()) {
    tuner->observe(*index, ended(Status::ok, 20.0 - run));
    ++run;
  }
  EXPECT_EQ(run, 20);
}

}  // namespace
}  // namespace dstune
