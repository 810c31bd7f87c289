// A recorded space: times, memory and failures come from the table.
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int bad_input = 3;
constexpr int nothing_feasible = 4;

class ReplayTest : public testing::Test {
 protected:
  ReplayTest() {
    Json space = synthetic_space({1}, {1, 2, 3, 4});
    space["dstune"]["workload"] = {{"type", "replay"}, {"table", "table.json"}};
    job_.write("space.json", space);
  }
  Ended run() { return job_.run({.ranks = 2, .args = {"space.json"}}); }
  Job job_;
};

TEST_F(ReplayTest, ReportsWhatWasRecorded) {
  job_.write("table.json", Json{{short_name(0, 1),
                                 {{"step_times_s", {9, 8, 7, 0.25, 0.25, 0.25, 0.25, 0.25}},
                                  {"peak_memory_bytes", 12345}}},
                                {short_name(0, 2), {{"step_time_s", 1.0}}},
                                {short_name(0, 3), {{"status", "out_of_memory"}}}});
  const Ended ended = run();
  expect_exit(job_, ended, 0);
  EXPECT_LT(ended.wall_s, 30) << "no time is waited where time_scale is 0";
  auto metrics = all_metrics(job_);
  const Json& series = metrics[short_name(0, 1)];
  EXPECT_EQ(series["status"], "ok");
  EXPECT_EQ(series["warmup_steps"], 3);
  EXPECT_EQ(series["step_times_s"][0], 9);
  EXPECT_EQ(series["step_times_s"][1], 8);
  EXPECT_EQ(series["step_times_s"][2], 7);
  EXPECT_EQ(series["step_times_s"][3], 0.25);
  EXPECT_NEAR(series["throughput"].get<double>(), 4, 1e-9);
  EXPECT_EQ(series["peak_memory_bytes"]["total"], 12345);
  EXPECT_NEAR(metrics[short_name(0, 2)]["throughput"].get<double>(), 2, 1e-9);
  EXPECT_EQ(metrics[short_name(0, 3)]["status"], "out_of_memory");
  EXPECT_EQ(metrics[short_name(0, 4)]["status"], "failed") << "a name that is not in the table";
  const std::string reason = metrics[short_name(0, 4)]["reason"];
  EXPECT_NE(reason.find("table.json"), std::string::npos) << reason;
  EXPECT_NE(reason.find(short_name(0, 4)), std::string::npos) << reason;
  EXPECT_EQ(job_.read_json(results + "optimal.json")["name"], short_name(0, 1));
}

TEST_F(ReplayTest, EndsWithFourWhereNothingWasRecorded) {
  job_.write("table.json", Json{{"something_else", {{"step_time_s", 1.0}}}});
  const Ended ended = run();
  expect_exit(job_, ended, nothing_feasible);
  for (const auto& [name, metrics] : all_metrics(job_)) EXPECT_EQ(metrics["status"], "failed");
  EXPECT_NE(ended.out.find("4 failed"), std::string::npos) << ended;
}

TEST_F(ReplayTest, RefusesATableWithAWrongRow) {
  job_.write("table.json", Json{{short_name(0, 1), {{"step_time_s", -1.0}}}});
  const Ended ended = run();
  EXPECT_EQ(ended.exit_code, bad_input) << ended;
  EXPECT_EQ(count_of(ended.err, "table.json:3"), 1) << ended;
  EXPECT_EQ(count_of(ended.err, "/" + short_name(0, 1) + "/step_time_s"), 1) << ended;
  EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
}

TEST_F(ReplayTest, NamesTheTableThatIsMissing) {
  const Ended ended = run();
  EXPECT_EQ(ended.exit_code, bad_input) << ended;
  EXPECT_EQ(count_of(ended.err, "can not read table.json"), 1) << ended;
}

TEST_F(ReplayTest, EarlyStoppingLeavesTheRestUnrun) {
  std::vector<int> micro_batches;
  Json table;
  for (int size = 1; size <= 48; ++size) {
    micro_batches.push_back(size);
    table[short_name(0, size)] = {{"step_time_s", size}};  // as many samples a second
  }
  Json space = synthetic_space({1}, micro_batches);
  space["dstune"]["workload"] = {{"type", "replay"}, {"table", "table.json"}};
  job_.write("space.json", space);
  job_.write("table.json", table);
  for (const char* const tuner : {"gridsearch", "random"}) {
    for (const int ranks : {1, 4}) {
      const Ended ended = job_.run(
          {.ranks = ranks,
           .args = {"space.json", "--tuner", tuner, "--early-stopping", "2", "--overwrite"}});
      expect_exit(job_, ended, 0);
      EXPECT_EQ(names_of(journal(job_), "started").size(), 3U) << tuner << ended;
    }
  }
}

// What docs/search.md says of searches without training.
TEST_F(ReplayTest, ARecordedSpaceIsSearchedWithoutTraining) {
  const std::string folder = DSTUNE_E2E_RECORDED;
  const auto read = [](const std::string& path) {
    std::ifstream file(path);
    return Json::parse(file, nullptr, true, true);
  };
  Json space = read(folder + "/spaces/gpt2-2ranks.json");
  const Json table = read(folder + "/tables/gpt2-2ranks.json");
  space["dstune"]["workload"] = {{"type", "replay"},
                                 {"table", folder + "/tables/gpt2-2ranks.json"}};
  job_.write("space.json", space);
  std::vector<std::set<std::string>> ran;
  for (const char* results_dir : {"one", "two"}) {
    const Ended ended = job_.run({.ranks = 2,
                                  .args = {"space.json", "--tuner", "model_based", "--seed", "3",
                                           "--results-dir", results_dir}});
    ASSERT_EQ(ended.exit_code, 0) << ended;
    const Json optimal = job_.read_json(std::string(results_dir) + "/optimal.json");
    EXPECT_TRUE(table.contains(optimal["name"])) << optimal;
    auto& names = ran.emplace_back();
    for (const auto& [name, row] : table.items())
      if (job_.exists(std::string(results_dir) + "/" + name)) names.insert(name);
  }
  EXPECT_EQ(ran[0], ran[1]) << "one group, and the same seed";
  EXPECT_GE(ran[0].size(), 6);
  EXPECT_LT(ran[0].size(), table.size() / 2);
}

}  // namespace
}  // namespace dstune::e2e
