// Finalists that stay built and take turns, in whole jobs.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

using testing::IsEmpty;

class TurnsTest : public JobTest {
 protected:
  /// Members that are about as fast: nobody can tell after one round which one is the best.
  TurnsTest() {
    Json space = transformer_space({2});
    // Few steps a run leave more noise than a quiet machine has.
    space["dstune"]["trial_budget_s"] = 0.01;
    space["dstune"]["sequence_length"] = 8;
    space["dstune"]["target"] = "self";
    space["zero_optimization"] = {
        {"stage", 1}, {"reduce_bucket_size", {2000, 2100, 2200, 2300, 2400, 2500, 2600, 2700}}};
    write_transformer(job_, space);
  }
  /// Anew until its finals take more than one round: noise may let one be enough.
  Ended run_until_rounds(Command of_job) {
    of_job.args.insert(of_job.args.begin(), "--overwrite");
    constexpr int most_tries = 6;
    Ended ended = job_.run(of_job);
    for (int tries = 1; tries < most_tries && ended.exit_code == done && has_one_round(); ++tries)
      ended = job_.run(of_job);
    return ended;
  }
  [[nodiscard]] bool has_one_round() const {
    const Json finalists = job_.read_json(results + "validation.json")["finalists"];
    return std::ranges::all_of(finalists,
                               [](const Json& finalist) { return finalist["runs"].size() < 2; });
  }
  [[nodiscard]] std::vector<Json> runs_of_finals() const {
    std::vector<Json> runs;
    const Json validation = job_.read_json(results + "validation.json");
    for (const Json& finalist : validation["finalists"])
      for (const Json& run : finalist["runs"]) runs.push_back(run);
    return runs;
  }
  /// Every finalist was built for its first run, and for no other.
  void expect_built_once() const {
    const Json validation = job_.read_json(results + "validation.json");
    ASSERT_GE(validation["finalists"].size(), 2U);
    std::size_t most = 0;
    for (const Json& finalist : validation["finalists"]) {
      const Json& runs = finalist["runs"];
      most = std::max(most, runs.size());
      for (std::size_t run = 0; run < runs.size(); ++run) {
        EXPECT_EQ(runs[run]["status"], "ok") << finalist["name"] << ": " << runs[run]["reason"];
        EXPECT_EQ(runs[run]["built"], run == 0) << finalist["name"] << ", run " << run;
        EXPECT_TRUE(runs[run]["alone"]);
      }
    }
    EXPECT_GE(most, 2U) << "nothing had to stay built";
  }
};

TEST_F(TurnsTest, FinalistsAreBuiltOnce) {
  expect_exit(job_, run_until_rounds(command()), done);
  expect_built_once();
  const Json validation = job_.read_json(results + "validation.json");
  const Json& first = validation["finalists"][0]["runs"][0];
  const Json& second = validation["finalists"][1]["runs"][0];
  EXPECT_LT(second["started_at"].get<std::string>(), first["finished_at"].get<std::string>())
      << "they take turns";
}

TEST_F(TurnsTest, AndSoAreThoseOfTwoGroups) {
  ranks_ = 4;
  expect_exit(job_, run_until_rounds(command()), done);
  expect_built_once();
  for (const Json& run : runs_of_finals())
    EXPECT_EQ(run["group"]["world_ranks"], Json::array({0, 1})) << "where they are built";
}

TEST_F(TurnsTest, WithMemoryForOneEachIsBuiltForItsRuns) {
  const Json plan = this->plan();
  std::int64_t bytes = 0;
  for (const Json& member : plan["experiments"])
    bytes = std::max(bytes, member["predicted"]["peak_memory_bytes"].get<std::int64_t>());
  Json space = job_.read_json("space.json");
  space["dstune"]["device_memory"] = bytes + bytes / 2;
  job_.write("space.json", space);

  const Ended ended = run();

  expect_exit(job_, ended, done);
  // Later finalists have a line of their own.
  EXPECT_GE(count_of(ended.err, "memory does not hold all finalists at once"), 1) << ended;
  for (const Json& run : runs_of_finals()) EXPECT_EQ(run["built"], true);
}

TEST_F(TurnsTest, AJobThatDiesInThemGoesOn) {
  Command dies = command();
  dies.environment = {{"DSTUNE_INJECT", "die.going_on@1:*"}};
  const Ended died = run_until_rounds(dies);
  EXPECT_NE(died.exit_code, done);
  const std::vector<Json> before = journal(job_);
  const auto repeats = names_of(before, "repeated");
  EXPECT_GE(repeats.size(), 2U) << "a first round had ended";

  expect_exit(job_, run(), done);

  const std::vector<Json> events = journal(job_);
  EXPECT_THAT(names_of(events, "started", before.size()), IsEmpty()) << "first runs are known";
  EXPECT_GT(names_of(events, "repeated").size(), repeats.size());
  EXPECT_EQ(job_.read_json(results + "validation.json")["done"], true);
}

TEST_F(TurnsTest, OthersLiveOnWhereARankDiesInThem) {
  if (recovery_words().empty()) GTEST_SKIP() << "this launcher ends the job with a dead rank";
  ranks_ = 4;
  Command changed = command();
  changed.launcher = recovery_words();
  changed.environment = {{"DSTUNE_INJECT", "die.going_on@1:*"}};

  const Ended ended = run_until_rounds(changed);

  EXPECT_FALSE(ended.is_late) << ended;
  EXPECT_EQ(exit_status_of(job_)["exit_code"], done) << ended;
  const Json validation = job_.read_json(results + "validation.json");
  EXPECT_EQ(validation["done"], true);
  int failed = 0;
  for (const Json& run : runs_of_finals()) failed += run["status"] == "ok" ? 0 : 1;
  EXPECT_EQ(failed, 1) << "that of the finalist whose turn it was";
}

}  // namespace
}  // namespace dstune::e2e
