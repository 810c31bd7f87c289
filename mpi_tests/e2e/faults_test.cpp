// A fault in one experiment costs that experiment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// Two experiments, one after the other on the same two ranks; the first has the fault.
class FaultTest : public JobTest {
 protected:
  FaultTest() {
    Json space = transformer_space({2});
    space["zero_optimization"]["stage"] = {1, 2};
    write_transformer(job_, space);
  }
  Ended run(const std::string& fault, std::vector<std::string> options = {}) {
    return run_with({{"DSTUNE_INJECT", fault}}, std::move(options));
  }
  /// Both members are recorded: the first with this status, the second ran on the same ranks.
  void expect_only_first_failed(const Ended& ended, const std::string& status) {
    expect_exit(job_, ended, 0);
    auto metrics = all_metrics(job_);
    ASSERT_EQ(metrics.size(), 2);
    EXPECT_EQ(metrics[first_]["status"], status);
    EXPECT_FALSE(metrics[first_]["reason"].get<std::string>().empty());
    EXPECT_TRUE(metrics[first_]["throughput"].is_null());
    EXPECT_EQ(metrics[second_]["status"], "ok") << metrics[second_]["reason"];
    EXPECT_EQ(ranks_of(metrics[first_]), ranks_of(metrics[second_]));
    expect_no_rank_used_twice(metrics);
    EXPECT_EQ(results_table(job_)[first_]["status"], status);
    EXPECT_EQ(optimal_of(job_)["name"], second_);
    EXPECT_THAT(job_.read(results + "summary.txt"), HasSubstr(status));
  }

  const std::string first_ = short_name(1, 1);
  const std::string second_ = short_name(2, 1);
};

/// On the leader and on its peer.
TEST_F(FaultTest, AFaultOfOneRankIsTheGroups) {
  for (const std::string rank : {"0", "1"}) {
    SCOPED_TRACE(rank);
    const auto reason_of = [&](const std::string& kind, const std::string& status) {
      SCOPED_TRACE(kind);
      std::vector<std::string> options{"--overwrite"};
      if (kind == "hang") options.insert(options.end(), {"--trial-timeout", "5s"});
      expect_only_first_failed(run(kind + "@" + rank + ":" + first_, options), status);
      return results_table(job_)[first_]["reason"];
    };
    reason_of("oom", "out_of_memory");
    EXPECT_THAT(reason_of("throw", "failed"), HasSubstr("rank " + rank));
    // Its peers see it leave, and may say so before it has said why.
    EXPECT_EQ(reason_of("throw.warm_up", "failed"), "rank " + rank + ": injected failure");
    EXPECT_THAT(reason_of("hang", "timed_out"), HasSubstr("--trial-timeout"));
  }
}

TEST_F(FaultTest, WhatFailedRunsAgainWhereThatIsAskedFor) {
  expect_only_first_failed(run("throw@1:" + first_), "failed");
  const auto again = [&](const std::vector<std::string>& options) {
    const std::size_t before = journal(job_).size();
    expect_exit(job_, JobTest::run(options), done);
    return names_of(journal(job_), "started", before);
  };
  EXPECT_THAT(again({}), testing::IsEmpty()) << "its result counts";
  EXPECT_EQ(results_table(job_)[first_]["status"], "failed");

  EXPECT_EQ(again({"--retry-failed"}), std::vector<std::string>{first_});
  EXPECT_EQ(all_metrics(job_)[first_]["status"], "ok");
  EXPECT_EQ(all_metrics(job_)[first_]["attempt"], 2);
  EXPECT_EQ(results_table(job_)[first_]["status"], "ok");
  std::vector<std::string> statuses;
  for (const Json& event : journal(job_))
    if (event["kind"] == "finished" && event["name"] == first_)
      statuses.push_back(event["measurement"]["status"]);
  EXPECT_THAT(statuses, testing::ElementsAre("failed", "ok")) << "the journal keeps both";
  EXPECT_THAT(again({"--retry-failed"}), testing::IsEmpty()) << "nothing failed any more";
}

/// Names and ranks of what was begun after the first event of the kind `lost`.
std::vector<std::set<int>> ranks_after_loss(const Job& job) {
  std::vector<std::set<int>> ranks;
  bool is_after = false;
  for (const Json& event : journal(job)) {
    is_after = is_after || event["kind"] == "lost";
    const bool is_start = event["kind"] == "started" || event["kind"] == "repeat_started";
    if (is_after && is_start) ranks.push_back(event["world_ranks"].get<std::set<int>>());
  }
  return ranks;
}

// Its peers are inside a collective then, or agree on what happens.
TEST(LostDeviceTest, CostsOneAttemptAndTheRank) {
  for (const bool trains : {true, false}) {
    SCOPED_TRACE(trains);
    Job job;
    Json space = trains ? transformer_space({2}) : synthetic_space({2}, {1, 2, 4, 8}, 0.01);
    write_transformer(job, space);
    const std::string unlucky = trains ? short_name(1, 1) : short_name(0, 2);
    const Ended ended = job.run({.ranks = 4,
                                 .args = {"space.json"},
                                 .environment = {{"DSTUNE_INJECT", "lose_device@3:" + unlucky}}});
    auto metrics = expect_all_ok(job, ended, 4);
    EXPECT_EQ(metrics[unlucky]["attempt"], 2);
    EXPECT_NE(ended.err.find("injected loss of the device; device lost by rank 3, not used again"),
              std::string::npos)
        << ended;
    const auto ranks = ranks_after_loss(job);
    ASSERT_FALSE(ranks.empty());
    for (const std::set<int>& used : ranks) EXPECT_FALSE(used.contains(3));
    expect_no_rank_used_twice(metrics);
  }
}

TEST(LostDeviceTest, OfEveryRankEndsTheJobWithWhatIsKnown) {
  Job job;
  // No experiment is over before the loss is known.
  job.write("space.json", synthetic_space({1}, {1, 2, 4, 8, 16}, 0.05));
  const std::string unlucky = short_name(0, 4);
  const Ended ended =
      job.run({.ranks = 2,
               .args = {"space.json"},
               .environment = {
                   {"DSTUNE_INJECT", "lose_device@0:" + unlucky + ",lose_device@1:" + unlucky}}});
  expect_exit(job, ended, stopped_early);
  auto table = results_table(job);
  EXPECT_EQ(table[short_name(0, 1)]["status"], "ok");
  EXPECT_EQ(table[unlucky]["status"], "failed");
  EXPECT_THAT(table[unlucky]["reason"], HasSubstr("device lost by rank"));
  EXPECT_EQ(table[unlucky]["attempt"], "2");
  // The fourth may have run beside the third.
  EXPECT_EQ(table[short_name(0, 16)]["status"], "not_run");
  EXPECT_TRUE(job.exists(results + "ds_config_optimal.json"));
  const Ended again = job.run({.ranks = 2, .args = {"space.json"}});
  expect_exit(job, again, 0);
  EXPECT_EQ(results_table(job)[short_name(0, 16)]["status"], "ok");
}

// A bug is no experiment's failure: it ends the job, though another rank is in the middle of a
// step.
TEST(BugTest, EndsTheJobWithItsReason) {
  const std::string first = short_name(0, 1);
  const std::string second = short_name(0, 2);
  const std::string third = short_name(0, 4);
  struct Case {
    std::string fault;
    std::string slow;  // the others are over at once, so that the fault's rank takes the third
  };
  for (const auto& [fault, slow] :
       {Case{"throw_in_controller@0:" + first, second}, Case{"throw.assigned@0:" + third, second},
        Case{"throw.assigned@1:" + third, first}}) {
    SCOPED_TRACE(fault);
    Job job;
    Json table;
    for (const std::string& name : {first, second, third})
      table[name] = {{"step_time_s", name == slow ? 1000 : 0}, {"peak_memory_bytes", 1000}};
    Json space = synthetic_space({1}, {1, 2, 4}, 0);
    space["dstune"]["workload"] = {{"type", "replay"}, {"table", "table.json"}, {"time_scale", 1}};
    job.write("space.json", space);
    job.write("table.json", table);
    const Ended ended =
        job.run({.ranks = 2, .args = {"space.json"}, .environment = {{"DSTUNE_INJECT", fault}}});
    EXPECT_FALSE(ended.is_late);
    EXPECT_EQ(ended.exit_code, 1) << ended;
    EXPECT_THAT(ended.err, HasSubstr("internal error")) << ended;
    EXPECT_THAT(ended.err, HasSubstr("injected failure")) << ended;
    if (fault.find("@0") != std::string::npos) {
      EXPECT_EQ(exit_status_of(job)["exit_code"], 1);
    }
  }
}

TEST_F(FaultTest, WhereEverythingFailsTheReasonsAreShown) {
  const Ended ended = run("throw@1:" + first_ + ",throw@0:" + second_);
  expect_exit(job_, ended, nothing_feasible);
  EXPECT_FALSE(job_.exists(results + "ds_config_optimal.json"));
  EXPECT_THAT(ended.out, HasSubstr(first_)) << ended;
  EXPECT_THAT(ended.out, HasSubstr(second_)) << ended;
}

TEST_F(FaultTest, WhatRanWhenTheJobDiedRunsOnceMore) {
  EXPECT_NE(run("die@1:" + first_).exit_code, 0);
  const Ended ended = run("");
  expect_exit(job_, ended, 0);
  auto metrics = all_metrics(job_);
  EXPECT_EQ(metrics[first_]["status"], "ok");
  EXPECT_EQ(metrics[first_]["attempt"], 2);
  EXPECT_EQ(metrics[second_]["status"], "ok");
}

TEST_F(FaultTest, WhatRanAtTheLastTwoDeathsHasFailed) {
  EXPECT_NE(run("die@1:" + first_).exit_code, 0);
  EXPECT_NE(run("die@1:" + first_).exit_code, 0);
  const std::size_t before = journal(job_).size();
  const Ended ended = run("die@1:" + first_);
  expect_exit(job_, ended, 0);
  EXPECT_EQ(names_of(journal(job_), "started", before), std::vector<std::string>{second_});
  EXPECT_EQ(results_table(job_)[first_]["status"], "failed");
  EXPECT_EQ(optimal_of(job_)["name"], second_);
}

TEST(NeighbourTest, GoesOnBesideAHang) {
  Job job;
  Json space = synthetic_space({2}, {1, 2, 3, 4}, 0.05);
  job.write("space.json", space);
  const std::string hanging = short_name(0, 2);
  const Ended ended = job.run({.ranks = 4,
                               .args = {"--trial-timeout", "6s", "space.json"},
                               .environment = {{"DSTUNE_INJECT", "hang@3:" + hanging}}});
  expect_exit(job, ended, 0);
  auto metrics = all_metrics(job);
  ASSERT_EQ(metrics.size(), 4);
  const std::string hang_ended_at = metrics[hanging]["finished_at"];
  EXPECT_EQ(metrics[hanging]["status"], "timed_out");
  for (const int micro_batch : {1, 3, 4}) {
    const Json& neighbour = metrics[short_name(0, micro_batch)];
    EXPECT_EQ(neighbour["status"], "ok");
    EXPECT_LT(neighbour["finished_at"].get<std::string>(), hang_ended_at);
  }
}

}  // namespace
}  // namespace dstune::e2e
