#include "dstune/ranking/scoreboard.hpp"

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/run_again.hpp"
#include "samples.hpp"
#include "step_series.hpp"

namespace dstune {
namespace {

using namespace test;

/// Takes the records out of a draft, and returns its rows with them.
std::vector<Row> taken_rows(Draft& draft) {
  std::vector<Row> done = draft.rows;
  for (Row& row : draft.rows) row.record.reset();
  return done;
}

TEST(BestMemberTest, SmallestWhereTheMetricIsMinimised) {
  Draft report;
  report.rows = {row_of(failed_record("f", Status::failed, "")), row_of(sample_record("slow", 2)),
                 row_of(sample_record("fast", 1)), row_of(sample_record("slower", 3))};
  report.metric = Metric::latency;
  EXPECT_EQ(report.scoreboard().best(), 2U);
  report.metric = Metric::throughput;
  EXPECT_EQ(report.scoreboard().best(), 2U);
}

TEST(BestMemberTest, TiesGoToLessMemoryThenToTheEarlier) {
  Draft report;
  report.rows = {row_of(sample_record("a")), row_of(sample_record("b")),
                 row_of(sample_record("c"))};
  EXPECT_EQ(report.scoreboard().best(), 0U);
  report.rows[1].record->measurement.peak_memory.total_bytes = 10;
  report.rows[2].record->measurement.peak_memory.total_bytes = 10;
  EXPECT_EQ(report.scoreboard().best(), 1U);
}

TEST(BestMemberTest, TheBestFewInTheirOrder) {
  Draft report;
  report.rows = {row_of(sample_record("b", 2)),
                 row_of(failed_record("f", Status::out_of_memory, "")),
                 row_of(sample_record("a", 1)), planned_row("p", PlanStatus::planned, ""),
                 row_of(sample_record("b, too", 2))};
  EXPECT_EQ(report.scoreboard().best_members(2), (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(report.scoreboard().best_members(9), (std::vector<std::size_t>{2, 0, 4}));
}

TEST(BestMemberTest, NothingWhereNothingIsOk) {
  Draft report;
  EXPECT_EQ(report.scoreboard().best(), std::nullopt);
  report.rows = {row_of(failed_record("f", Status::raced_out, "")),
                 planned_row("p", PlanStatus::planned, "")};
  EXPECT_EQ(report.scoreboard().best(), std::nullopt);
}

TEST(AnswerTest, IsTheBestThatWasMeasuredHere) {
  const Scoreboard scoreboard = verified_draft({{2, 0}, {1, 0}, {3, 1}}).scoreboard();
  EXPECT_EQ(scoreboard.answer(), 1U);
  EXPECT_EQ(recommendation_of(scoreboard)->label, "proxy");
  EXPECT_FALSE(recommendation_of(scoreboard)->ahead_here);
}

TEST(AnswerTest, DeepSpeedsWordCountsAmongThoseItRan) {
  Draft report = verified_draft({{2, 0}, {1, 8}, {3, 4}, {4, 6}});
  const Scoreboard scoreboard = report.scoreboard();
  EXPECT_EQ(scoreboard.answer(), 2U);
  const auto recommendation = recommendation_of(scoreboard);
  EXPECT_EQ(recommendation->label, "verified");
  EXPECT_EQ(recommendation->ahead_here->row, &scoreboard.row(1));
  EXPECT_DOUBLE_EQ(recommendation->ahead_here->verified->value, 2);
  EXPECT_DOUBLE_EQ(recommendation->standing.verified->value, 4);
  report.metric = Metric::latency;
  EXPECT_EQ(report.scoreboard().answer(), 2U);
  report.metric = Metric::flops;
  // The model's operations of 1e12 a step on two GPUs.
  EXPECT_DOUBLE_EQ(verified_value(report.rows[2], Metric::flops)->value, 1e12 / 4 / 2);
  report.rows[2].verified->status = Status::failed;
  EXPECT_EQ(report.scoreboard().answer(), 3U);
  EXPECT_EQ(verified_value(report.rows[2], Metric::throughput), std::nullopt);
}

TEST(CalibrationTest, RanksByTheTimeOfTheUsersTraining) {
  Draft report = verified_draft({{1, 0}, {1.2, 0}});
  report.rows[0].record->experiment.config.accumulation_steps = 16;
  report.rows[0].record->experiment.config.micro_batch = 1;
  // Both have a batch of 32 or 16 samples: 32 in 1 s, 16 in 1.2 s.
  EXPECT_EQ(report.scoreboard().best(), 0U);
  report.rows[0].overheads = {1, 1600};
  report.rows[1].overheads = {1, 200};
  report.calibration = calibration_of(2, {0, 0.01});
  // 2 · 1 + 0.01 · 100 · 16 = 18 s; 2 · 1.2 + 0.01 · 100 · 2 = 4.4 s.
  EXPECT_DOUBLE_EQ(report.scoreboard().ranked_value(0)->value, 32 / 18.0);
  EXPECT_DOUBLE_EQ(report.scoreboard().ranked_value(1)->value, 16 / 4.4);
  EXPECT_EQ(report.scoreboard().best(), 1U);
  EXPECT_EQ(recommendation_of(report.scoreboard())->label, "calibrated");
  report.metric = Metric::latency;
  EXPECT_DOUBLE_EQ(report.scoreboard().ranked_value(0)->value, 18e6);
}

/// Two members of 16 samples, of which the faster one has more overheads.
Draft draft_with_constants() {
  Draft draft = draft_of({1, 1.2});
  draft.rows[0].overheads = {1, 400};
  draft.rows[1].overheads = {1, 100};
  draft.target = constants_of(2, {0.5, 0.01});
  return draft;
}

TEST(TargetRankingTest, ConstantsDecideFromTheBeginning) {
  Draft draft = draft_with_constants();
  const Scoreboard scoreboard = draft.scoreboard();
  // 2 + 0.5 + 4 s and 2.4 + 0.5 + 1 s.
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 6.5);
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(1)->value, 16 / 3.9);
  EXPECT_EQ(scoreboard.best(), 1U);
  EXPECT_FALSE(scoreboard.is_calibrated());
  EXPECT_EQ(scoreboard.value_revision(), 0U);
  const auto recommendation = recommendation_of(scoreboard);
  EXPECT_EQ(recommendation->label, "proxy");
  EXPECT_FALSE(recommendation->calibration);
  EXPECT_EQ(recommendation->constants->source, "recorded runs");
  draft.target.reset();
  EXPECT_EQ(draft.scoreboard().best(), 0U);
  EXPECT_FALSE(recommendation_of(draft.scoreboard())->constants);
}

TEST(TargetRankingTest, SaysWhatWasMeasuredAndWhatTheTargetTakes) {
  Draft draft = draft_with_constants();
  const Scoreboard scoreboard = draft.scoreboard();
  const Standing standing = standing_of(scoreboard, 0);
  EXPECT_DOUBLE_EQ(standing.measured->value, 16);
  ASSERT_TRUE(standing.target);
  EXPECT_DOUBLE_EQ(standing.target->throughput, 16 / 6.5);
  EXPECT_DOUBLE_EQ(standing.target->scale, 2);
  EXPECT_DOUBLE_EQ(standing.target->costs_s[0], 0.5);
  EXPECT_DOUBLE_EQ(standing.target->costs_s[1], 4);
  draft.target.reset();
  const Scoreboard own = draft.scoreboard();
  EXPECT_FALSE(standing_of(own, 0).measured);
  EXPECT_FALSE(standing_of(own, 0).target);
}

TEST(TargetRankingTest, EveryMetricHasTheSameTime) {
  Draft draft = draft_with_constants();
  const auto value = [&](Metric metric) {
    draft.metric = metric;
    const Scoreboard scoreboard = draft.scoreboard();
    EXPECT_DOUBLE_EQ(scoreboard.target_time(0)->throughput, 16 / 6.5);
    EXPECT_EQ(scoreboard.in_target(0, *scoreboard.measured_value(0, metric)).value,
              scoreboard.ranked_value(0)->value);
    return scoreboard.ranked_value(0)->value;
  };
  EXPECT_DOUBLE_EQ(value(Metric::throughput_per_gpu), 16 / 6.5 / 2);
  EXPECT_DOUBLE_EQ(value(Metric::latency), 6.5e6);
  EXPECT_DOUBLE_EQ(value(Metric::flops), 1e12 / 6.5 / 2);
}

TEST(TargetRankingTest, AnEndOfAnIntervalIsATimeOfItsOwn) {
  const Scoreboard scoreboard = draft_with_constants().scoreboard();
  const MetricValue value =
      scoreboard.in_target(0, {16, 8, std::numeric_limits<double>::infinity()});
  EXPECT_DOUBLE_EQ(value.ci_low, 16 / 8.5) << "a step of 2 s";
  EXPECT_TRUE(std::isinf(value.ci_high));
}

TEST(TargetRankingTest, APrecisionHasAScaleOfItsOwn) {
  Draft draft = draft_with_constants();
  draft.target->time.scale = {2, 20, 2};
  draft.rows[1].planned.experiment.config.precision = Precision::fp32;
  const Scoreboard scoreboard = draft.scoreboard();
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 24.5) << "bf16";
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(1)->value, 16 / 3.9);
}

TEST(TargetRankingTest, WhatWasRacedOutHasATimeAndNoRank) {
  Draft draft = draft_with_constants();
  draft.rows[0].record->measurement.status = Status::raced_out;
  const Scoreboard scoreboard = draft.scoreboard();
  EXPECT_FALSE(scoreboard.ranked_value(0));
  EXPECT_DOUBLE_EQ(scoreboard.target_time(0)->throughput, 16 / 6.5);
  draft.rows[0].record->measurement.status = Status::failed;
  EXPECT_FALSE(draft.scoreboard().target_time(0));
}

TEST(TargetRankingTest, TheUsersOwnRunsMoveTheConstants) {
  Draft draft = draft_with_constants();
  draft.user_runs = {{1, "/own/log", 7.8, 0}};  // twice of what the constants say
  const std::vector<Row> done = taken_rows(draft);
  Scoreboard scoreboard = draft.scoreboard();
  scoreboard.record(0, *done[0].record, done[0].overheads);
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 6.5);
  EXPECT_FALSE(scoreboard.is_calibrated());
  EXPECT_TRUE(scoreboard.record(1, *done[1].record, done[1].overheads));
  EXPECT_TRUE(scoreboard.is_calibrated());
  EXPECT_EQ(scoreboard.value_revision(), 1U);
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(1)->value, 16 / 7.8);
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 13.0) << "kernels and costs alike";
  const auto recommendation = recommendation_of(scoreboard);
  EXPECT_EQ(recommendation->label, "calibrated");
  EXPECT_DOUBLE_EQ(recommendation->calibration->runs.at(0).fitted_s, 7.8);
  EXPECT_TRUE(recommendation->constants);
}

TEST(TargetRankingTest, AllRunsAreComparedInTheTargetsTime) {
  Draft draft = draft_with_constants();
  for (int round = 1; round <= 3; ++round) {
    draft.rows[0].repeats.push_back(repeat_of(RepeatKind::final_round, round, 1));
    draft.rows[1].repeats.push_back(repeat_of(RepeatKind::final_round, round, 1.2));
  }
  Scoreboard scoreboard = draft.scoreboard();
  scoreboard.judge();
  // By their own steps the first would be ahead.
  EXPECT_EQ(scoreboard.best(), 1U);
  EXPECT_NEAR(scoreboard.ranked_value(1)->value, 16 / 3.9, 0.02);
  // How much the machine drifts is known by two moments alone.
  EXPECT_NEAR(scoreboard.measured_value(1, Metric::throughput)->value, 16 / 1.2, 0.2);
}

TEST(TargetRankingTest, AnOfferIsAllInTheTargetsTime) {
  const std::vector<Offer> offers = offers_of(draft_with_constants().scoreboard());
  ASSERT_TRUE(offers.front().is_on_front);
  EXPECT_DOUBLE_EQ(*offers.front().throughput_per_gpu, offers.front().value / 2);
}

TEST(ScoreboardTest, WhatIsPredictedOfTheMemoryStays) {
  Scoreboard scoreboard = draft_of({1}).scoreboard();
  Prediction predicted;
  predicted.throughput = 5;
  predicted.target_throughput = 4;
  scoreboard.predict(0, predicted);
  const Prediction& kept = scoreboard.row(0).planned.predicted;
  EXPECT_EQ(kept.throughput, 5);
  EXPECT_EQ(kept.target_throughput, 4);
  EXPECT_EQ(kept.peak_memory_bytes, 1000);
  EXPECT_EQ(ranked_throughput(kept), 4);
}

/// Measurements come one after the other, and nothing is looked for over all members.
TEST(ScoreboardTest, FollowsTheBestFromRecordToRecord) {
  Draft draft = draft_of({2, 1, 1, 0.5});
  const std::vector<Row> done = taken_rows(draft);
  Scoreboard scoreboard = draft.scoreboard();
  EXPECT_EQ(scoreboard.best(), std::nullopt);
  EXPECT_TRUE(scoreboard.record(0, *done[0].record));
  EXPECT_TRUE(scoreboard.record(2, *done[2].record));
  EXPECT_EQ(scoreboard.answer(), 2U);
  EXPECT_TRUE(scoreboard.record(1, *done[1].record)) << "as good, and earlier in the space";
  const auto revision = scoreboard.answer_revision();
  EXPECT_FALSE(scoreboard.record(3, failed_record("m3", Status::failed, "no")));
  EXPECT_EQ(scoreboard.answer_revision(), revision);
  EXPECT_EQ(scoreboard.best(), 1U);
  EXPECT_EQ(scoreboard.num_results(), 3U);
}

TEST(ScoreboardTest, TheUsersOwnRunCalibratesWhenItIsMeasuredHere) {
  Draft draft = draft_of({1, 2});
  draft.user_runs = {{1, "/own/log", 6.0, 0}};
  const std::vector<Row> done = taken_rows(draft);
  Scoreboard scoreboard = draft.scoreboard();
  scoreboard.record(0, *done[0].record);
  EXPECT_FALSE(scoreboard.calibration());
  const auto revision = scoreboard.answer_revision();
  scoreboard.record(1, *done[1].record);
  ASSERT_TRUE(scoreboard.calibration());
  EXPECT_DOUBLE_EQ(scoreboard.calibration()->scale[0], 3);
  EXPECT_TRUE(scoreboard.is_calibrated());
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 3.0);
  EXPECT_NE(scoreboard.answer_revision(), revision) << "its value is another one now";
}

TEST(ScoreboardTest, WhatRanOutOfMemoryInDeepSpeedIsInfeasible) {
  Scoreboard scoreboard = draft_of({1}).scoreboard();
  Measurement measurement;
  measurement.status = Status::out_of_memory;
  measurement.reason = "needs more";
  scoreboard.verify(0, measurement);
  EXPECT_EQ(scoreboard.row(0).planned.status, PlanStatus::infeasible);
  EXPECT_EQ(scoreboard.row(0).planned.reason, "needs more");
}

TEST(JudgeTest, TheValueIsThatOfAllRuns) {
  Draft report = draft_of({1, 1.01, 5});
  for (const double step_s : {1.0, 1.02, 1.04}) {
    report.rows[0].repeats.push_back(repeat_of(RepeatKind::final_round, 1, 1.04 * step_s));
    report.rows[1].repeats.push_back(repeat_of(RepeatKind::final_round, 1, step_s / 1.02));
  }
  EXPECT_EQ(report.scoreboard().best(), 0U) << "not judged yet";
  EXPECT_DOUBLE_EQ(report.scoreboard().ranked_value(0)->value, 16);
  report.finals = {true, "", {0, 1}};
  const Scoreboard scoreboard = report.scoreboard();
  EXPECT_EQ(scoreboard.best(), 1U);
  const MetricValue value = *scoreboard.ranked_value(1);
  EXPECT_NEAR(value.value, 16, 0.3);
  EXPECT_LT(value.ci_low, value.value);
  EXPECT_GT(value.ci_high, value.value);
  EXPECT_LT(value.ci_high / value.ci_low, 1.15);
  EXPECT_EQ(scoreboard.spread_of_finals().degrees_of_freedom, 4);
}

TEST(JudgeTest, OfEquallyGoodOnesTheLeanestIsTheAnswer) {
  Draft draft = draft_of({1, 1});
  for (Row& row : draft.rows)
    for (int round = 1; round <= 3; ++round)
      row.repeats.push_back(repeat_of(RepeatKind::final_round, round, 1));
  draft.finals.is_done = true;
  // The verdict draws lots, which make one of the two likelier.
  Policy policy = default_policy();
  policy.answering.as_likely = 0.1;
  draft.policy = &policy;
  const std::size_t likelier = draft.scoreboard().verdict()->members().front();
  const std::size_t leaner = 1 - likelier;
  EXPECT_EQ(draft.scoreboard().best(), likelier);
  EXPECT_FALSE(recommendation_of(draft.scoreboard())->as_good_with_more_memory);
  draft.rows[leaner].record->measurement.peak_memory.total_bytes = 10;
  EXPECT_EQ(draft.scoreboard().best(), leaner);
  EXPECT_EQ(recommendation_of(draft.scoreboard())->as_good_with_more_memory,
            "m" + std::to_string(likelier));
  draft.baseline = leaner;
  EXPECT_FALSE(recommendation_of(draft.scoreboard())->as_good_with_more_memory)
      << "the line on the gain says why";
}

TEST(ReportedValueTest, IsWhatAnotherRunWouldSayToo) {
  Draft report = draft_of({1, 1.1});
  const double alone = report.scoreboard().ranked_value(0)->value;
  const auto reported = [&] { return *report.scoreboard().reported_value(0); };
  // Nothing ran twice: 1 % and t(4) = 2.776445.
  EXPECT_NEAR(std::log(reported().ci_high / alone), 0.02776445, 1e-8);
  EXPECT_NEAR(std::log(alone / reported().ci_low), 0.02776445, 1e-8);
  EXPECT_EQ(reported().value, alone);

  for (const double step_s : {0.8, 1.3})
    report.rows[1].repeats.push_back(repeat_of(RepeatKind::spread, 1, step_s));
  EXPECT_GT(std::log(reported().ci_high / alone), 0.3);

  // By all runs where they were judged.
  report.finals.is_done = true;
  EXPECT_EQ(reported().ci_high, report.scoreboard().ranked_value(0)->ci_high);
}

TEST(ReportedValueTest, FinalRoundsSayHowMuchTheOthersDiffer) {
  Scoreboard scoreboard = draft_of({1, 1.1}).scoreboard();
  scoreboard.join_finals({0});
  for (const double step_s : {0.8, 1.3, 1.1})
    scoreboard.repeat(0, repeat_of(RepeatKind::final_round, 1, step_s));
  EXPECT_GT(scoreboard.half_width_of_run(), 5 * Scoreboard().half_width_of_run());
}

TEST(ReportedValueTest, NoEndStaysNoEnd) {
  Draft report = draft_of({1});
  report.rows[0].record->measurement.step_times_s = {1};
  report.rows[0].record->measurement.warmup_steps = 0;
  EXPECT_TRUE(std::isinf(report.scoreboard().reported_value(0)->ci_high));
}

// The reported interval is for what the configuration does on average, not for one lucky run.
TEST(JudgeTest, TheIntervalCoversTheMeanOfAllRuns) {
  std::mt19937_64 generator(5);
  constexpr int jobs = 100;
  for (const double autocorrelation : {0.0, 0.8}) {
    int covered = 0;
    for (int job = 0; job < jobs; ++job) {
      Draft report = draft_of({1, 1});
      for (Row& row : report.rows) {
        row.record->measurement.step_times_s.assign(5, mean_of_run(generator, 1, 0.02));
        for (int round = 1; round <= 3; ++round) {
          Repeat repeat = repeat_of(RepeatKind::final_round, round, 1);
          const double mean_s = mean_of_run(generator, 1, 0.02);
          repeat.measurement.warmup_steps = 0;
          repeat.measurement.step_times_s =
              StepSeries(generator, mean_s, 0.03, autocorrelation).take(60);
          row.repeats.push_back(std::move(repeat));
        }
      }
      report.finals = {true, "", {0, 1}};
      const MetricValue value = *report.scoreboard().ranked_value(0);
      covered += value.ci_low <= 16 && 16 <= value.ci_high ? 1 : 0;
      EXPECT_LT(value.ci_high / value.ci_low, 1.25);
    }
    EXPECT_GE(covered, 0.90 * jobs) << autocorrelation;
  }
}

}  // namespace
}  // namespace dstune
