#include "dstune/report/validation.hpp"

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"
#include "step_series.hpp"

namespace dstune {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::Not;

Repeat repeat_of(RepeatKind kind, int round, double step_s) {
  Repeat repeat;
  repeat.kind = kind;
  repeat.round = round;
  repeat.measurement = test::sample_record("any", step_s).measurement;
  repeat.is_alone = kind == RepeatKind::final_round;
  return repeat;
}

/// Rows of these step times; their intervals have no width.
Report report_of(const std::vector<double>& steps_s) {
  Report report;
  for (const double step_s : steps_s)
    report.rows.push_back(
        test::row_of(test::sample_record("m" + std::to_string(report.rows.size()), step_s)));
  return report;
}

TEST(FinalistsTest, AreTheBestAndAtMostTwoThatComeNear) {
  EXPECT_THAT(finalists(Report{}), IsEmpty());
  // sqrt(2) * 1 % * t(4) is 3.9 %.
  EXPECT_THAT(finalists(report_of({1.03, 1, 1.05, 2})), ElementsAre(1, 0));
  EXPECT_THAT(finalists(report_of({1.03, 1, 1.01, 1.02, 1.005})), ElementsAre(1, 4, 2));
}

TEST(FinalistsTest, AreMoreWhereRunsDifferMore) {
  Report report = report_of({1, 1.1});
  EXPECT_THAT(finalists(report), ElementsAre(0));
  for (const double step_s : {0.9, 1.1})
    report.rows[0].repeats.push_back(repeat_of(RepeatKind::spread, 1, step_s));
  EXPECT_THAT(finalists(report), ElementsAre(0, 1));
}

TEST(ValidationTest, TheValueIsThatOfTheFinalRounds) {
  Report report = report_of({1, 1.01, 5});
  for (const double step_s : {1.0, 1.02, 1.04}) {
    report.rows[0].repeats.push_back(repeat_of(RepeatKind::final_round, 1, step_s));
    report.rows[1].repeats.push_back(repeat_of(RepeatKind::final_round, 1, step_s / 1.02));
  }
  report.validation.finalists = {0, 1};
  EXPECT_EQ(best_row(report), 0U) << "not done yet";
  EXPECT_DOUBLE_EQ(ranked_value(report, report.rows[0])->value, 16);
  report.validation.is_done = true;
  EXPECT_EQ(best_row(report), 1U);
  const MetricValue value = *ranked_value(report, report.rows[1]);
  EXPECT_NEAR(value.value, 16 * 1.02 / std::cbrt(1.0 * 1.02 * 1.04), 1e-9);
  EXPECT_EQ(spread_of_finals(report).degrees_of_freedom, 4);
  // Both have the same three logarithms, t(4) = 2.776445.
  const double half = 2.776445 * spread_of_finals(report).deviation / std::sqrt(3.0);
  EXPECT_NEAR(std::log(value.ci_high / value.value), half, 1e-6);
  EXPECT_GT(chance_of_best(report, report.rows[1]), 0.7);
  EXPECT_LT(chance_of_best(report, report.rows[0]), 0.3);
}

TEST(ReportedValueTest, IsWhatAnotherRunWouldSayToo) {
  Report report = report_of({1, 1.1});
  Row& row = report.rows[0];
  const MetricValue alone = *ranked_value(report, row);
  // Nothing ran twice: 1 % and t(4) = 2.776445.
  EXPECT_NEAR(std::log(reported_value(report, row)->ci_high / alone.value), 0.02776445, 1e-8);
  EXPECT_NEAR(std::log(alone.value / reported_value(report, row)->ci_low), 0.02776445, 1e-8);
  EXPECT_EQ(reported_value(report, row)->value, alone.value);

  for (const double step_s : {0.8, 1.3})
    report.rows[1].repeats.push_back(repeat_of(RepeatKind::spread, 1, step_s));
  report.half_width_of_run = half_width_of_run(report);
  EXPECT_GT(std::log(reported_value(report, row)->ci_high / alone.value), 0.3);

  // By its own runs where there are some.
  for (const double step_s : {1.0, 1.0, 1.0})
    row.repeats.push_back(repeat_of(RepeatKind::final_round, 1, step_s));
  report.validation.finalists = {0};
  report.validation.is_done = true;
  EXPECT_EQ(reported_value(report, row)->ci_high, ranked_value(report, row)->ci_high);
}

TEST(ReportedValueTest, FinalRoundsSayHowMuchTheOthersDiffer) {
  Report report = report_of({1, 1.1});
  for (const double step_s : {0.8, 1.3, 1.1})
    report.rows[0].repeats.push_back(repeat_of(RepeatKind::final_round, 1, step_s));
  report.validation.finalists = {0};
  const double before = half_width_of_run(Report{});
  EXPECT_GT(half_width_of_run(report), 5 * before);
}

TEST(ReportedValueTest, NoEndStaysNoEnd) {
  Report report = report_of({1});
  report.rows[0].record->measurement.step_times_s = {1};
  report.rows[0].record->measurement.warmup_steps = 0;
  EXPECT_TRUE(std::isinf(reported_value(report, report.rows[0])->ci_high));
}

/// Runs finals, each taking its row's time times `noise` of its round, until none is wanted; how
/// many each row had.
std::vector<int> counts_of_finals(Report& report, const std::vector<double>& steps_s,
                                  const std::vector<double>& noise) {
  std::vector<int> counts(steps_s.size());
  while (const auto next = next_final_run(report)) {
    EXPECT_EQ(next->round, ++counts[next->index]);
    const double factor = noise[static_cast<std::size_t>(next->round - 1) % noise.size()];
    report.rows[next->index].repeats.push_back(
        repeat_of(RepeatKind::final_round, next->round, steps_s[next->index] * factor));
  }
  return counts;
}

TEST(FinalRunTest, WhatIsClearlyNoBetterLeavesAfterTheSecond) {
  Report report = report_of({1, 1, 1});
  report.validation.finalists = {0, 1, 2};
  EXPECT_THAT(counts_of_finals(report, {1, 1.1, 1.2}, {1}), ElementsAre(3, 2, 2));
}

// Either could be the better one, but hardly by more than 1 %.
TEST(FinalRunTest, EqualOnesThatHardlyDifferNeedFewMore) {
  Report report = report_of({1, 1});
  report.validation.finalists = {0, 1};
  EXPECT_THAT(counts_of_finals(report, {1, 1.001}, {1}), Each(Lt(most_final_rounds)));
}

TEST(FinalRunTest, WhatIsNotToldApartRunsOnToTheEnd) {
  Report report = report_of({1, 1, 1});
  report.validation.finalists = {0, 1, 2};
  EXPECT_THAT(counts_of_finals(report, {1, 1.01, 1.5}, {1, 1.05}),
              ElementsAre(most_final_rounds, most_final_rounds, 2));
}

TEST(FinalRunTest, OneAloneIsRunForItsInterval) {
  for (const Metric metric : {Metric::throughput, Metric::latency}) {
    Report report = report_of({1});
    report.metric = metric;
    report.validation.finalists = {0};
    EXPECT_THAT(counts_of_finals(report, {1}, {1, 1.3}), ElementsAre(final_rounds));
  }
}

TEST(FinalRunTest, TheBestIsTheFastestWithLatencyToo) {
  Report report = report_of({1, 1});
  report.metric = Metric::latency;
  report.validation.finalists = {0, 1};
  EXPECT_THAT(counts_of_finals(report, {1.3, 1}, {1}), ElementsAre(2, 3));
}

TEST(FinalRunTest, WhatFailsIsNotTriedForEver) {
  Report report = report_of({1, 1});
  report.validation.finalists = {0, 1};
  int tries = 0;
  while (const auto next = next_final_run(report)) {
    Repeat repeat = repeat_of(RepeatKind::final_round, next->round, 1);
    repeat.measurement.status = Status::failed;
    report.rows[next->index].repeats.push_back(repeat);
    ++tries;
  }
  EXPECT_EQ(tries, 2 * least_final_rounds);
}

// One that was not measured again may have had luck.
TEST(ValidationTest, OnlyAFinalistWins) {
  Report report = report_of({1, 1.001});
  report.rows[1].repeats = {repeat_of(RepeatKind::final_round, 1, 1.2),
                            repeat_of(RepeatKind::final_round, 2, 1.2)};
  report.validation = {true, "", {1}};
  EXPECT_EQ(best_row(report), 1U);
}

TEST(ValidationTest, ATieGoesToLessMemory) {
  Report report = report_of({1, 1});
  report.rows[1].record->measurement.peak_memory.total_bytes = 500;
  report.rows[0].repeats = {repeat_of(RepeatKind::final_round, 1, 1)};
  report.rows[1].repeats = {repeat_of(RepeatKind::final_round, 1, 1.0005)};
  report.validation = {true, "", {0, 1}};
  EXPECT_EQ(best_row(report), 1U);
  report.rows[1].repeats = {repeat_of(RepeatKind::final_round, 1, 1.002)};
  EXPECT_EQ(best_row(report), 0U);
}

// The reported interval is for what the configuration does on average, not for one lucky run.
TEST(ValidationTest, TheIntervalCoversTheMeanOfAllRuns) {
  std::mt19937_64 generator(5);
  constexpr int jobs = 300;
  for (const double autocorrelation : {0.0, 0.8}) {
    int covered = 0;
    for (int job = 0; job < jobs; ++job) {
      Report report = report_of({1, 1});
      for (Row& row : report.rows) {
        for (int round = 1; round <= final_rounds; ++round) {
          Repeat repeat = repeat_of(RepeatKind::final_round, round, 1);
          const double mean_s = test::mean_of_run(generator, 1, 0.02);
          repeat.measurement.warmup_steps = 0;
          repeat.measurement.step_times_s =
              test::StepSeries(generator, mean_s, 0.03, autocorrelation).take(60);
          row.repeats.push_back(std::move(repeat));
        }
      }
      report.validation = {true, "", {0, 1}};
      const MetricValue value = *ranked_value(report, report.rows[0]);
      covered += value.ci_low <= 16 && 16 <= value.ci_high ? 1 : 0;
    }
    EXPECT_GE(covered, 0.90 * jobs) << autocorrelation;
    EXPECT_LE(covered, 0.99 * jobs) << autocorrelation;
  }
}

TEST(ChanceOfBestTest, FollowsTheDistance) {
  EXPECT_EQ(chance_of_best(report_of({1}), report_of({1}).rows[0]), 1);
  const Report near = report_of({1, 1.001});
  EXPECT_NEAR(chance_of_best(near, near.rows[0]), 0.52, 0.05);
  const Report far = report_of({1, 1.2});
  EXPECT_GT(chance_of_best(far, far.rows[0]), 0.99);
  EXPECT_LT(chance_of_best(far, far.rows[1]), 0.01);
  Report latency = near;
  latency.metric = Metric::latency;
  EXPECT_NEAR(chance_of_best(latency, latency.rows[0]), 0.52, 0.05);
}

TEST(ConfidenceTest, TheSummarySaysHowSureItIs) {
  Report report = report_of({1, 1.1});
  report.validation.reason = "stopped early";
  report.chance_of_better = 0.03;
  EXPECT_THAT(summary_text(report),
              HasSubstr("  not measured again: stopped early\n"
                        "  the best of what was measured: with a probability"));
  EXPECT_THAT(summary_text(report), HasSubstr("more than 1 % better: with a probability of 3 %\n"));
  report.rows[0].repeats = {repeat_of(RepeatKind::final_round, 1, 1),
                            repeat_of(RepeatKind::final_round, 2, 1)};
  report.validation = {true, "", {0}};
  EXPECT_THAT(summary_text(report),
              HasSubstr("  measured again: 2 times, alone; runs differ by 0 %"));
  EXPECT_THAT(summary_text(report), Not(HasSubstr("single run")));
  report.rows[1].record->measurement.step_times_s.assign(5, 0.9);
  EXPECT_THAT(summary_text(report),
              HasSubstr("\n  faster in a single run: m1, 17.7778 samples/s: not "
                        "one of the finalists, so that it does not count\n"));
}

TEST(ValidationJsonTest, HasEveryRun) {
  Report report = report_of({1, 2});
  report.rows[1].repeats = {repeat_of(RepeatKind::spread, 1, 2.5)};
  report.rows[0].repeats = {repeat_of(RepeatKind::final_round, 1, 1.5),
                            repeat_of(RepeatKind::final_round, 2, 1.5)};
  report.validation = {true, "", {0}};
  const json::Value value = validation_json(report);
  EXPECT_EQ(value["winner"], "m0");
  EXPECT_EQ(value["done"], true);
  ASSERT_EQ(value["finalists"].size(), 1U);
  EXPECT_DOUBLE_EQ(value["finalists"][0]["value"], 16 / 1.5);
  EXPECT_DOUBLE_EQ(value["finalists"][0]["first_run"]["value"], 16);
  ASSERT_EQ(value["finalists"][0]["runs"].size(), 2U);
  EXPECT_EQ(value["finalists"][0]["runs"][1]["round"], 2);
  EXPECT_EQ(value["finalists"][0]["runs"][1]["step_times_s"].size(), 5U);
  EXPECT_EQ(value["repeats_in_search"][0]["name"], "m1");
}

}  // namespace
}  // namespace dstune
