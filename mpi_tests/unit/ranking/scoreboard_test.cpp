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

TEST(BestRowTest, SmallestWhereTheMetricIsMinimised) {
  test::Draft report;
  report.rows = {test::row_of(test::failed_record("f", Status::failed, "")),
                 test::row_of(test::sample_record("slow", 2)),
                 test::row_of(test::sample_record("fast", 1)),
                 test::row_of(test::sample_record("slower", 3))};
  report.metric = Metric::latency;
  EXPECT_EQ(report.board().best(), 2U);
  report.metric = Metric::throughput;
  EXPECT_EQ(report.board().best(), 2U);
}

TEST(BestRowTest, TiesGoToLessMemoryThenToTheEarlier) {
  test::Draft report;
  report.rows = {test::row_of(test::sample_record("a")), test::row_of(test::sample_record("b")),
                 test::row_of(test::sample_record("c"))};
  EXPECT_EQ(report.board().best(), 0U);
  report.rows[1].record->measurement.peak_memory.total_bytes = 10;
  report.rows[2].record->measurement.peak_memory.total_bytes = 10;
  EXPECT_EQ(report.board().best(), 1U);
}

TEST(BestRowTest, TheBestFewInTheirOrder) {
  test::Draft report;
  report.rows = {test::row_of(test::sample_record("b", 2)),
                 test::row_of(test::failed_record("f", Status::out_of_memory, "")),
                 test::row_of(test::sample_record("a", 1)),
                 test::planned_row("p", PlanStatus::planned, ""),
                 test::row_of(test::sample_record("b, too", 2))};
  EXPECT_EQ(report.board().best_rows(2), (std::vector<std::size_t>{2, 0}));
  EXPECT_EQ(report.board().best_rows(9), (std::vector<std::size_t>{2, 0, 4}));
}

TEST(BestRowTest, NothingWhereNothingIsOk) {
  test::Draft report;
  EXPECT_EQ(report.board().best(), std::nullopt);
  report.rows = {test::row_of(test::failed_record("f", Status::raced_out, "")),
                 test::planned_row("p", PlanStatus::planned, "")};
  EXPECT_EQ(report.board().best(), std::nullopt);
}

TEST(AnswerTest, IsTheBestThatWasMeasuredHere) {
  const Scoreboard board = test::verified_draft({{2, 0}, {1, 0}, {3, 1}}).board();
  EXPECT_EQ(board.answer(), 1U);
  EXPECT_EQ(recommendation_of(board)->label, "proxy");
  EXPECT_FALSE(recommendation_of(board)->ahead_here);
}

TEST(AnswerTest, DeepSpeedsWordCountsAmongThoseItRan) {
  test::Draft report = test::verified_draft({{2, 0}, {1, 8}, {3, 4}, {4, 6}});
  const Scoreboard board = report.board();
  EXPECT_EQ(board.answer(), 2U);
  const auto recommendation = recommendation_of(board);
  EXPECT_EQ(recommendation->label, "verified");
  EXPECT_EQ(recommendation->ahead_here->row, &board.row(1));
  EXPECT_DOUBLE_EQ(recommendation->ahead_here->verified->value, 2);
  EXPECT_DOUBLE_EQ(recommendation->standing.verified->value, 4);
  report.metric = Metric::latency;
  EXPECT_EQ(report.board().answer(), 2U);
  report.metric = Metric::flops;
  // The model's operations of 1e12 a step on two GPUs.
  EXPECT_DOUBLE_EQ(verified_value(report.rows[2], Metric::flops)->value, 1e12 / 4 / 2);
  report.rows[2].verified->status = Status::failed;
  EXPECT_EQ(report.board().answer(), 3U);
  EXPECT_EQ(verified_value(report.rows[2], Metric::throughput), std::nullopt);
}

TEST(CalibrationTest, RanksByTheTimeOfTheUsersTraining) {
  test::Draft report = test::verified_draft({{1, 0}, {1.2, 0}});
  report.rows[0].record->experiment.config.accumulation_steps = 16;
  report.rows[0].record->experiment.config.micro_batch = 1;
  // Both have a batch of 32 or 16 samples: 32 in 1 s, 16 in 1.2 s.
  EXPECT_EQ(report.board().best(), 0U);
  report.rows[0].overheads = {1, 1600};
  report.rows[1].overheads = {1, 200};
  report.calibration = test::calibration_of(2, {0, 0.01});
  // 2 · 1 + 0.01 · 100 · 16 = 18 s; 2 · 1.2 + 0.01 · 100 · 2 = 4.4 s.
  EXPECT_DOUBLE_EQ(report.board().ranked_value(0)->value, 32 / 18.0);
  EXPECT_DOUBLE_EQ(report.board().ranked_value(1)->value, 16 / 4.4);
  EXPECT_EQ(report.board().best(), 1U);
  EXPECT_EQ(recommendation_of(report.board())->label, "calibrated");
  report.metric = Metric::latency;
  EXPECT_DOUBLE_EQ(report.board().ranked_value(0)->value, 18e6);
}

/// Two rows of 16 samples, of which the faster one has more overheads.
test::Draft draft_with_constants() {
  test::Draft draft = test::draft_of({1, 1.2});
  draft.rows[0].overheads = {1, 400};
  draft.rows[1].overheads = {1, 100};
  draft.target = test::constants_of(2, {0.5, 0.01});
  return draft;
}

TEST(TargetRankingTest, ConstantsDecideFromTheBeginning) {
  test::Draft draft = draft_with_constants();
  const Scoreboard board = draft.board();
  // 2 + 0.5 + 4 s and 2.4 + 0.5 + 1 s.
  EXPECT_DOUBLE_EQ(board.ranked_value(0)->value, 16 / 6.5);
  EXPECT_DOUBLE_EQ(board.ranked_value(1)->value, 16 / 3.9);
  EXPECT_EQ(board.best(), 1U);
  EXPECT_FALSE(board.is_calibrated());
  EXPECT_EQ(board.value_revision(), 0U);
  const auto recommendation = recommendation_of(board);
  EXPECT_EQ(recommendation->label, "proxy");
  EXPECT_FALSE(recommendation->calibration);
  EXPECT_EQ(recommendation->constants->source, "recorded runs");
  draft.target.reset();
  EXPECT_EQ(draft.board().best(), 0U);
  EXPECT_FALSE(recommendation_of(draft.board())->constants);
}

TEST(TargetRankingTest, SaysWhatWasMeasuredAndWhatTheTargetTakes) {
  test::Draft draft = draft_with_constants();
  const Scoreboard board = draft.board();
  const Standing standing = standing_of(board, 0);
  EXPECT_DOUBLE_EQ(standing.measured->value, 16);
  ASSERT_TRUE(standing.target);
  EXPECT_DOUBLE_EQ(standing.target->throughput, 16 / 6.5);
  EXPECT_DOUBLE_EQ(standing.target->scale, 2);
  EXPECT_DOUBLE_EQ(standing.target->costs_s[0], 0.5);
  EXPECT_DOUBLE_EQ(standing.target->costs_s[1], 4);
  draft.target.reset();
  const Scoreboard own = draft.board();
  EXPECT_FALSE(standing_of(own, 0).measured);
  EXPECT_FALSE(standing_of(own, 0).target);
}

TEST(TargetRankingTest, EveryMetricHasTheSameTime) {
  test::Draft draft = draft_with_constants();
  const auto value = [&](Metric metric) {
    draft.metric = metric;
    const Scoreboard board = draft.board();
    EXPECT_DOUBLE_EQ(board.target_time(0)->throughput, 16 / 6.5);
    EXPECT_EQ(board.in_target(0, *board.measured_value(0, metric)).value,
              board.ranked_value(0)->value);
    return board.ranked_value(0)->value;
  };
  EXPECT_DOUBLE_EQ(value(Metric::throughput_per_gpu), 16 / 6.5 / 2);
  EXPECT_DOUBLE_EQ(value(Metric::latency), 6.5e6);
  EXPECT_DOUBLE_EQ(value(Metric::flops), 1e12 / 6.5 / 2);
}

TEST(TargetRankingTest, AnEndOfAnIntervalIsATimeOfItsOwn) {
  const Scoreboard board = draft_with_constants().board();
  const MetricValue value = board.in_target(0, {16, 8, std::numeric_limits<double>::infinity()});
  EXPECT_DOUBLE_EQ(value.ci_low, 16 / 8.5) << "a step of 2 s";
  EXPECT_TRUE(std::isinf(value.ci_high));
}

TEST(TargetRankingTest, APrecisionHasAScaleOfItsOwn) {
  test::Draft draft = draft_with_constants();
  draft.target->time.scale = {2, 20, 2};
  draft.rows[1].planned.experiment.config.precision = Precision::fp32;
  const Scoreboard board = draft.board();
  EXPECT_DOUBLE_EQ(board.ranked_value(0)->value, 16 / 24.5) << "bf16";
  EXPECT_DOUBLE_EQ(board.ranked_value(1)->value, 16 / 3.9);
}

TEST(TargetRankingTest, WhatWasRacedOutHasATimeAndNoRank) {
  test::Draft draft = draft_with_constants();
  draft.rows[0].record->measurement.status = Status::raced_out;
  const Scoreboard board = draft.board();
  EXPECT_FALSE(board.ranked_value(0));
  EXPECT_DOUBLE_EQ(board.target_time(0)->throughput, 16 / 6.5);
  draft.rows[0].record->measurement.status = Status::failed;
  EXPECT_FALSE(draft.board().target_time(0));
}

TEST(TargetRankingTest, TheUsersOwnRunsMoveTheConstants) {
  test::Draft draft = draft_with_constants();
  draft.user_runs = {{1, "/own/log", 7.8, 0}};  // twice of what the constants say
  const std::vector<Row> done = draft.rows;
  for (Row& row : draft.rows) row.record.reset();
  Scoreboard board = draft.board();
  board.record(0, *done[0].record, done[0].overheads);
  EXPECT_DOUBLE_EQ(board.ranked_value(0)->value, 16 / 6.5);
  EXPECT_FALSE(board.is_calibrated());
  EXPECT_TRUE(board.record(1, *done[1].record, done[1].overheads));
  EXPECT_TRUE(board.is_calibrated());
  EXPECT_EQ(board.value_revision(), 1U);
  EXPECT_DOUBLE_EQ(board.ranked_value(1)->value, 16 / 7.8);
  EXPECT_DOUBLE_EQ(board.ranked_value(0)->value, 16 / 13.0) << "kernels and costs alike";
  const auto recommendation = recommendation_of(board);
  EXPECT_EQ(recommendation->label, "calibrated");
  EXPECT_DOUBLE_EQ(recommendation->calibration->runs.at(0).fitted_s, 7.8);
  EXPECT_TRUE(recommendation->constants);
}

TEST(TargetRankingTest, AllRunsAreComparedInTheTargetsTime) {
  test::Draft draft = draft_with_constants();
  for (int round = 1; round <= 3; ++round) {
    draft.rows[0].repeats.push_back(test::repeat_of(RepeatKind::final_round, round, 1));
    draft.rows[1].repeats.push_back(test::repeat_of(RepeatKind::final_round, round, 1.2));
  }
  Scoreboard board = draft.board();
  board.judge();
  // By their own steps the first would be ahead.
  EXPECT_EQ(board.best(), 1U);
  EXPECT_NEAR(board.ranked_value(1)->value, 16 / 3.9, 0.02);
  EXPECT_NEAR(board.measured_value(1, Metric::throughput)->value, 16 / 1.2, 0.1);
}

TEST(TargetRankingTest, AnOfferIsAllInTheTargetsTime) {
  const std::vector<Offer> offers = offers_of(draft_with_constants().board());
  ASSERT_TRUE(offers.front().is_on_front);
  EXPECT_DOUBLE_EQ(*offers.front().throughput_per_gpu, offers.front().value / 2);
}

TEST(ScoreboardTest, WhatIsPredictedOfTheMemoryStays) {
  Scoreboard board = test::draft_of({1}).board();
  Prediction predicted;
  predicted.throughput = 5;
  predicted.target_throughput = 4;
  board.predict(0, predicted);
  const Prediction& kept = board.row(0).planned.predicted;
  EXPECT_EQ(kept.throughput, 5);
  EXPECT_EQ(kept.target_throughput, 4);
  EXPECT_EQ(kept.peak_memory_bytes, 1000);
  EXPECT_EQ(ranked_throughput(kept), 4);
}

/// What is measured comes one after the other, and nothing is looked for over all rows.
TEST(ScoreboardTest, FollowsTheBestFromRecordToRecord) {
  test::Draft draft = test::draft_of({2, 1, 1, 0.5});
  const std::vector<Row> done = draft.rows;
  for (Row& row : draft.rows) row.record.reset();
  Scoreboard board = draft.board();
  EXPECT_EQ(board.best(), std::nullopt);
  EXPECT_TRUE(board.record(0, *done[0].record));
  EXPECT_TRUE(board.record(2, *done[2].record));
  EXPECT_EQ(board.answer(), 2U);
  EXPECT_TRUE(board.record(1, *done[1].record)) << "as good, and earlier in the space";
  const auto revision = board.answer_revision();
  EXPECT_FALSE(board.record(3, test::failed_record("m3", Status::failed, "no")));
  EXPECT_EQ(board.answer_revision(), revision);
  EXPECT_EQ(board.best(), 1U);
  EXPECT_EQ(board.num_results(), 3U);
}

TEST(ScoreboardTest, TheUsersOwnRunCalibratesWhenItIsMeasuredHere) {
  test::Draft draft = test::draft_of({1, 2});
  draft.user_runs = {{1, "/own/log", 6.0, 0}};
  const std::vector<Row> done = draft.rows;
  for (Row& row : draft.rows) row.record.reset();
  Scoreboard board = draft.board();
  board.record(0, *done[0].record);
  EXPECT_FALSE(board.calibration());
  const auto revision = board.answer_revision();
  board.record(1, *done[1].record);
  ASSERT_TRUE(board.calibration());
  EXPECT_DOUBLE_EQ(board.calibration()->scale[0], 3);
  EXPECT_TRUE(board.is_calibrated());
  EXPECT_DOUBLE_EQ(board.ranked_value(0)->value, 16 / 3.0);
  EXPECT_NE(board.answer_revision(), revision) << "its value is another one now";
}

TEST(ScoreboardTest, WhatRanOutOfMemoryInDeepSpeedIsInfeasible) {
  Scoreboard board = test::draft_of({1}).board();
  Measurement measurement;
  measurement.status = Status::out_of_memory;
  measurement.reason = "needs more";
  board.verify(0, measurement);
  EXPECT_EQ(board.row(0).planned.status, PlanStatus::infeasible);
  EXPECT_EQ(board.row(0).planned.reason, "needs more");
}

TEST(JudgeTest, TheValueIsThatOfAllRuns) {
  test::Draft report = test::draft_of({1, 1.01, 5});
  for (const double step_s : {1.0, 1.02, 1.04}) {
    report.rows[0].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, 1.04 * step_s));
    report.rows[1].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, step_s / 1.02));
  }
  EXPECT_EQ(report.board().best(), 0U) << "not judged yet";
  EXPECT_DOUBLE_EQ(report.board().ranked_value(0)->value, 16);
  report.finals = {true, "", {0, 1}};
  const Scoreboard board = report.board();
  EXPECT_EQ(board.best(), 1U);
  const MetricValue value = *board.ranked_value(1);
  EXPECT_NEAR(value.value, 16, 0.3);
  EXPECT_LT(value.ci_low, value.value);
  EXPECT_GT(value.ci_high, value.value);
  EXPECT_LT(value.ci_high / value.ci_low, 1.15);
  EXPECT_EQ(board.spread_of_finals().degrees_of_freedom, 4);
}

TEST(JudgeTest, OfEquallyGoodOnesTheLeanestIsTheAnswer) {
  test::Draft draft = test::draft_of({1, 1});
  for (Row& row : draft.rows)
    for (int round = 1; round <= 3; ++round)
      row.repeats.push_back(test::repeat_of(RepeatKind::final_round, round, 1));
  draft.rows[1].record->measurement.peak_memory.total_bytes = 10;
  draft.finals.is_done = true;
  const Scoreboard board = draft.board();
  if (std::abs(board.verdict()->chance_best(0) - board.verdict()->chance_best(1)) <= 0.02) {
    EXPECT_EQ(board.best(), 1U);
  } else {
    EXPECT_EQ(board.best(), board.verdict()->rows().front());
  }
}

TEST(ReportedValueTest, IsWhatAnotherRunWouldSayToo) {
  test::Draft report = test::draft_of({1, 1.1});
  const double alone = report.board().ranked_value(0)->value;
  const auto reported = [&] { return *report.board().reported_value(0); };
  // Nothing ran twice: 1 % and t(4) = 2.776445.
  EXPECT_NEAR(std::log(reported().ci_high / alone), 0.02776445, 1e-8);
  EXPECT_NEAR(std::log(alone / reported().ci_low), 0.02776445, 1e-8);
  EXPECT_EQ(reported().value, alone);

  for (const double step_s : {0.8, 1.3})
    report.rows[1].repeats.push_back(test::repeat_of(RepeatKind::spread, 1, step_s));
  EXPECT_GT(std::log(reported().ci_high / alone), 0.3);

  // By all runs where they were judged.
  report.finals.is_done = true;
  EXPECT_EQ(reported().ci_high, report.board().ranked_value(0)->ci_high);
}

TEST(ReportedValueTest, FinalRoundsSayHowMuchTheOthersDiffer) {
  Scoreboard board = test::draft_of({1, 1.1}).board();
  board.join_finals({0});
  for (const double step_s : {0.8, 1.3, 1.1})
    board.repeat(0, test::repeat_of(RepeatKind::final_round, 1, step_s));
  EXPECT_GT(board.half_width_of_run(), 5 * Scoreboard().half_width_of_run());
}

TEST(ReportedValueTest, NoEndStaysNoEnd) {
  test::Draft report = test::draft_of({1});
  report.rows[0].record->measurement.step_times_s = {1};
  report.rows[0].record->measurement.warmup_steps = 0;
  EXPECT_TRUE(std::isinf(report.board().reported_value(0)->ci_high));
}

// The reported interval is for what the configuration does on average, not for one lucky run.
TEST(JudgeTest, TheIntervalCoversTheMeanOfAllRuns) {
  std::mt19937_64 generator(5);
  constexpr int jobs = 100;
  for (const double autocorrelation : {0.0, 0.8}) {
    int covered = 0;
    for (int job = 0; job < jobs; ++job) {
      test::Draft report = test::draft_of({1, 1});
      for (Row& row : report.rows) {
        row.record->measurement.step_times_s.assign(5, test::mean_of_run(generator, 1, 0.02));
        for (int round = 1; round <= 3; ++round) {
          Repeat repeat = test::repeat_of(RepeatKind::final_round, round, 1);
          const double mean_s = test::mean_of_run(generator, 1, 0.02);
          repeat.measurement.warmup_steps = 0;
          repeat.measurement.step_times_s =
              test::StepSeries(generator, mean_s, 0.03, autocorrelation).take(60);
          row.repeats.push_back(std::move(repeat));
        }
      }
      report.finals = {true, "", {0, 1}};
      const MetricValue value = *report.board().ranked_value(0);
      covered += value.ci_low <= 16 && 16 <= value.ci_high ? 1 : 0;
      EXPECT_LT(value.ci_high / value.ci_low, 1.25);
    }
    EXPECT_GE(covered, 0.90 * jobs) << autocorrelation;
  }
}

}  // namespace
}  // namespace dstune
