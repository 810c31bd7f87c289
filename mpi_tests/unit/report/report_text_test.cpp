#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {

namespace {

using testing::HasSubstr;

using testing::StartsWith;

/// A record with this many samples a second.
Record with_throughput(const std::string& name, double throughput, int stage) {
  return test::sample_record(name, 16 / throughput, stage);
}

Report sample_report() {
  Report report;
  report.rows = {test::row_of(with_throughput("z0_gas1_tmbspg50", 615.385, 0)),
                 test::row_of(with_throughput("z1_gas1_tmbspg56", 625.698, 1)),
                 test::row_of(with_throughput("z0_gas1_tmbspg25", 600, 0)),
                 test::row_of(test::failed_record("z1_gas1_tmbspg60", Status::out_of_memory,
                                                  "needs 70 GiB, 64 GiB are there")),
                 test::row_of(test::failed_record("z1_gas1_tmbspg61", Status::out_of_memory,
                                                  "needs 71 GiB, 64 GiB are there")),
                 test::planned_row("z1_gas1_tmbspg99", PlanStatus::infeasible, "does not fit"),
                 test::planned_row("z1_twin", PlanStatus::pruned, "twin of z1_gas1_tmbspg56"),
                 test::planned_row("z1_late", PlanStatus::planned, "the time limit came first")};
  report.elapsed_s = 3 * 3600 + 4 * 60 + 5.000678;
  return report;
}

TEST(SummaryTextTest, TableIsDeepSpeeds) {
  EXPECT_THAT(
      summary_text(sample_report()),
      StartsWith("| tuning_space   |   num_experiments |   best_metric_val | best_exp_name    |\n"
                 "|:---------------|------------------:|------------------:|:-----------------|\n"
                 "| z0             |                 2 |           615.385 | z0_gas1_tmbspg50 |\n"
                 "| z1             |                 3 |           625.698 | z1_gas1_tmbspg56 |\n"
                 "| global         |                 5 |           625.698 | z1_gas1_tmbspg56 |\n"
                 "\n"));
}

TEST(SummaryTextTest, DecimalPointsStandBelowEachOther) {
  Report report;
  report.rows = {test::row_of(with_throughput("a", 59.0229, 0)),
                 test::row_of(test::failed_record("b", Status::failed, "", 3)),
                 test::row_of(with_throughput("c", 1.5e7, 1)),
                 test::row_of(with_throughput("d", 1234567.8, 2))};
  // Printed by Python's tabulate for the same cells.
  EXPECT_THAT(
      summary_text(report),
      HasSubstr("| z0             |                 1 |      59.0229      | a               |\n"
                "| z3             |                 1 |       0           | b               |\n"
                "| z1             |                 1 |       1.5e+07     | c               |\n"
                "| z2             |                 1 |       1.23457e+06 | d               |\n"
                "| global         |                 4 |       1.5e+07     | c               |"));
}

TEST(SummaryTextTest, FailedSpaceShowsZero) {
  Report report;
  report.rows = {test::row_of(test::failed_record("a", Status::timed_out, "slow", 2)),
                 test::row_of(test::failed_record("b", Status::failed, "bad", 2))};
  const std::string text = summary_text(report);
  EXPECT_THAT(
      text,
      HasSubstr("| z2             |                 2 |                 0 | a               |\n"
                "| global         |                 2 |                 0 | a               |"));
  EXPECT_THAT(text, HasSubstr("There is no winner"));
}

TEST(SummaryTextTest, SaysWinnerCountsReasonsAndTime) {
  const std::string text = summary_text(sample_report());
  EXPECT_THAT(text,
              HasSubstr("Best: z1_gas1_tmbspg56\n  throughput: 625.698 samples/s (95 % "
                        "interval 625.698 to 625.698)\n  group size: 2 (2 on each of 1 node), "
                        "activation recompute: block\n  label: proxy\n"));
  EXPECT_THAT(text, HasSubstr("Members of the space: 8: 3 ok, 2 out_of_memory, 1 infeasible, "
                              "1 pruned, 1 not_run.\n"));
  EXPECT_THAT(text, HasSubstr("  2 out_of_memory (z1_gas1_tmbspg60, z1_gas1_tmbspg61): needs 70 "
                              "GiB, 64 GiB are there\n"));
  EXPECT_THAT(text, HasSubstr("  1 infeasible (z1_gas1_tmbspg99): does not fit\n"));
  EXPECT_THAT(text, HasSubstr("  1 not_run (z1_late): the time limit came first\n"));
  EXPECT_THAT(text, testing::EndsWith("\nTuning completed in 3:04:05.000678. Total number of "
                                      "experiments: 5.\n"));
}

TEST(SummaryTextTest, ReasonsStayWithinSomeDozensOfLines) {
  Report report;
  for (int i = 0; i < 200; ++i)
    report.rows.push_back(test::planned_row(fmt::format("m{}", i), PlanStatus::infeasible,
                                            std::string(static_cast<std::size_t>(i + 1), 'x')));
  const std::string text = summary_text(report);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 45);
  EXPECT_THAT(text, HasSubstr("and 170 further reasons, in results.csv"));
  EXPECT_THAT(text, StartsWith("No experiment was run.\n"));
}

TEST(BestRowTest, SmallestWhereTheMetricIsMinimised) {
  Report report;
  report.rows = {test::row_of(test::failed_record("f", Status::failed, "")),
                 test::row_of(test::sample_record("slow", 2)),
                 test::row_of(test::sample_record("fast", 1)),
                 test::row_of(test::sample_record("slower", 3))};
  report.metric = Metric::latency;
  EXPECT_EQ(best_row(report), 2U);
  report.metric = Metric::throughput;
  EXPECT_EQ(best_row(report), 2U);
}

TEST(BestRowTest, TiesGoToLessMemoryThenToTheEarlier) {
  Report report;
  report.rows = {test::row_of(test::sample_record("a")), test::row_of(test::sample_record("b")),
                 test::row_of(test::sample_record("c"))};
  EXPECT_EQ(best_row(report), 0U);
  report.rows[1].record->measurement.peak_memory.total_bytes = 10;
  report.rows[2].record->measurement.peak_memory.total_bytes = 10;
  EXPECT_EQ(best_row(report), 1U);
}

TEST(BestRowTest, NothingWhereNothingIsOk) {
  Report report;
  EXPECT_EQ(best_row(report), std::nullopt);
  report.rows = {test::row_of(test::failed_record("f", Status::raced_out, "")),
                 test::planned_row("p", PlanStatus::planned, "")};
  EXPECT_EQ(best_row(report), std::nullopt);
}

TEST(MetricsJsonTest, KeepsDeepSpeedsKeysAndUnits) {
  const json::Value value = metrics_json(test::sample_record("a"), Metric::throughput);
  EXPECT_DOUBLE_EQ(value["fwd"], 62500.0);
  EXPECT_DOUBLE_EQ(value["bwd"], 125000.0);
  EXPECT_DOUBLE_EQ(value["step"], 31250.0);
  EXPECT_DOUBLE_EQ(value["latency"], 500000.0);
  EXPECT_DOUBLE_EQ(value["FLOPS_per_gpu"], 1e12);
  EXPECT_DOUBLE_EQ(value["throughput"], 32.0);
  EXPECT_EQ(value["rank"], 0);
  EXPECT_TRUE(value["rank"].is_number_integer());
}

TEST(MetricsJsonTest, AddsWhatItMeasured) {
  const json::Value value = metrics_json(test::sample_record("a"), Metric::latency);
  EXPECT_EQ(value["status"], "ok");
  EXPECT_EQ(value["reason"], "");
  EXPECT_EQ(value["attempt"], 1);
  EXPECT_EQ(value["step_times_s"].dump(), "[4.5,1.0,0.5,0.5,0.5]");
  EXPECT_EQ(value["warmup_steps"], 2);
  EXPECT_EQ(value["metric"], "latency");
  EXPECT_DOUBLE_EQ(value["ci_low"], 0.5e6);
  EXPECT_DOUBLE_EQ(value["ci_high"], 0.5e6);
  EXPECT_EQ(value["losses"].size(), 5U);
  EXPECT_EQ(
      value["peak_memory_bytes"].dump(),
      R"({"total":1000,"device":700,"host":300,"activations":400,"parameters":600,"process":5000})");
  EXPECT_EQ(value["predicted"].dump(), R"({"throughput":null,"peak_memory_bytes":1000,)"
                                       R"("host_memory_bytes":300,"target_memory_bytes":2000})");
  EXPECT_EQ(value["group"].dump(), R"({"world_ranks":[2,3],"hosts":["one"]})");
  EXPECT_EQ(value["started_at"], "2026-01-02T03:04:05.678901Z");
  EXPECT_EQ(value["finished_at"], "2026-01-02T03:04:15.000002Z");
  EXPECT_EQ(value["overhead_s"].dump(), R"({"build":0.25})");
}

TEST(MetricsJsonTest, FailureHasNoNumbers) {
  const json::Value value =
      metrics_json(test::failed_record("a", Status::timed_out, "slow"), Metric::throughput);
  for (const char* key :
       {"fwd", "bwd", "step", "latency", "FLOPS_per_gpu", "throughput", "ci_low", "ci_high"})
    EXPECT_TRUE(value.contains(key) && value[key].is_null()) << key;
  EXPECT_EQ(value["status"], "timed_out");
  EXPECT_EQ(value["reason"], "slow");
}

TEST(MetricsJsonTest, WhatIsNoNumberIsNull) {
  Record record = test::sample_record("a");
  record.measurement.step_times_s = {1, 1, 0.5};  // one timed step: an interval without an end
  record.measurement.losses = {std::numeric_limits<double>::quiet_NaN(), 2};
  record.predicted.throughput = std::numeric_limits<double>::infinity();
  const json::Value value = metrics_json(record, Metric::throughput);
  EXPECT_DOUBLE_EQ(value["throughput"], 32.0);
  EXPECT_TRUE(value["ci_high"].is_null());
  EXPECT_EQ(value["losses"].dump(), "[null,2.0]");
  EXPECT_TRUE(value["predicted"]["throughput"].is_null());
  record.measurement.losses.clear();
  EXPECT_EQ(metrics_json(record, Metric::throughput)["losses"].dump(), "[]");
}

TEST(SummaryJsonTest, HasBestCountsAndCode) {
  const json::Value value = summary_json(sample_report(), 0);
  const json::Value& best = value["best"];
  EXPECT_EQ(best["name"], "z1_gas1_tmbspg56");
  EXPECT_EQ(best["metric"], "throughput");
  EXPECT_NEAR(best["value"], 625.698, 1e-9);
  EXPECT_NEAR(best["ci_low"], 625.698, 1e-9);
  EXPECT_NEAR(best["ci_high"], 625.698, 1e-9);
  EXPECT_EQ(best["num_gpus"], 2);
  EXPECT_EQ(best["label"], "proxy");
  EXPECT_EQ(value["counts"].dump(),
            R"({"ok":3,"raced_out":0,"out_of_memory":2,"timed_out":0,"failed":0,"infeasible":1,)"
            R"("pruned":1,"not_run":1})");
  EXPECT_EQ(value["exit_code"], 0);
}

TEST(SummaryJsonTest, BestIsNullWhereThereIsNone) {
  const json::Value value = summary_json({}, 4);
  EXPECT_TRUE(value["best"].is_null());
  EXPECT_EQ(value["exit_code"], 4);
}

}  // namespace

}  // namespace dstune
