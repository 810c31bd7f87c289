#include "dstune/ranking/answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/text.hpp"
#include "dstune/ranking/verdict.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

double chance_of_best(const test::Draft& draft, std::size_t member) {
  Scoreboard scoreboard = draft.scoreboard();
  scoreboard.judge();
  return scoreboard.verdict()->chance_best(scoreboard.verdict()->place_of(member).value());
}

TEST(ChanceOfBestTest, FollowsTheDistance) {
  EXPECT_EQ(chance_of_best(test::draft_of({1}), 0), 1);
  test::Draft near = test::draft_of({1, 1.001});
  EXPECT_NEAR(chance_of_best(near, 0), 0.53, 0.06);
  const test::Draft far = test::draft_of({1, 1.4});
  EXPECT_GT(chance_of_best(far, 0), 0.97);
  EXPECT_LT(chance_of_best(far, 1), 0.03);
  near.metric = Metric::latency;
  EXPECT_NEAR(chance_of_best(near, 0), 0.53, 0.06);
}

/// The journal cuts off what is below a microsecond: just above half a millisecond rounding would
/// say something else afterwards.
TEST(ChanceOfBestTest, IsTheSameByTimesOfTheJournal) {
  using std::chrono::nanoseconds, std::chrono::seconds;
  const auto expected = [](bool is_of_journal) {
    test::Draft draft = test::draft_of({1, 1.01, 1.03, 1.002});
    for (std::size_t member = 0; member < draft.rows.size(); ++member) {
      Record& record = *draft.rows[member].record;
      record.started_at = *parse_time("2026-01-02T03:04:05.940500Z") + seconds(3 * member);
      if (member % 2 == 0) record.started_at += nanoseconds(is_of_journal ? 0 : 900);
      record.finished_at = record.started_at;
    }
    const Verdict verdict(draft.scoreboard(), Care::quick);
    std::vector<double> all = {verdict.drift_deviation(), verdict.run_deviation()};
    for (std::size_t place = 0; place < 4; ++place) all.push_back(verdict.speed(place).expected);
    return all;
  };
  EXPECT_EQ(expected(true), expected(false));
}

/// Three equal runs of each after the first.
test::Draft settled_draft(const std::vector<double>& steps_s) {
  test::Draft draft = test::draft_of(steps_s);
  for (std::size_t member = 0; member < steps_s.size(); ++member)
    for (int round = 1; round <= 3; ++round)
      draft.rows[member].repeats.push_back(
          test::repeat_of(RepeatKind::final_round, round, steps_s[member]));
  draft.finals.is_done = true;
  draft.elapsed_s = 100;
  return draft;
}

/// Whatever today's global batch and the answer's are: a change is there, and nothing else is one.
TEST(BatchChangeTest, IsThereWhereverTheAnswerTakesAnotherBatch) {
  for (std::int64_t micro_batch = 1; micro_batch <= 8; ++micro_batch) {
    for (std::int64_t steps = 1; steps <= 3; ++steps) {
      test::Draft draft = settled_draft({1, 1.5});
      for (Row& row : draft.rows) {
        row.planned.experiment.config.micro_batch = micro_batch;
        row.planned.experiment.config.accumulation_steps = steps;
        row.record->experiment = row.planned.experiment;
      }
      const std::int64_t batch =
          micro_batch * steps * draft.rows[0].planned.experiment.shape.size();
      for (const std::int64_t today : {batch - 1, batch, 2 * batch}) {
        draft.todays_batch = today;
        const auto recommendation = recommendation_of(draft.scoreboard());
        ASSERT_TRUE(recommendation);
        ASSERT_EQ(recommendation->batch_change.has_value(), today != batch);
        if (today == batch) continue;
        EXPECT_EQ(recommendation->batch_change->today, today);
        EXPECT_EQ(recommendation->batch_change->answer, batch);
      }
      draft.todays_batch.reset();
      EXPECT_FALSE(recommendation_of(draft.scoreboard())->batch_change) << "nobody says it";
    }
  }
}

TEST(GainTest, IsOverTheBaselineAndEarnedBack) {
  test::Draft draft = settled_draft({2, 1});
  draft.baseline = 0;
  const test::Concluded concluded(draft);
  const Recommendation& recommendation = concluded.recommendation();
  EXPECT_EQ(recommendation.member, 1U);
  EXPECT_EQ(recommendation.baseline->name, "m0");
  EXPECT_NEAR(*recommendation.baseline->gain, 1, 0.01);
  // 16 samples take 2 s with the one and 1 s with the other: a step saves a second.
  EXPECT_NEAR(*recommendation.cost.earned_back_steps, 100, 2);
  EXPECT_TRUE(recommendation.undecided.empty());
}

TEST(GainTest, WhereNothingIsClearlyBetterTheBaselineIsTheAnswer) {
  test::Draft draft = test::draft_of({1.004, 1, 1.3});
  draft.baseline = 0;
  draft.finals.is_done = true;
  const test::Concluded concluded(draft);
  const Recommendation& recommendation = concluded.recommendation();
  EXPECT_EQ(recommendation.member, 0U);
  ASSERT_FALSE(recommendation.undecided.empty());
  EXPECT_EQ(recommendation.undecided.front().name, "m1");
  EXPECT_GT(recommendation.undecided.front().at_most, 0.004);
  EXPECT_LT(recommendation.undecided.front().at_most, 0.3);
  EXPECT_EQ(recommendation.baseline->gain, 0);
  EXPECT_FALSE(recommendation.cost.earned_back_steps);
  EXPECT_GT(recommendation.more_time_s.value(), 0);
}

TEST(GainTest, GpuHoursAreOfAllRanks) {
  test::Draft draft = settled_draft({1});
  draft.num_ranks = 72;
  EXPECT_DOUBLE_EQ(test::Concluded(draft).recommendation().cost.gpu_hours, 2);
}

TEST(GainTest, WhatEarlierJobsTookCounts) {
  test::Draft draft = settled_draft({1});
  draft.num_ranks = 72;
  draft.earlier_s = 50;
  draft.earlier_rank_s = 3600;
  draft.earlier_jobs = 2;
  const TuningCost cost = test::Concluded(draft).recommendation().cost;
  EXPECT_DOUBLE_EQ(cost.gpu_hours, 3);
  EXPECT_DOUBLE_EQ(cost.elapsed_s, 150);
  EXPECT_EQ(cost.earlier_jobs, 2);
}

/// A row whose step of 16 samples takes so long, on so many GPUs, with so much memory.
void add(test::Draft& report, const std::string& name, double step_s, int num_gpus,
         std::int64_t bytes) {
  Record record = test::sample_record(name, step_s);
  record.experiment.shape = {num_gpus, 1};
  record.predicted.target_memory_bytes = 0;
  record.measurement.peak_memory.total_bytes = bytes;
  Row& row = report.rows.emplace_back();
  row.planned.experiment = record.experiment;
  row.record = std::move(record);
}

std::vector<std::size_t> front_of(const test::Draft& report) {
  std::vector<std::size_t> members;
  for (const Offer& offer : offers_of(report.scoreboard()))
    if (offer.is_on_front) members.push_back(offer.member);
  return members;
}

TEST(FrontTest, HoldsWhatNothingElseBeats) {
  test::Draft report;
  add(report, "slow", 2, 2, 100);
  add(report, "fast", 1, 2, 200);
  add(report, "slower with as much memory", 1.5, 2, 200);
  add(report, "fast on one", 3, 1, 300);
  add(report, "lean on one", 4, 1, 50);
  add(report, "as fast on four", 2, 4, 200);
  add(report, "fastest", 0.5, 4, 400);
  EXPECT_THAT(front_of(report), ElementsAre(3, 4, 1, 0, 6));
  EXPECT_EQ(offers_of(report.scoreboard()).size(), 7U);
}

TEST(FrontTest, TheTargetsMemoryCountsWhereItWasPlanned) {
  test::Draft report;
  add(report, "one", 1, 2, 100);
  add(report, "other", 2, 2, 50);
  EXPECT_THAT(front_of(report), ElementsAre(0, 1));
  report.rows[0].record->predicted.target_memory_bytes = 40;
  EXPECT_THAT(front_of(report), ElementsAre(0));
}

TEST(FrontTest, LatencyIsBetterWhereItIsSmaller) {
  test::Draft report;
  report.metric = Metric::latency;
  add(report, "short", 1, 2, 200);
  add(report, "long", 2, 2, 100);
  add(report, "longer", 3, 2, 150);
  EXPECT_THAT(front_of(report), ElementsAre(0, 1));
}

TEST(FrontTest, EqualRowsAndFailuresAreLeftOut) {
  test::Draft report;
  add(report, "first", 1, 2, 100);
  add(report, "second", 1, 2, 100);
  add(report, "failed", 0.1, 1, 10);
  report.rows[2].record->measurement.status = Status::failed;
  EXPECT_THAT(front_of(report), ElementsAre(0));
}

}  // namespace
}  // namespace dstune
