// Any number of ranks, sizes that do not divide it, groups of different sizes at the same time.
#include <gtest/gtest.h>
#include <sched.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

struct Case {
  int ranks;
  std::vector<int> sizes;
  std::vector<int> micro_batches;
  bool overlaps;  ///< do groups of two sizes fit at the start?
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.ranks << " ranks";
}

class RanksTest : public testing::TestWithParam<Case> {};

TEST_P(RanksTest, RunsGroupsOfEverySizeWithoutCollision) {
  const Case& one = GetParam();
  Job job;
  // Few experiments overlap on few ranks: those last longer.
  job.write("space.json", synthetic_space(one.sizes, one.micro_batches,
                                          one.overlaps && one.ranks <= 4 ? 0.1 : 0.03));
  const Ended ended = job.run({.ranks = one.ranks, .args = {"space.json"}, .limit_s = 180});
  const auto metrics = expect_all_ok(job, ended, one.sizes.size() * one.micro_batches.size());
  for (const auto& [name, measured] : metrics) {
    const int size = job.read_json(results + name + "/exp.json")["num_gpus"];
    const std::set<int> ranks = ranks_of(measured);
    EXPECT_EQ(ranks.size(), size) << name;
    EXPECT_GE(*ranks.begin(), 0);
    EXPECT_LT(*ranks.rbegin(), one.ranks);
  }
  expect_no_rank_used_twice(metrics);
  if (one.overlaps) {
    EXPECT_TRUE(have_different_sizes_overlapped(metrics));
  }
  const Json optimal = optimal_of(job);
  EXPECT_EQ(optimal["num_gpus"], one.sizes.back());
  EXPECT_EQ(job.read_json(results + "ds_config_optimal.json")["train_micro_batch_size_per_gpu"],
            one.micro_batches.back());
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest,
                         testing::Values(Case{1, {1}, {1, 2}, false},
                                         Case{2, {1, 2}, {1, 2}, false},
                                         Case{3, {1, 2, 3}, {1}, true},
                                         Case{4, {1, 3, 4}, {1}, true},
                                         Case{8, {1, 3, 5, 8}, {1, 2, 3}, true},
                                         Case{64, {8, 24, 32, 64}, {1, 2, 3}, true}),
                         [](const auto& one) { return "np" + std::to_string(one.param.ranks); });

TEST(BackfillTest, ARankThatGroupsOfThreeLeaveOverRunsOthersBesideThem) {
  Job job;
  job.write("space.json", synthetic_space({3, 1}, {1, 2, 3, 4, 5, 6}, 0.1));
  const Ended ended = job.run({.ranks = 4, .args = {"space.json"}});
  expect_exit(job, ended, 0);
  const auto metrics = all_metrics(job);
  int beside_three = 0;
  for (const auto& [name, one] : metrics) {
    if (ranks_of(one).size() != 1) continue;
    beside_three += std::ranges::any_of(metrics, [&](const auto& other) {
      return ranks_of(other.second).size() == 3 && is_overlapping(one, other.second);
    });
  }
  // None where the fourth rank waits for all groups of three; the last may come behind them.
  EXPECT_GE(beside_three, 5);
}

TEST(ManyRanksTest, TrainATinyTransformer) {
  Job job;
  Json space = transformer_space({8, 32});
  space["zero_optimization"]["stage"] = {0, 3};
  // DeepSpeed's buckets of half a gigabyte for 64 ranks of the target would not fit a small host.
  space["dstune"]["target"] = "self";
  write_transformer(job, space);
  const Ended ended = job.run({.ranks = 64, .args = {"space.json"}, .limit_s = 180});
  const auto metrics = expect_all_ok(job, ended, 4);
  for (const auto& [name, measured] : metrics)
    EXPECT_EQ(measured["peak_memory_bytes"]["total"], measured["predicted"]["peak_memory_bytes"])
        << name;
  expect_no_rank_used_twice(metrics);
  EXPECT_TRUE(have_different_sizes_overlapped(metrics));
}

TEST(ThreadsTest, AreThoseOfOpenMpsVariableElseOfTheBinding) {
  Job job;
  job.write("space.json", synthetic_space({1}, {1}));
  const auto threads = [&](const char* asked, const std::vector<std::string>& launcher) {
    const Ended ended = job.run({.ranks = 1,
                                 .args = {"--overwrite", "space.json"},
                                 .environment = {{"OMP_NUM_THREADS", asked}},
                                 .launcher = launcher});
    expect_exit(job, ended, 0);
    return job.read_json(results + "environment.json")["ranks"][0]["threads"].get<int>();
  };
  EXPECT_EQ(threads("3", {}), 3);
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  EXPECT_LE(threads("", {}), CPU_COUNT(&own));
  int first = 0;
  while (!CPU_ISSET(first, &own)) ++first;
  const std::vector<std::string> bound{"taskset", "-c", std::to_string(first)};
  EXPECT_EQ(threads("", bound), 1);
  EXPECT_EQ(threads("2", bound), 2);
}

TEST(CoordinatorTest, LeavesRankZeroOutWhereItIsDedicated) {
  Job job;
  job.write("space.json", synthetic_space({1, 2}, {1, 2}, 0.01));
  const Ended ended = job.run({.ranks = 3, .args = {"--coordinator", "dedicated", "space.json"}});
  const auto metrics = expect_all_ok(job, ended, 4);
  for (const auto& [name, measured] : metrics) EXPECT_FALSE(ranks_of(measured).contains(0)) << name;
  expect_no_rank_used_twice(metrics);
}

}  // namespace
}  // namespace dstune::e2e
