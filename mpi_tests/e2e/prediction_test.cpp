// Times that are predicted before experiments run, and the machine that is measured for that.
#include <algorithm>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class PredictionTest : public JobTest {
 protected:
  PredictionTest() {
    job_.write("config.json", tiny_gpt2_config());
    Json space = transformer_space({1, 2});
    space["train_micro_batch_size_per_gpu"] = {1, 2};
    job_.write("space.json", space);
  }
  [[nodiscard]] std::ptrdiff_t num_profiles() const {
    const auto events = journal(job_);
    return std::count_if(events.begin(), events.end(),
                         [](const Json& event) { return event["kind"] == "profile"; });
  }
};

TEST_F(PredictionTest, StandsBesideEveryMeasurement) {
  const auto metrics = expect_all_ok(job_, run({"--profile-out", "machine.json"}), 16);
  for (const auto& [name, one] : metrics) {
    ASSERT_TRUE(one["predicted"]["throughput"].is_number()) << name;
    EXPECT_GT(one["predicted"]["throughput"].get<double>(), 0) << name;
  }
  for (const auto& [name, row] : results_table(job_)) {
    const double predicted = std::stod(row.at("predicted_throughput"));
    const double measured = std::stod(row.at("throughput"));
    EXPECT_NEAR(std::stod(row.at("prediction_error")), predicted / measured - 1, 1e-9) << name;
  }
  const std::string summary = job_.read(results + "summary.txt");
  EXPECT_THAT(summary, HasSubstr("Predicted throughput: mean error "));
  EXPECT_THAT(summary, HasSubstr("over 16 experiments, rank correlation "));

  const Json profile = job_.read_json("machine.json");
  EXPECT_EQ(profile["format"], "dstune-mpi device profile");
  EXPECT_EQ(profile["machine"],
            job_.read_json(results + "environment.json")["machine_fingerprint"]);
  ASSERT_EQ(profile["groups"].size(), 2U);
  EXPECT_TRUE(profile["groups"][0]["collectives"].empty());
  EXPECT_GE(profile["groups"][1]["collectives"].size(), 3U);
  EXPECT_GE(profile["kernels"].size(), 20U);
  EXPECT_GT(profile["interpreter_s"].get<double>(), 0);
}

TEST_F(PredictionTest, AResumedJobDoesNotMeasureTheMachineAgain) {
  expect_exit(job_, run(), 0);
  EXPECT_EQ(num_profiles(), 1);
  expect_exit(job_, run({"--profile-out", "machine.json"}), 0);
  EXPECT_EQ(num_profiles(), 1);
  EXPECT_TRUE(job_.exists("machine.json"));
}

TEST_F(PredictionTest, ADryRunTellsTimesAndWritesNothing) {
  const auto before = job_.contents();
  const Json shown = plan();
  for (const Json& one : shown["experiments"]) {
    if (one["status"] != "planned") continue;
    EXPECT_GT(one["predicted"]["throughput"].get<double>(), 0) << one["name"];
  }
  // Sixteen experiments, each with its budget of timed steps; half of them need one rank of two.
  EXPECT_GT(shown["expected_duration_s"].get<double>(), 12 * 0.01);
  EXPECT_EQ(job_.contents(), before);
  EXPECT_THAT(run({"--dry-run"}).out, HasSubstr("Tuning takes about "));
}

TEST_F(PredictionTest, ProfileOutNeedsSomethingToMeasure) {
  EXPECT_EQ(run({"--dry-run", "--profile-out", "machine.json"}).exit_code, usage);
  job_.write("space.json", synthetic_space({1}, {1}));
  EXPECT_EQ(run({"--profile-out", "machine.json"}).exit_code, usage);
  EXPECT_FALSE(job_.exists("machine.json"));
}

TEST_F(PredictionTest, ProfileOutReplacesNoFileOfTheJob) {
  const Ended ended = run({"--profile-out", results + "journal.jsonl"});
  EXPECT_EQ(ended.exit_code, bad_input) << ended;
  EXPECT_EQ(count_of(ended.err, "name a place outside of"), 1) << ended;
  EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
}

TEST_F(PredictionTest, WorkloadsWithoutAPlanHaveNone) {
  job_.write("space.json", synthetic_space({1}, {1, 2}));
  expect_exit(job_, run(), 0);
  for (const auto& [name, one] : all_metrics(job_))
    EXPECT_TRUE(one["predicted"]["throughput"].is_null()) << name;
  EXPECT_EQ(num_profiles(), 0);
  EXPECT_THAT(job_.read(results + "summary.txt"), Not(HasSubstr("Predicted")));
}

}  // namespace
}  // namespace dstune::e2e
