// A recorded space: times, memory and failures come from the table.
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class ReplayTest : public JobTest {
 protected:
  ReplayTest() { job_.write("space.json", replay_space({1}, {1, 2, 3, 4})); }
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
  EXPECT_THAT(reason, HasSubstr("table.json"));
  EXPECT_THAT(reason, HasSubstr(short_name(0, 4)));
  EXPECT_EQ(optimal_of(job_)["name"], short_name(0, 1));
}

TEST_F(ReplayTest, EndsWithFourWhereNothingWasRecorded) {
  job_.write("table.json", Json{{"something_else", {{"step_time_s", 1.0}}}});
  const Ended ended = run();
  expect_exit(job_, ended, nothing_feasible);
  for (const auto& [name, metrics] : all_metrics(job_)) EXPECT_EQ(metrics["status"], "failed");
  EXPECT_THAT(ended.out, HasSubstr("4 failed")) << ended;
}

TEST_F(ReplayTest, RefusesATableThatIsMissingOrHasAWrongRow) {
  job_.write("table.json", Json{{short_name(0, 1), {{"step_time_s", -1.0}}}});
  expect_refused(job_, command(), bad_input,
                 {"table.json:3", "/" + short_name(0, 1) + "/step_time_s"});
  std::filesystem::remove(job_.folder() / "table.json");
  expect_refused(job_, command(), bad_input, {"can not read table.json"});
}

TEST_F(ReplayTest, EarlyStoppingLeavesTheRestUnrun) {
  Json table;
  for (const int size : sizes_up_to(48))
    table[short_name(0, size)] = {{"step_time_s", size}};  // as many samples a second
  job_.write("space.json", replay_space({1}, sizes_up_to(48)));
  job_.write("table.json", table);
  for (const char* const tuner : {"gridsearch", "random"}) {
    for (const int ranks : {1, 4}) {
      ranks_ = ranks;
      const Ended ended = run({"--tuner", tuner, "--early-stopping", "2", "--overwrite"});
      expect_exit(job_, ended, done);
      EXPECT_EQ(names_of(journal(job_), "started").size(), 3U) << tuner << ended;
    }
  }
}

// docs/inside/search.md says this of searches without training.
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
    const Ended ended =
        run({"--tuner", "model_based", "--seed", "3", "--results-dir", results_dir});
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
