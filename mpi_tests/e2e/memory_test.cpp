// Configurations that do not fit are an answer.
#include <algorithm>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int nothing_feasible = 4;

/// Peak memory of each member, from the plan.
std::map<std::string, std::int64_t> predicted_bytes(const Json& plan) {
  std::map<std::string, std::int64_t> bytes;
  for (const Json& one : plan["experiments"]) {
    bytes[one["name"]] = one["predicted"]["peak_memory_bytes"];
  }
  return bytes;
}

class MemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    space_ = transformer_space({2});
    space_["train_micro_batch_size_per_gpu"] = {1, 8};
    space_["dstune"]["target"] = "self";
    job_.write("config.json", tiny_gpt2_config());
    job_.write("space.json", space_);
  }
  Json plan(int exit_code) {
    const Ended ended =
        job_.run({.ranks = 2, .args = {"--dry-run", "--format", "json", "space.json"}});
    EXPECT_EQ(ended.exit_code, exit_code) << ended;
    return Json::parse(ended.out, nullptr, false);
  }
  void limit_memory(const Json& device_memory) {
    space_["dstune"]["device_memory"] = device_memory;
    job_.write("space.json", space_);
  }

  Json space_;
  Job job_;
};

TEST_F(MemoryTest, LeavesOutWhatDoesNotFitAndRunsTheRest) {
  const auto bytes = predicted_bytes(plan(0));
  ASSERT_EQ(bytes.size(), 8);
  std::vector<std::int64_t> sorted;
  for (const auto& [name, peak] : bytes) sorted.push_back(peak);
  std::sort(sorted.begin(), sorted.end());
  // Exactly what the fifth needs: it fits, the next one does not.
  const std::int64_t limit_bytes = sorted[4];
  ASSERT_LT(limit_bytes, sorted[7]);
  limit_memory(limit_bytes);

  std::set<std::string> too_large;
  for (const auto& [name, peak] : bytes) {
    if (peak > limit_bytes) too_large.insert(name);
  }
  const Json shown = plan(0);
  EXPECT_EQ(shown["counts"]["infeasible"], too_large.size());
  std::map<std::string, std::string> reasons;
  for (const Json& one : shown["experiments"]) {
    const std::string name = one["name"];
    EXPECT_EQ(one["status"], too_large.contains(name) ? "infeasible" : "planned") << name;
    reasons[name] = one["reason"];
  }

  const Ended ended = job_.run({.ranks = 2, .args = {"space.json"}});
  expect_exit(job_, ended, 0);
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
  const auto planned = names_of(journal(job_), "planned");
  EXPECT_EQ(std::set<std::string>(planned.begin(), planned.end()), too_large);
}

TEST_F(MemoryTest, ParametersOnTheHostAreTheSameTraining) {
  space_["zero_optimization"] = {{"stage", 3},
                                 {"offload_optimizer", {nullptr, {{"device", "cpu"}}}},
                                 {"offload_param", {nullptr, {{"device", "cpu"}}}}};
  space_["train_micro_batch_size_per_gpu"] = {1};
  job_.write("space.json", space_);
  expect_exit(job_, job_.run({.ranks = 2, .args = {"space.json"}}), 0);
  const auto metrics = all_metrics(job_);
  ASSERT_EQ(metrics.size(), 4);
  const Json& losses = metrics.begin()->second["losses"];
  std::set<std::int64_t> on_host;
  for (const auto& [name, measured] : metrics) {
    EXPECT_EQ(measured["status"], "ok") << name;
    const Json& peak = measured["peak_memory_bytes"];
    EXPECT_EQ(peak["total"], measured["predicted"]["peak_memory_bytes"]) << name;
    EXPECT_EQ(peak["host"], measured["predicted"]["host_memory_bytes"]) << name;
    on_host.insert(peak["host"].get<std::int64_t>());
    for (std::size_t step = 0; step < std::min(losses.size(), measured["losses"].size()); ++step)
      EXPECT_EQ(measured["losses"][step], losses[step]) << name << ", step " << step;
  }
  EXPECT_EQ(on_host.size(), 4);
}

TEST_F(MemoryTest, RunsWithStatesOnTheHostWhereTheHostHoldsThem) {
  space_["zero_optimization"] = {{"stage", {1, 2, 3}},
                                 {"offload_optimizer", {nullptr, {{"device", "cpu"}}}}};
  space_["train_micro_batch_size_per_gpu"] = {1};
  space_["dstune"]["host_memory"] = "64MiB";
  job_.write("space.json", space_);
  const Ended ended = job_.run({.ranks = 2, .args = {"space.json"}});
  expect_exit(job_, ended, 0);
  const auto metrics = all_metrics(job_);
  ASSERT_EQ(metrics.size(), 6);
  int offloaded = 0;
  for (const auto& [name, measured] : metrics) {
    EXPECT_EQ(measured["status"], "ok") << name;
    const Json& peak = measured["peak_memory_bytes"];
    EXPECT_EQ(peak["total"], measured["predicted"]["peak_memory_bytes"]) << name;
    EXPECT_EQ(peak["host"], measured["predicted"]["host_memory_bytes"]) << name;
    EXPECT_EQ(peak["total"], peak["device"].get<std::int64_t>() + peak["host"].get<std::int64_t>());
    if (peak["host"] != 0) ++offloaded;
  }
  EXPECT_EQ(offloaded, 3);
  const std::string winner = job_.read_json(results + "optimal.json")["name"];
  const std::string picture = job_.read(results + winner + "/memory.svg");
  EXPECT_NE(picture.find("device memory: at most"), std::string::npos);
  EXPECT_TRUE(job_.exists(results + winner + "/memory.txt"));
  // The same losses with the states here or there, of each stage.
  for (const auto& [name, measured] : metrics) {
    std::string other = name;
    const auto at = other.find("oo_dcpu");
    if (at == std::string::npos) continue;
    other.replace(at, 7, "oo_None");
    ASSERT_TRUE(metrics.contains(other)) << other;
    const Json& mine = measured["losses"];
    const Json& theirs = metrics.at(other)["losses"];
    for (std::size_t step = 0; step < std::min(mine.size(), theirs.size()); ++step)
      EXPECT_EQ(mine[step], theirs[step]) << name << ", step " << step;
  }

  space_["dstune"]["host_memory"] = 1000;
  job_.write("space.json", space_);
  const Json shown = plan(0);
  EXPECT_EQ(shown["counts"]["infeasible"], 3);
  for (const Json& one : shown["experiments"]) {
    if (one["status"] != "infeasible") continue;
    const std::string reason = one["reason"];
    EXPECT_NE(reason.find(" of 1000 B on the host (optimizer "), std::string::npos) << reason;
  }
}

TEST_F(MemoryTest, LeavesOutWhatTheTargetCanNotHold) {
  space_["dstune"]["target"] = {{"attention", "eager"}};
  space_["train_micro_batch_size_per_gpu"] = {8};
  job_.write("space.json", space_);
  const Json free = plan(0);
  std::int64_t most_ours = 0;
  std::int64_t least_target = std::numeric_limits<std::int64_t>::max();
  for (const Json& one : free["experiments"]) {
    most_ours = std::max(most_ours, one["predicted"]["peak_memory_bytes"].get<std::int64_t>());
    least_target =
        std::min(least_target, one["predicted"]["target_memory_bytes"].get<std::int64_t>());
  }
  ASSERT_LT(most_ours, least_target);
  limit_memory((most_ours + least_target) / 2);
  const Json shown = plan(nothing_feasible);
  EXPECT_EQ(shown["counts"]["infeasible"], 4);
  for (const Json& one : shown["experiments"]) {
    const std::string reason = one["reason"];
    EXPECT_NE(reason.find("iB"), std::string::npos) << "no amounts in: " << reason;
  }
}

TEST_F(MemoryTest, EndsWithFourWhereNothingFits) {
  limit_memory("4KiB");
  EXPECT_EQ(plan(nothing_feasible)["counts"]["infeasible"], 8);
  const Ended ended = job_.run({.ranks = 2, .args = {"--format", "json", "space.json"}});
  expect_exit(job_, ended, nothing_feasible);
  const Json shown = Json::parse(ended.out, nullptr, false);
  ASSERT_TRUE(shown.is_object()) << ended;
  EXPECT_TRUE(shown["best"].is_null());
  EXPECT_EQ(shown["counts"]["infeasible"], 8);
  EXPECT_EQ(shown["exit_code"], nothing_feasible);
  EXPECT_FALSE(job_.exists(results + "ds_config_optimal.json"));
  EXPECT_NE(job_.read(results + "summary.txt").find("infeasible"), std::string::npos);
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
  while (process.is_running() && num_finished_so_far(job_) < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
