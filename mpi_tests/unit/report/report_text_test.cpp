#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/file.hpp"
#include "dstune/report/page.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string summary_of(const test::Draft& draft) {
  return summary_text(test::Concluded(draft));
}
/// Results are in /here.
std::string headline_of(const test::Draft& draft) {
  return headline_text(test::Concluded(draft), "/here");
}
json::Value json_of(const test::Draft& draft) {
  return summary_json(test::Concluded(draft), 0);
}

/// A record with this many samples a second.
Record with_throughput(const std::string& name, double throughput, int stage) {
  return test::sample_record(name, 16 / throughput, stage);
}

test::Draft sample_report() {
  test::Draft report;
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
      summary_of(sample_report()),
      StartsWith("| tuning_space   |   num_experiments |   best_metric_val | best_exp_name    |\n"
                 "|:---------------|------------------:|------------------:|:-----------------|\n"
                 "| z0             |                 2 |           615.385 | z0_gas1_tmbspg50 |\n"
                 "| z1             |                 3 |           625.698 | z1_gas1_tmbspg56 |\n"
                 "| global         |                 5 |           625.698 | z1_gas1_tmbspg56 |\n"
                 "\n"));
}

/// Ended `second` seconds after the others.
Row predicted_row(const std::string& name, double predicted, double measured, int second) {
  Record record = with_throughput(name, measured, 1);
  record.predicted.throughput = predicted;
  record.finished_at += std::chrono::seconds(second);
  return test::row_of(record);
}

TEST(SummaryTextTest, ShowsPredictionsBesideMeasurements) {
  test::Draft report;
  report.rows = {predicted_row("late", 44, 40, 2), predicted_row("early", 9, 10, 1),
                 test::row_of(with_throughput("unpredicted", 1, 0))};
  EXPECT_THAT(
      summary_of(report),
      HasSubstr("| experiment   |   predicted samples/s |   measured |   error, % |   mean erro"
                "r so far, % |\n"
                "|:-------------|----------------------:|-----------:|-----------:|------------"
                "-----------:|\n"
                "| early        |                     9 |         10 |      -10.0 |            "
                "       10.0 |\n"
                "| late         |                    44 |         40 |      +10.0 |            "
                "       10.0 |\n"
                "Predicted throughput: mean error 10.0 % over 2 experiments, rank correlation 1"
                ".000.\n"));
}

TEST(SummaryTextTest, RanksPredictionsAgainstMeasurements) {
  test::Draft report;
  // Worked out: ranks 1 2 3 4 against 1 3 2 4, so 1 - 6·2/(4·15).
  report.rows = {predicted_row("a", 10, 10, 0), predicted_row("b", 20, 31, 1),
                 predicted_row("c", 30, 30, 2), predicted_row("d", 40, 40, 3)};
  EXPECT_THAT(summary_of(report), HasSubstr("rank correlation 0.800"));
  report.rows.resize(1);
  EXPECT_THAT(summary_of(report), HasSubstr("over 1 experiment.\n"));
  report.rows.clear();
  EXPECT_THAT(summary_of(report), Not(HasSubstr("Predicted")));
}

TEST(SummaryTextTest, DecimalPointsStandBelowEachOther) {
  test::Draft report;
  report.rows = {test::row_of(with_throughput("a", 59.0229, 0)),
                 test::row_of(test::failed_record("b", Status::failed, "", 3)),
                 test::row_of(with_throughput("c", 1.5e7, 1)),
                 test::row_of(with_throughput("d", 1234567.8, 2))};
  // Printed by Python's tabulate for the same cells.
  EXPECT_THAT(
      summary_of(report),
      HasSubstr("| z0             |                 1 |      59.0229      | a               |\n"
                "| z3             |                 1 |       0           | b               |\n"
                "| z1             |                 1 |       1.5e+07     | c               |\n"
                "| z2             |                 1 |       1.23457e+06 | d               |\n"
                "| global         |                 4 |       1.5e+07     | c               |"));
}

TEST(SummaryTextTest, FailedSpaceShowsZero) {
  test::Draft report;
  report.rows = {test::row_of(test::failed_record("a", Status::timed_out, "slow", 2)),
                 test::row_of(test::failed_record("b", Status::failed, "bad", 2))};
  const std::string text = summary_of(report);
  EXPECT_THAT(
      text,
      HasSubstr("| z2             |                 2 |                 0 | a               |\n"
                "| global         |                 2 |                 0 | a               |"));
  EXPECT_EQ(headline_of(report),
            "No experiment gave a result, so there is no answer.\n"
            "Most frequent reason: 1 timed_out: slow\n"
            "Files: /here: summary.txt and results.csv have every reason.\n");
}

TEST(SummaryTextTest, SaysWinnerCountsReasonsAndTime) {
  const std::string text = summary_of(sample_report());
  EXPECT_THAT(text,
              HasSubstr("z1_gas1_tmbspg56:\n  group size: 2 (2 on each of 1 node), activation "
                        "recompute: block\n  label: proxy\n"));
  EXPECT_THAT(text, HasSubstr("Members of the space: 8: 3 ok, 2 out_of_memory.\n"
                              "3 members did not run: 1 would not fit into memory, 1 promised too "
                              "little to be run, 1 did not get their turn.\n"));
  EXPECT_THAT(text, HasSubstr("  2 out_of_memory (z1_gas1_tmbspg60, z1_gas1_tmbspg61): needs 70 "
                              "GiB, 64 GiB are there\n"));
  EXPECT_THAT(text, HasSubstr("  1 infeasible (z1_gas1_tmbspg99): does not fit\n"));
  EXPECT_THAT(text, HasSubstr("  1 not_run (z1_late): the time limit came first\n"));
  EXPECT_THAT(text, EndsWith("\nTuning completed in 3:04:05.000678. Total number of "
                             "experiments: 5.\n"));
}

TEST(SummaryTextTest, ReasonsStayWithinSomeDozensOfLines) {
  test::Draft report;
  for (int i = 0; i < 200; ++i)
    report.rows.push_back(test::planned_row(fmt::format("m{}", i), PlanStatus::infeasible,
                                            std::string(static_cast<std::size_t>(i + 1), 'x')));
  const std::string text = summary_of(report);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 45);
  EXPECT_THAT(text, HasSubstr("and 170 further reasons, in results.csv"));
  EXPECT_THAT(text, StartsWith("No experiment was run.\n"));
}

TEST(AnswerTest, TheSummaryHasBothFigures) {
  test::Draft report = test::verified_draft({{1, 8}, {2, 4}});
  report.rows[1].verified->peak_memory.total_bytes = std::int64_t{3} << 30;
  const std::string text = summary_of(report);
  EXPECT_THAT(text, HasSubstr("m1:\n"
                              "  in DeepSpeed itself: 4 samples/s, 3.00 GiB at its fullest\n"
                              "  chosen because DeepSpeed itself reached 4 samples/s"));
  EXPECT_THAT(text, HasSubstr("label: verified\n"));
  EXPECT_THAT(text, HasSubstr("| m0                    | ok       |"));
  EXPECT_EQ(json_of(report)["best"]["name"], "m1");
  EXPECT_EQ(json_of(report)["best"]["label"], "verified");
}

TEST(AnswerTest, TheSummarySaysWhyAnAnswerIsNotTheLikeliest) {
  test::Draft report = test::draft_of({1, 1});
  Policy policy = default_policy();
  policy.answering.as_likely = 1;
  policy.answering.as_good = 0.01;  // more than the draws' noise
  report.policy = &policy;
  report.finals.is_done = true;
  const std::size_t likelier = report.scoreboard().verdict()->members().front();
  EXPECT_THAT(summary_of(report), Not(HasSubstr("chosen because")));
  report.rows[1 - likelier].record->measurement.peak_memory.total_bytes = 10;
  EXPECT_THAT(summary_of(report),
              HasSubstr(fmt::format("  chosen because it needs less memory than m{}, which is as "
                                    "good\n",
                                    likelier)));
}

TEST(AnswerTest, TheSummaryHasTheMemoryOfTheEngineBesideThePlannedOne) {
  std::vector<Row> rows = test::draft_of({1, 2}).rows;
  for (Row& row : rows) {
    row.record->measurement.peak_memory.total_bytes = std::int64_t{4} << 30;
    row.record->predicted.target_memory_bytes = std::int64_t{3} << 30;
    row.record->predicted.target_categories = {{"parameters", std::int64_t{2} << 30},
                                               {"framework", std::int64_t{1} << 30}};
  }
  Scoreboard by_engine({.label = "engine"}, rows);
  by_engine.conclude(1, std::nullopt);
  const Answer answer = answer_of(by_engine);
  EXPECT_THAT(summary_text(answer),
              HasSubstr("  memory of a rank: DeepSpeed's engine made its process grow by 4.00 GiB; "
                        "tensors of 3.00 GiB were planned\n"));
  EXPECT_EQ(answer.offers.front().memory_bytes, std::int64_t{4} << 30);
  Scoreboard by_our_step({}, rows);
  by_our_step.conclude(1, std::nullopt);
  const Answer other = answer_of(by_our_step);
  EXPECT_THAT(summary_text(other), Not(HasSubstr("DeepSpeed's engine made")));
  EXPECT_EQ(other.offers.front().memory_bytes, std::int64_t{3} << 30);

  // PyTorch's peak on a GPU has neither context nor cache.
  for (Row& row : rows) row.record->measurement.peak_memory.gpu_bytes = std::int64_t{4} << 30;
  Scoreboard on_gpus({.label = "engine"}, rows);
  on_gpus.conclude(1, std::nullopt);
  EXPECT_THAT(summary_text(answer_of(on_gpus)),
              HasSubstr("  memory of a rank: 4.00 GiB of tensors in DeepSpeed's engine, 2.00 GiB "
                        "planned (-50.0 %); the plan has 1.00 GiB more for context, libraries and "
                        "PyTorch's cache\n"));
}

// The engine ran one of three to the end, for 10 s, and one for 3 s until it had lost.
TEST(AnswerTest, TheSummaryHasThePriceInTheEngineAsAShare) {
  std::vector<Row> rows = test::draft_of({2, 1}).rows;
  const auto began = rows[0].record->started_at;
  const auto lasts = [&](auto& run, int from_s, int to_s) {
    run.started_at = began + std::chrono::seconds(from_s);
    run.finished_at = began + std::chrono::seconds(to_s);
  };
  lasts(*rows[0].record, 0, 10);
  lasts(*rows[1].record, 10, 13);
  rows[1].record->measurement.status = Status::raced_out;
  rows[0].repeats = {test::repeat_of(RepeatKind::final_round, 1, 2)};
  lasts(rows[0].repeats[0], 13, 19);
  rows.push_back(test::planned_row("late", PlanStatus::pruned, "not promising"));
  rows.back().planned.prune_kind = PruneKind::not_chosen;
  rows.push_back(test::planned_row("twin", PlanStatus::pruned, "a twin"));
  rows.back().planned.prune_kind = PruneKind::twin;
  const auto summary_by = [&](const char* label) {
    Scoreboard scoreboard({.label = label}, rows);
    scoreboard.conclude(20, std::nullopt);
    return summary_text(answer_of(scoreboard));
  };
  EXPECT_THAT(summary_by("engine"),
              HasSubstr("Price: 1 of 3 members ran to the end in DeepSpeed's engine. The search "
                        "took 43 % of the time that all of them would take, by the mean of those, "
                        "and repeats 20 %.\n"));
  EXPECT_THAT(summary_by(""), Not(HasSubstr("Price: ")));
}

TEST(ConfidenceTest, TheSummarySaysHowSureItIs) {
  test::Draft report = test::draft_of({1, 1.1});
  report.finals.reason = "stopped early";
  report.chance_of_better = 0.03;
  EXPECT_THAT(summary_of(report), HasSubstr("  not measured again: stopped early\n"
                                            "  chance that it is the best that was measured: "));
  EXPECT_THAT(summary_of(report),
              HasSubstr("  chance that an untested member is more than 1 % faster: 3 %\n"));
  report.rows[0].repeats = {test::repeat_of(RepeatKind::final_round, 1, 1),
                            test::repeat_of(RepeatKind::final_round, 2, 1)};
  report.finals = {true, "", {0}};
  EXPECT_THAT(summary_of(report), HasSubstr("  measured again: 2 times, alone"));
}

TEST(HeadlineTest, HasFourLines) {
  test::Draft report = test::draft_of({2, 1});
  for (std::size_t row = 0; row < 2; ++row)
    for (int round = 1; round <= 3; ++round)
      report.rows[row].repeats.push_back(
          test::repeat_of(RepeatKind::final_round, round, row == 0 ? 2 : 1));
  report.finals = {true, "", {0, 1}};
  report.baseline = 0;
  report.num_ranks = 4;
  report.elapsed_s = 90;
  const std::string text = headline_of(report);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, StartsWith("Fastest: m1: "));
  EXPECT_THAT(text, HasSubstr("), 2 (1.85 to 2.16) times as fast as your configuration.\n"
                              "Confidence: proxy (not yet verified in DeepSpeed; "));
  EXPECT_THAT(text, HasSubstr("\nCost: 0:01:30, 0.1 GPU-hours; earned back after "));
  EXPECT_THAT(text, HasSubstr("\nFiles: /here: ds_config_optimal.json (the configuration), "));
  EXPECT_THAT(summary_of(report),
              HasSubstr("  gain: 2 (1.85 to 2.16) times as fast as your configuration m0\n"));
}

TEST(HeadlineTest, SaysHowLikelySomethingUntestedIsBetter) {
  test::Draft report = test::draft_of({1, 1});
  EXPECT_THAT(headline_of(report), Not(HasSubstr("untested")));
  report.chance_of_better = 0.4;
  EXPECT_THAT(headline_of(report),
              HasSubstr(" The chance that an untested member is more than 1 % faster: 40 %."));
  report.metric = Metric::flops;
  EXPECT_THAT(headline_of(report), StartsWith("Best: "));
  EXPECT_THAT(headline_of(report), HasSubstr("more than 1 % better: 40 %."));
}

TEST(HeadlineTest, SaysWhereNothingIsGained) {
  test::Draft report = test::draft_of({1, 1});
  report.finals = {true, "", {0, 1}};
  report.baseline = 0;
  const std::string text = headline_of(report);
  EXPECT_THAT(text, HasSubstr(". It is your configuration: nothing that was measured is clearly "
                              "better.\n"));
  EXPECT_THAT(text, HasSubstr(" May be as good: m1 (at most "));
  EXPECT_THAT(text, HasSubstr("not earned back, since nothing is gained"));
  EXPECT_THAT(summary_of(report), HasSubstr("  may be as good: m1 (at most "));
  const json::Value value = json_of(report);
  EXPECT_EQ(value["best"]["undecided"][0]["name"], "m1");
  EXPECT_EQ(value["baseline"]["name"], "m0");
  EXPECT_EQ(value["baseline"]["gain"], 0);
  EXPECT_EQ(value["tuning_gpu_hours"], 0);
}

TEST(MachineTextTest, SaysHowSteadyItWasAndWhatThatDid) {
  test::Draft report = test::draft_of({1, 1.01});
  report.finals = {true, "", {0, 1}};
  EXPECT_THAT(summary_of(report), HasSubstr("The machine: runs of one member differ by "));
  EXPECT_THAT(summary_of(report),
              HasSubstr("The measurements are noisy: another member may be up to "));
}

TEST(ValidationJsonTest, HasEveryRun) {
  test::Draft report = test::draft_of({1, 2});
  report.rows[1].repeats = {test::repeat_of(RepeatKind::spread, 1, 2.5)};
  report.rows[0].repeats = {test::repeat_of(RepeatKind::final_round, 1, 1.5),
                            test::repeat_of(RepeatKind::final_round, 2, 1.5)};
  report.finals = {true, "", {0}};
  const json::Value value = validation_json(test::Concluded(report));
  EXPECT_EQ(value["winner"], "m0");
  EXPECT_EQ(value["done"], true);
  ASSERT_EQ(value["finalists"].size(), 1U);
  const double in_between = value["finalists"][0]["value"];
  EXPECT_GT(in_between, 16 / 1.6);
  EXPECT_LT(in_between, 16);
  EXPECT_DOUBLE_EQ(value["finalists"][0]["first_run"]["value"], 16);
  ASSERT_EQ(value["finalists"][0]["runs"].size(), 2U);
  EXPECT_EQ(value["finalists"][0]["runs"][1]["round"], 2);
  EXPECT_EQ(value["finalists"][0]["runs"][1]["step_times_s"].size(), 5U);
  EXPECT_EQ(value["repeats_in_search"][0]["name"], "m1");
}

Record record_on_gpu(const std::string& throttled_by, const std::string& not_comparable) {
  Record record = test::sample_record("a");
  record.measurement.gpu = GpuCondition{1410, 1980, 87, 400, throttled_by};
  record.measurement.not_comparable = not_comparable;
  return record;
}

TEST(FlagsTest, AGpuThatIsThrottledIsSaidEverywhere) {
  Record record = record_on_gpu("heat", "");
  EXPECT_THAT(flags_of(record.measurement),
              ElementsAre("throttled: heat, 1410 of 1980 MHz, 87 °C"));
  const json::Value metrics = metrics_json(record, Metric::throughput);
  EXPECT_EQ(metrics["flags"][0], "throttled: heat, 1410 of 1980 MHz, 87 °C");
  EXPECT_EQ(metrics["gpu"]["sm_clock_mhz"], 1410);
  EXPECT_EQ(metrics["gpu"]["throttled_by"], "heat");
  test::Draft report;
  report.rows = {test::row_of(record)};
  EXPECT_THAT(summary_of(report),
              HasSubstr("1 experiment had a GPU that was throttled, for instance a: throttled: "
                        "heat, 1410 of 1980 MHz"));
  EXPECT_THAT(results_csv(test::Concluded(report)),
              HasSubstr(",\"throttled: heat, 1410 of 1980 MHz, 87 °C\",\r\n"));
  report.rows = {test::row_of(record_on_gpu("", ""))};
  EXPECT_THAT(summary_of(report), Not(HasSubstr("Note:")));
}

TEST(FlagsTest, WhatSharesAGpuIsNotComparableWhereverItIsShown) {
  const std::string why = "ranks 0 and 1 share a GPU";
  const std::string words = "not comparable with a training on such GPUs: " + why;
  const Record record = record_on_gpu("", why);
  test::Draft report;
  report.rows = {test::row_of(record)};
  EXPECT_THAT(flags_of(record.measurement), ElementsAre(words));
  EXPECT_EQ(metrics_json(record, Metric::throughput)["not_comparable"], why);
  EXPECT_THAT(summary_of(report), HasSubstr("\n  " + words + "\n"));
  EXPECT_THAT(summary_of(report), HasSubstr("1 experiment is not comparable"));
  EXPECT_EQ(json_of(report)["best"]["not_comparable"], why);
  EXPECT_THAT(results_csv(test::Concluded(report)), HasSubstr("," + words + ",\r\n"));
  EXPECT_THAT(report_json(test::Concluded(report), {}, {}).dump(), HasSubstr(why));
  test::TemporaryFolder folder;
  ResultsFolder results(folder / "results", folder / "exps");
  results.write_optimal(test::Concluded(report).recommendation(), std::nullopt);
  EXPECT_THAT(read_file(folder / "results/optimal.json"), HasSubstr(why));
  report.rows = {test::row_of(test::sample_record("a"))};
  EXPECT_FALSE(json_of(report)["best"].contains("not_comparable"));
}

TEST(FlagsTest, FallbacksAreSaidEverywhere) {
  Record record = test::sample_record("a");
  record.measurement.fallbacks = {"no graphs", "a slow disk"};
  record.measurement.not_comparable = "no graphs";
  const std::string why = "not comparable with a training on such GPUs: no graphs";
  EXPECT_THAT(flags_of(record.measurement), ElementsAre(why, "fallback: a slow disk"));
  EXPECT_EQ(metrics_json(record, Metric::throughput)["fallbacks"],
            json::Value({"no graphs", "a slow disk"}));
  test::Draft report;
  report.rows = {test::row_of(record)};
  EXPECT_THAT(
      summary_of(report),
      HasSubstr("1 experiment fell back to a slower way, for instance a: fallback: a slow"));
  EXPECT_THAT(results_csv(test::Concluded(report)),
              HasSubstr("," + why + "; fallback: a slow disk,\r\n"));
  const std::string page = report_json(test::Concluded(report), {}, {}).dump();
  EXPECT_THAT(page, HasSubstr("no graphs"));
  EXPECT_THAT(page, HasSubstr("a slow disk"));
  record.measurement.fallbacks.clear();
  EXPECT_FALSE(metrics_json(record, Metric::throughput).contains("fallbacks"));
}

/// Two rows of which neither beats the other, and one that is beaten.
test::Draft front_report() {
  test::Draft report = test::draft_of({2, 0.5, 2});
  const int num_gpus[] = {2, 4, 4};
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    report.rows[i].record->experiment.shape = {num_gpus[i], 1};
    report.rows[i].record->experiment.name = report.rows[i].planned.experiment.name =
        std::vector<std::string>{"slow", "fastest", "as slow on four"}[i];
  }
  return report;
}

TEST(FrontTextTest, HoldsWhatNothingElseBeats) {
  test::Draft report = front_report();
  const std::string text = summary_of(report);
  const std::string front = text.substr(text.find("The best trade-offs between"));
  EXPECT_THAT(front, HasSubstr("throughput (samples/s)"));
  EXPECT_THAT(front, HasSubstr("fastest"));
  EXPECT_THAT(front, Not(HasSubstr("as slow on four")));
  report.metric = Metric::latency;
  EXPECT_THAT(summary_of(report), HasSubstr("2e+06"));
  report.rows.resize(1);
  EXPECT_THAT(summary_of(report), Not(HasSubstr("The best trade-offs between")))
      << "one has it all";
}

TEST(SummaryTextTest, SaysHowItIsCalibrated) {
  test::Draft report = test::draft_of({1, 1.2});
  report.rows[0].overheads = {1, 1600};
  report.rows[1].overheads = {1, 200};
  report.calibration = TimeCalibration{{2, 2, 2}, {0, 0.01}};
  report.metric = Metric::latency;
  report.user_runs = {{1, "/own/log", 4.0, 0}};
  EXPECT_THAT(summary_of(report),
              HasSubstr("label: calibrated\n  calibrated: measured times x 2 + 1e+04 us for each "
                        "module call; m1: 4 s, fitted 4.4 s (+10.0 %)\n"));
}

TEST(FlagsTest, ASlowHostIsNamed) {
  test::Draft report = test::draft_of({1, 1, 1});
  for (Row& row : report.rows) {
    row.record->measurement.hosts = {"a", "b"};
    row.record->measurement.rank_forward_s = {1, 1.2};
  }
  EXPECT_THAT(summary_of(report), HasSubstr("host b is slow: forward takes 20 % longer"));
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
  EXPECT_EQ(value["predicted"].dump(),
            R"({"throughput":null,"peak_memory_bytes":1000,)"
            R"("host_memory_bytes":300,"disk_bytes":0,"target_memory_bytes":2000,)"
            R"("process_memory_bytes":5100})");
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
  const json::Value value = json_of(sample_report());
  const json::Value& best = value["best"];
  EXPECT_EQ(best["name"], "z1_gas1_tmbspg56");
  EXPECT_EQ(best["metric"], "throughput");
  EXPECT_NEAR(best["value"], 625.698, 1e-9);
  // None was repeated, so runs differ as is believed: 1 % and t(4).
  EXPECT_NEAR(best["ci_low"], 625.698 * std::exp(-0.02776445), 1e-5);
  EXPECT_NEAR(best["ci_high"], 625.698 * std::exp(0.02776445), 1e-5);
  EXPECT_EQ(best["num_gpus"], 2);
  EXPECT_EQ(best["label"], "proxy");
  EXPECT_EQ(value["counts"].dump(),
            R"({"ok":3,"raced_out":0,"out_of_memory":2,"timed_out":0,"failed":0,"infeasible":1,)"
            R"("pruned":1,"not_run":1})");
  EXPECT_EQ(value["pruned"]["not_chosen"], 1);
  EXPECT_EQ(value["pruned"]["twin"], 0);
  EXPECT_EQ(value["exit_code"], 0);
}

TEST(SummaryJsonTest, BestIsNullWhereThereIsNone) {
  const json::Value value = summary_json({}, 4);
  EXPECT_TRUE(value["best"].is_null());
  EXPECT_EQ(value["exit_code"], 4);
}

}  // namespace
}  // namespace dstune
