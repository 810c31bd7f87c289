#include "dstune/ranking/scoreboard.hpp"

#include <cmath>
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
  report.calibration = TimeCalibration{2, {0, 0.01}};
  // 2 · 1 + 0.01 · 100 · 16 = 18 s; 2 · 1.2 + 0.01 · 100 · 2 = 4.4 s.
  EXPECT_DOUBLE_EQ(report.board().ranked_value(0)->value, 32 / 18.0);
  EXPECT_DOUBLE_EQ(report.board().ranked_value(1)->value, 16 / 4.4);
  EXPECT_EQ(report.board().best(), 1U);
  EXPECT_EQ(recommendation_of(report.board())->label, "calibrated");
  report.metric = Metric::latency;
  EXPECT_DOUBLE_EQ(report.board().ranked_value(0)->value, 18e6);
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
  EXPECT_DOUBLE_EQ(board.calibration()->scale, 3);
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

TEST(ValidationTest, TheValueIsThatOfTheFinalRounds) {
  test::Draft report = test::draft_of({1, 1.01, 5});
  for (const double step_s : {1.0, 1.02, 1.04}) {
    report.rows[0].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, step_s));
    report.rows[1].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, step_s / 1.02));
  }
  report.finals.finalists = {0, 1};
  EXPECT_EQ(report.board().best(), 0U) << "not done yet";
  EXPECT_DOUBLE_EQ(report.board().ranked_value(0)->value, 16);
  report.finals.is_done = true;
  EXPECT_EQ(report.board().best(), 1U);
  const MetricValue value = *report.board().ranked_value(1);
  EXPECT_NEAR(value.value, 16 * 1.02 / std::cbrt(1.0 * 1.02 * 1.04), 1e-9);
  EXPECT_EQ(report.board().spread_of_finals().degrees_of_freedom, 4);
  // Both have the same three logarithms, t(4) = 2.776445.
  const double half = 2.776445 * report.board().spread_of_finals().deviation / std::sqrt(3.0);
  EXPECT_NEAR(std::log(value.ci_high / value.value), half, 1e-6);
  EXPECT_GT(chance_of_best(report.board(), 1), 0.7);
  EXPECT_LT(chance_of_best(report.board(), 0), 0.3);
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

  // By its own runs where there are some.
  for (const double step_s : {1.0, 1.0, 1.0})
    report.rows[0].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, step_s));
  report.finals.finalists = {0};
  report.finals.is_done = true;
  EXPECT_EQ(reported().ci_high, report.board().ranked_value(0)->ci_high);
}

TEST(ReportedValueTest, FinalRoundsSayHowMuchTheOthersDiffer) {
  Scoreboard board = test::draft_of({1, 1.1}).board();
  board.begin_finals({0});
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

// One that was not measured again may have had luck.
TEST(ValidationTest, OnlyAFinalistWins) {
  test::Draft report = test::draft_of({1, 1.001});
  report.rows[1].repeats = {test::repeat_of(RepeatKind::final_round, 1, 1.2),
                            test::repeat_of(RepeatKind::final_round, 2, 1.2)};
  report.finals = {true, "", {1}};
  EXPECT_EQ(report.board().best(), 1U);
}

TEST(ValidationTest, ATieGoesToLessMemory) {
  test::Draft report = test::draft_of({1, 1});
  report.rows[1].record->measurement.peak_memory.total_bytes = 500;
  report.rows[0].repeats = {test::repeat_of(RepeatKind::final_round, 1, 1)};
  report.rows[1].repeats = {test::repeat_of(RepeatKind::final_round, 1, 1.0005)};
  report.finals = {true, "", {0, 1}};
  EXPECT_EQ(report.board().best(), 1U);
  report.rows[1].repeats = {test::repeat_of(RepeatKind::final_round, 1, 1.002)};
  EXPECT_EQ(report.board().best(), 0U);
}

// The reported interval is for what the configuration does on average, not for one lucky run.
TEST(ValidationTest, TheIntervalCoversTheMeanOfAllRuns) {
  std::mt19937_64 generator(5);
  constexpr int jobs = 300;
  for (const double autocorrelation : {0.0, 0.8}) {
    int covered = 0;
    for (int job = 0; job < jobs; ++job) {
      test::Draft report = test::draft_of({1, 1});
      for (Row& row : report.rows) {
        for (int round = 1; round <= final_rounds; ++round) {
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
    }
    EXPECT_GE(covered, 0.90 * jobs) << autocorrelation;
    EXPECT_LE(covered, 0.99 * jobs) << autocorrelation;
  }
}

}  // namespace
}  // namespace dstune
