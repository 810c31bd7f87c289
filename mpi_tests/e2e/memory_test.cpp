// Configurations that do not fit are an answer.
#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// Peak memory of each member, from the plan.
std::map<std::string, std::int64_t> predicted_bytes(const Json& plan) {
  std::map<std::string, std::int64_t> bytes;
  for (const Json& one : plan["experiments"])
    bytes[one["name"]] = one["predicted"]["peak_memory_bytes"];
  return bytes;
}

class MemoryTest : public JobTest {
 protected:
  void SetUp() override {
    space_ = transformer_space({2});
    space_["train_micro_batch_size_per_gpu"] = {1, 8};
    space_["dstune"]["target"] = "self";
    write_transformer(job_, space_);
  }
  void limit_memory(const Json& device_memory) {
    space_["dstune"]["device_memory"] = device_memory;
    job_.write("space.json", space_);
  }

  /// Runs the space; memory is what the plan says.
  std::map<std::string, Json> train(std::size_t count) {
    job_.write("space.json", space_);
    auto metrics = expect_all_ok(job_, run(), count);
    for (const auto& [name, measured] : metrics) {
      SCOPED_TRACE(name);
      const Json& peak = measured["peak_memory_bytes"];
      EXPECT_EQ(peak["total"], measured["predicted"]["peak_memory_bytes"]);
      EXPECT_EQ(peak["host"], measured["predicted"]["host_memory_bytes"]);
      EXPECT_EQ(peak["total"],
                peak["device"].get<std::int64_t>() + peak["host"].get<std::int64_t>());
    }
    return metrics;
  }

  Json space_;
};

TEST_F(MemoryTest, LeavesOutWhatDoesNotFitAndRunsTheRest) {
  const auto bytes = predicted_bytes(plan());
  ASSERT_EQ(bytes.size(), 8);
  std::vector<std::int64_t> sorted;
  for (const auto& [name, peak] : bytes) sorted.push_back(peak);
  std::sort(sorted.begin(), sorted.end());
  // Exactly what the fifth needs: it fits, the next one does not.
  const std::int64_t limit_bytes = sorted[4];
  ASSERT_LT(limit_bytes, sorted[7]);
  limit_memory(limit_bytes);

  std::set<std::string> too_large;
  for (const auto& [name, peak] : bytes)
    if (peak > limit_bytes) too_large.insert(name);
  const Json shown = plan();
  EXPECT_EQ(shown["counts"]["infeasible"], too_large.size());
  std::map<std::string, std::string> reasons;
  for (const Json& one : shown["experiments"]) {
    const std::string name = one["name"];
    EXPECT_EQ(one["status"], too_large.contains(name) ? "infeasible" : "planned") << name;
    reasons[name] = one["reason"];
  }

  expect_exit(job_, run(), done);
  auto table = results_table(job_);
  const auto metrics = all_metrics(job_);
  for (const auto& [name, peak] : bytes) {
    if (!too_large.contains(name)) {
      EXPECT_EQ(table[name]["status"], "ok") << name;
      continue;
    }
    EXPECT_EQ(table[name]["status"], "infeasible") << name;
    EXPECT_EQ(table[name]["reason"], reasons[name]);
    EXPECT_GE(std::count_if(reasons[name].begin(), reasons[name].end(),
                            [](char c) { return c >= '0' && c <= '9'; }),
              2)
        << "the reason has no numbers: " << reasons[name];
    EXPECT_FALSE(metrics.contains(name)) << "what is infeasible has no folder: " << name;
  }
  std::set<std::string> left_out;
  for (const Json& event : journal(job_))
    if (event["kind"] == "not_planned")
      for (const Json& reason : event["reasons"])
        for (const Json& name : reason["names"]) left_out.insert(name);
  EXPECT_EQ(left_out, too_large);
}

TEST_F(MemoryTest, ParametersOnTheHostAreTheSameTraining) {
  space_["zero_optimization"] = {{"stage", 3},
                                 {"offload_optimizer", {nullptr, {{"device", "cpu"}}}},
                                 {"offload_param", {nullptr, {{"device", "cpu"}}}}};
  space_["train_micro_batch_size_per_gpu"] = {1};
  const auto metrics = train(4);
  std::set<std::int64_t> on_host;
  for (const auto& [name, measured] : metrics) {
    on_host.insert(measured["peak_memory_bytes"]["host"].get<std::int64_t>());
    expect_same_losses(measured, metrics.begin()->second);
  }
  EXPECT_EQ(on_host.size(), 4);
}

TEST_F(MemoryTest, RunsWithStatesOnTheHostWhereTheHostHoldsThem) {
  space_["zero_optimization"] = {{"stage", {1, 2, 3}},
                                 {"offload_optimizer", {nullptr, {{"device", "cpu"}}}}};
  space_["train_micro_batch_size_per_gpu"] = {1};
  space_["dstune"]["host_memory"] = "64MiB";
  const auto metrics = train(6);
  EXPECT_EQ(
      std::ranges::count_if(
          metrics, [](const auto& one) { return one.second["peak_memory_bytes"]["host"] != 0; }),
      3);
  const std::string winner = optimal_of(job_)["name"];
  const Json page = Json::parse(job_.read(results + "report.json"));
  EXPECT_EQ(page["answer"]["name"], winner);
  EXPECT_GT(page["answer"]["memory"]["points"].size(), 10U);
  EXPECT_TRUE(job_.exists(results + winner + "/memory.txt"));
  // The same losses with the states here or there, of each stage.
  for (const auto& [name, measured] : metrics) {
    std::string other = name;
    const auto at = other.find("oo_dcpu");
    if (at == std::string::npos) continue;
    other.replace(at, 7, "oo_None");
    ASSERT_TRUE(metrics.contains(other)) << other;
    expect_same_losses(measured, metrics.at(other));
  }

  space_["dstune"]["host_memory"] = 1000;
  job_.write("space.json", space_);
  const Json shown = plan();
  EXPECT_EQ(shown["counts"]["infeasible"], 3);
  for (const Json& one : shown["experiments"]) {
    if (one["status"] != "infeasible") continue;
    const std::string reason = one["reason"];
    EXPECT_THAT(reason,
                AllOf(HasSubstr(" here (optimizer "), HasSubstr(", but the host has 1000 B")));
  }
}

TEST_F(MemoryTest, LeavesOutWhatTheTargetCanNotHold) {
  space_["dstune"]["target"] = {{"attention", "eager"}};
  space_["train_micro_batch_size_per_gpu"] = {8};
  job_.write("space.json", space_);
  const Json free = plan();
  std::int64_t most_ours = 0;
  std::int64_t least_target = std::numeric_limits<std::int64_t>::max();
  for (const Json& one : free["experiments"]) {
    most_ours = std::max(most_ours, one["predicted"]["peak_memory_bytes"].get<std::int64_t>());
    least_target =
        std::min(least_target, one["predicted"]["target_memory_bytes"].get<std::int64_t>());
  }
  ASSERT_LT(most_ours, least_target);
  limit_memory((most_ours + least_target) / 2);
  const Json shown = plan({}, nothing_feasible);
  EXPECT_EQ(shown["counts"]["infeasible"], 4);
  for (const Json& one : shown["experiments"]) {
    const std::string reason = one["reason"];
    EXPECT_THAT(reason, HasSubstr("iB")) << "no amounts in: " << reason;
  }
}

TEST_F(MemoryTest, EndsWithFourWhereNothingFits) {
  limit_memory("4KiB");
  EXPECT_EQ(plan({}, nothing_feasible)["counts"]["infeasible"], 8);
  const Ended ended = run({"--format", "json"});
  expect_exit(job_, ended, nothing_feasible);
  const Json shown = printed(ended);
  EXPECT_TRUE(shown["best"].is_null());
  EXPECT_EQ(shown["counts"]["infeasible"], 8);
  EXPECT_EQ(shown["exit_code"], nothing_feasible);
  EXPECT_FALSE(job_.exists(results + "ds_config_optimal.json"));
  EXPECT_THAT(job_.read(results + "summary.txt"), HasSubstr("infeasible"));
}

TEST(SmallPagesTest, TheLauncherKeepsTheSystemFromHugePages) {
  Job job;
  const Ended ended = job.run({.ranks = 0,
                               .launcher = {DSTUNE_E2E_SMALL_PAGES},
                               .program = {"/bin/grep", "THP_enabled", "/proc/self/status"}});
  EXPECT_EQ(ended.out, "THP_enabled:\t0\n") << ended;
}

/// Large enough that 2 % is more than what a process does as it pleases. What the system does as it
/// pleases is left out: where it may, it fills the holes of a heap by huge pages at any time, 2 MiB
/// each, of which the prediction can not know.
TEST_F(MemoryTest, PredictsTheProcessWithinTwoPercent) {
  Json config = tiny_gpt2_config();
  config["n_embd"] = 512;
  config["n_head"] = 8;
  config["vocab_size"] = 16384;
  job_.write("config.json", config);
  space_["train_micro_batch_size_per_gpu"] = {1};
  space_["zero_optimization"] = {{"stage", {0, 2, 3}}};
  job_.write("space.json", space_);
  Process process = job_.start(
      {.ranks = 2, .args = {"space.json"}, .launcher = {DSTUNE_E2E_SMALL_PAGES}, .limit_s = 220});
  wait_for_finished(process, 3);
  // The finals would take most of the time, the more the busier the machine is.
  process.signal(SIGUSR1);
  const Ended ended = process.wait();
  EXPECT_FALSE(ended.is_late) << ended;
  const auto metrics = all_metrics(job_);
  ASSERT_EQ(metrics.size(), 3) << ended;
  for (const auto& [name, measured] : metrics) {
    const double predicted = measured["predicted"]["process_memory_bytes"];
    const double found = measured["peak_memory_bytes"]["process"];
    const double arena = measured["peak_memory_bytes"]["total"];
    EXPECT_GT(arena, 100e6) << name;
    EXPECT_NEAR(found, predicted, 0.02 * predicted) << name << ", arena " << arena;
  }
}

}  // namespace
}  // namespace dstune::e2e
