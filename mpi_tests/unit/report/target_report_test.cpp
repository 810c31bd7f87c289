// Reports where members are ranked by the target's time.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/dry_run.hpp"
#include "dstune/report/page.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// The sample's members train in bf16: twice the time here and 1 s a step.
TargetConstants sample_constants() {
  TargetConstants constants;
  constants.time.scale = {1, 2, 3};
  of(constants.time.costs_s, Overhead::optimizer_step) = 1;
  of(constants.time.costs_s, Overhead::all_gather_call) = 0.25;
  constants.error = 0.034;
  constants.source = "GPT-2 and LLaMA";
  constants.machine = "two cores";
  return constants;
}

/// The slower one here is the faster one in training, since the other one gathers 16 times.
std::vector<Row> sample_rows() {
  std::vector<Row> rows = {test::row_of(test::sample_record("gathers", 0.5, 3)),
                           test::row_of(test::sample_record("keeps", 1, 0))};
  for (Row& row : rows) {
    of(row.overheads, Overhead::optimizer_step) = 1;
    row.planned.predicted.target_throughput = row.record->predicted.target_throughput = 5;
  }
  of(rows.front().overheads, Overhead::all_gather_call) = 16;
  return rows;
}

class TargetReportTest : public testing::Test {
 protected:
  [[nodiscard]] const Recommendation& recommendation() const { return *answer_.recommendation; }

  Scoreboard scoreboard_{{.target = sample_constants()}, sample_rows()};
  Answer answer_ = answer_of(scoreboard_);
};

TEST_F(TargetReportTest, TheSummaryHasBothFiguresAndWhatTheyRestOn) {
  const std::string text = summary_text(answer_);
  const std::string headline = headline_text(answer_, "here");
  EXPECT_THAT(
      headline,
      StartsWith("Fastest: keeps: 5.33333 samples/s expected in your training (95 % inter"));
  EXPECT_THAT(text, HasSubstr("keeps:\n  measured here: 16 samples/s"));
  EXPECT_THAT(text, HasSubstr(", dstune-mpi's built-in step\n"));
  EXPECT_THAT(text,
              HasSubstr("  label: proxy\n  expected time: 2.00 x the measured time + DeepSpeed's "
                        "overhead; average error in our tests 3.4 % after scaling (target in "
                        "optimal.json)\n"));
}

TEST_F(TargetReportTest, TheSummarySaysWhereTheDeviceWorksBehindTheHost) {
  answer_.recommendation->constants->time.is_device_behind_host = true;
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("  expected time: the longer of 2.00 x the measured time and DeepSpeed's "
                        "work on the host, + its update and network calls; average error"));
}

TEST_F(TargetReportTest, ConstantsThatWereMeasuredAreNamedSo) {
  TargetConstants& constants = *answer_.recommendation->constants;
  constants.num_engines = 9;
  constants.fit_error = 0.042;
  constants.error = 0;
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("measured here by 9 tiny engines with an error of 4.2 % (target in "
                        "optimal.json)\n"));
  const json::Value target = optimal_json(recommendation(), "train")["target"];
  EXPECT_EQ(target["measured_here"].dump(), R"({"engines":9,"error":0.042})");
  EXPECT_EQ(target["source"], "measured here by 9 tiny engines, beginning with GPT-2 and LLaMA");
  EXPECT_TRUE(target["error"].is_null());
}

TEST_F(TargetReportTest, AHostThatWasMeasuredIsNamedBesideTheRecord) {
  answer_.recommendation->constants->host_factor = 1.25;
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("; host costs times 1.25, by a measurement of this machine (target in "
                        "optimal.json)\n"));
  EXPECT_EQ(optimal_json(recommendation(), "train")["target"]["source"],
            "GPT-2 and LLaMA; host costs times 1.25, by a measurement of this machine");
}

TEST_F(TargetReportTest, TheTargetsTimeOfARowNamesItsSource) {
  ASSERT_TRUE(scoreboard_.target_time(0));
  EXPECT_EQ(scoreboard_.target_time(0)->source, "GPT-2 and LLaMA");
  scoreboard_.calibrate(test::calibration_of(5));
  EXPECT_EQ(scoreboard_.target_time(0)->source,
            "fitted to runs in DeepSpeed, beginning with GPT-2 and LLaMA");
}

TEST_F(TargetReportTest, TheSummarySaysWhatTheUsersRunsMadeOfIt) {
  answer_.recommendation->calibration = CalibrationSummary{sample_constants().time};
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("  expected time: fitted to your own runs; constants before that: average "
                        "error in our tests 3.4 % after scaling"));
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("  calibrated: measured times x 2 + 1e+06 us for each optimizer step + "
                        "2.5e+05 us for each call of all_gather\n"));
  TimeCalibration& fit = answer_.recommendation->calibration->fit;
  fit.is_device_behind_host = true;
  of(fit.costs_s, Overhead::module_call) = 1e-3;
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("  calibrated: the longer of measured times x 2 and the host's 1000 us for "
                        "each module call + 1e+06 us for each optimizer step + 2.5e+05 us for "
                        "each call of all_gather\n"));
}

TEST_F(TargetReportTest, TablesOfMembersHaveWhatWasMeasuredHere) {
  answer_.standings[1].verified = MetricValue{4, 4, 4};
  Row verified = *answer_.standings[1].row;
  verified.verified = verified.record->measurement;
  answer_.standings[1].row = &verified;
  EXPECT_THAT(summary_text(answer_),
              HasSubstr("| in DeepSpeed itself   | status   |   measured here |   expected there "
                        "|   there |   there/expected |\n"));
}

TEST_F(TargetReportTest, TheAnswersJsonHasWhatWasMeasuredHere) {
  const json::Value best = summary_json(answer_, 0)["best"];
  EXPECT_DOUBLE_EQ(best["value"], 16.0 / 3);
  EXPECT_DOUBLE_EQ(best["measured"]["value"], 16);
  EXPECT_TRUE(best["measured"].contains("ci_low") && best["measured"].contains("ci_high"));
  const json::Value optimal = optimal_json(recommendation(), "train");
  EXPECT_EQ(optimal["measured"], best["measured"]);
  const json::Value& target = optimal["target"];
  EXPECT_EQ(target["scale"], 2.0) << "of the answer's precision";
  EXPECT_EQ(target["costs_s"].dump(),
            R"({"optimizer_step":1.0,"module_call":0.0,"gradient_hook":0.0,"gathering_hook":0.0,)"
            R"("sub_group":0.0,"offload_copy":0.0,"stage_2_byte":0.0,"recompute":0.0,)"
            R"("collective_call":{"all_reduce":0.0,)"
            R"("reduce":0.0,"reduce_scatter":0.0,"all_gather":0.25,"all_gather_ahead":0.0,)"
            R"("all_to_all":0.0},"small_call_byte":0.0,"communicated_byte":0.0,)"
            R"("link_byte":0.0})");
  EXPECT_EQ(target["error"], 0.034);
  EXPECT_EQ(target["source"], "GPT-2 and LLaMA");
  EXPECT_EQ(target["machine"], "two cores");
}

TEST_F(TargetReportTest, AnExperimentsJsonHasItsTargetsTime) {
  const Record& record = *scoreboard_.row(0).record;
  TargetTime target{3.2, 2, {}};
  of(target.costs_s, Overhead::all_gather_call) = 4;
  const json::Value value =
      metrics_json(record, Metric::throughput, target, MetricValue{3.2, 3, 3.5});
  EXPECT_EQ(value["throughput"], 32.0) << "DeepSpeed's keys stay with what was measured";
  EXPECT_EQ(value["value"], 3.2);
  EXPECT_EQ(value["ci_low"], 3.0);
  EXPECT_EQ(value["ci_high"], 3.5);
  EXPECT_EQ(value["predicted"]["target_throughput"], 5.0);
  EXPECT_EQ(value["target"]["throughput"], 3.2);
  EXPECT_EQ(value["target"]["scale"], 2.0);
  EXPECT_EQ(value["target"]["costs_s"]["collective_call"]["all_gather"], 4.0);
}

TEST_F(TargetReportTest, TheTableHasColumnsForIt) {
  const std::string table = results_csv(answer_);
  EXPECT_THAT(table,
              HasSubstr(",flags,measured_value,measured_ci_low,measured_ci_high,"
                        "predicted_target_throughput,pruned_because,zero_optimization.stage\r\n"));
  EXPECT_THAT(table, HasSubstr(",5,,0\r\n"));
}

TEST_F(TargetReportTest, ThePageLeadsWithTheTargets) {
  const json::Value data = report_json(answer_, {}, {});
  EXPECT_EQ(data["metric"]["has_target"], true);
  EXPECT_EQ(data["answer"]["name"], "keeps");
  EXPECT_DOUBLE_EQ(data["answer"]["value"], 16.0 / 3);
  const std::string details = data["answer"]["details"].dump();
  EXPECT_THAT(details, HasSubstr("[\"measured here, dstune-mpi's built-in step\",\"16 samples/s"));
  EXPECT_THAT(details, HasSubstr("[\"expected time\",\"2.00 x the measured time"));
  const std::size_t place = recommendation().member;
  EXPECT_DOUBLE_EQ(data["members"][place][3], 16.0 / 3);
  EXPECT_DOUBLE_EQ(data["members"][place][6], 16);
}

TEST_F(TargetReportTest, WithoutATargetNothingSpeaksOfIt) {
  std::vector<Row> rows = sample_rows();
  for (Row& row : rows)
    row.planned.predicted.target_throughput = row.record->predicted.target_throughput = {};
  const Scoreboard scoreboard({}, rows);
  const Answer answer = answer_of(scoreboard);
  for (const std::string& text :
       {summary_text(answer), report_json(answer, {}, {})["answer"].dump(), results_csv(answer),
        summary_json(answer, 0).dump(), optimal_json(*answer.recommendation, "train").dump(),
        metrics_json(*rows.front().record, Metric::throughput).dump()}) {
    EXPECT_THAT(text, Not(HasSubstr("measured here")));
    EXPECT_THAT(text, Not(HasSubstr("expected in your")));
    EXPECT_THAT(text, Not(HasSubstr("expected there")));
    EXPECT_THAT(text, Not(HasSubstr("\"measured\":")));
    EXPECT_THAT(text, Not(HasSubstr("measured_value")));
    EXPECT_THAT(text, Not(HasSubstr("target_throughput")));
    EXPECT_THAT(text, Not(HasSubstr("\"target\"")));
  }
}

TEST_F(TargetReportTest, ThePlanHasItsSpeed) {
  DryRun plan;
  for (const Row& row : scoreboard_.rows()) plan.experiments.push_back(row.planned);
  for (PlannedExperiment& planned : plan.experiments) {
    planned.predicted.throughput = 40;
    planned.predicted.target_throughput = 20;
  }
  EXPECT_THAT(dry_run_text(plan, {.all = true}), HasSubstr("  20  "));
  EXPECT_THAT(dry_run_text(plan, {.all = true}), Not(HasSubstr("  40  ")));
  for (PlannedExperiment& planned : plan.experiments) planned.predicted.target_throughput.reset();
  EXPECT_THAT(dry_run_text(plan, {.all = true}), HasSubstr("  40  "));
}

}  // namespace
}  // namespace dstune
