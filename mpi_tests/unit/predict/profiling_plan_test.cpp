#include "dstune/predict/profiling_plan.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune {
namespace {

std::vector<ProfilingTask> plan(const ModelSpec& model, const std::vector<Experiment>& members,
                                const ProfilingOptions& options = {}) {
  std::vector<const Experiment*> pointers;
  for (const Experiment& member : members) pointers.push_back(&member);
  return plan_profiling(model, pointers, test::SomeWorkspaces(), options);
}

std::vector<Experiment> space(const std::vector<int>& group_sizes) {
  std::vector<Experiment> members;
  for (const int group_size : group_sizes) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t micro_batch : {1, 2, 3, 4, 8}) {
        for (const std::int64_t accumulation : {1, 6}) {
          Experiment member;
          member.shape = {group_size, 1};
          member.config = test::tiny_config(stage);
          member.config.micro_batch = micro_batch;
          member.config.accumulation_steps = accumulation;
          members.push_back(member);
        }
      }
    }
  }
  return members;
}

std::vector<Work> works_of(const StepPlan& plan) {
  std::vector<Work> works;
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps)
      if (const auto work = work_of(plan, step.operation)) works.push_back(*work);
  }
  return works;
}

TEST(ProfilingPlanTest, FewRunsHaveTheSpacesWorkBetweenThem) {
  const ModelSpec model = test::tiny_gpt2();
  const auto members = space({1, 2});
  const auto tasks = plan(model, members);
  ASSERT_EQ(tasks.size(), 2U);
  std::vector<Work> known;
  std::size_t num_runs = 0;
  for (const ProfilingTask& task : tasks) {
    for (const ProfilingRun& run : task.runs) {
      ++num_runs;
      const auto works =
          works_of(test::build(profiling_model(model, run), run.config, task.shape.size()));
      known.insert(known.end(), works.begin(), works.end());
    }
  }
  EXPECT_LT(num_runs * 4, members.size());
  double total = 0;
  double missing = 0;
  for (const Experiment& member : members) {
    for (const Work& work : works_of(test::build(model, member.config, member.shape.size()))) {
      const bool is_known = std::any_of(known.begin(), known.end(),
                                        [&](const Work& one) { return is_same_curve(one, work); });
      total += amount(work);
      if (!is_known) missing += amount(work);
    }
  }
  EXPECT_LT(missing, 0.02 * total);
}

TEST(ProfilingPlanTest, RunsTheSmallestAndTheLargestMicroBatch) {
  const auto tasks = plan(test::tiny_gpt2(), space({1}));
  ASSERT_EQ(tasks.size(), 1U);
  std::vector<std::int64_t> sizes;
  for (const ProfilingRun& run : tasks[0].runs) sizes.push_back(run.config.micro_batch);
  EXPECT_EQ(*std::min_element(sizes.begin(), sizes.end()), 1);
  EXPECT_EQ(*std::max_element(sizes.begin(), sizes.end()), 8);
}

TEST(ProfilingPlanTest, StepsAreShortAndNeverSkipped) {
  for (const ProfilingTask& task : plan(test::tiny_gpt2(), space({2}))) {
    for (const ProfilingRun& run : task.runs) {
      EXPECT_LE(run.config.accumulation_steps, 3);
      EXPECT_EQ(run.config.loss_scale.fixed, 1);
    }
  }
}

TEST(ProfilingPlanTest, CutsALargeModelDown) {
  Experiment member;
  member.config.micro_batch = 1;
  member.config.sequence_length = 64;
  ProfilingOptions options;
  options.max_bytes = std::int64_t{4} << 30;
  const ModelSpec model = preset("gpt2-xl");
  const auto tasks = plan(model, {member}, options);
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks[0].runs.at(0).num_layers, 2);  // the embeddings alone are more than 16 million
}

TEST(ProfilingPlanTest, WhatDoesNotFitIsNotRun) {
  ProfilingOptions options;
  options.max_bytes = 1000;
  EXPECT_TRUE(plan(test::tiny_gpt2(), space({1, 2}), options).empty());
}

TEST(ProfilingPlanTest, ADiskIsTimedApartFromRunsOnTheHost) {
  std::vector<Experiment> members = space({2});
  EXPECT_TRUE(plan(test::wide_gpt2(), members).front().disk.bytes.empty());
  for (Experiment& member : members) {
    member.config.offload_optimizer = OffloadDevice::nvme;
    member.config.disk.folder = "/local";
    member.config.disk.queue_depth = 3;
  }
  ProfilingOptions options;
  options.min_parameters = 1;
  const auto tasks = plan(test::wide_gpt2(), members, options);
  ASSERT_EQ(tasks.size(), 1U);
  const DiskTiming& disk = tasks.front().disk;
  EXPECT_EQ(disk.use, members.front().config.disk);
  ASSERT_GE(disk.bytes.size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(disk.bytes));
  for (const std::int64_t bytes : disk.bytes) EXPECT_EQ(bytes % disk_alignment_bytes, 0);
  EXPECT_LE(disk.bytes.back(), 32 << 20);
  for (const ProfilingRun& run : tasks.front().runs) {
    EXPECT_FALSE(uses_disk(run.config));
    EXPECT_EQ(run.config.disk, DiskUse());
  }
  options.times_disks = false;
  EXPECT_EQ(plan(test::wide_gpt2(), members, options).front().disk, DiskTiming());
}

TEST(ProfilingPlanTest, SharesTheBudgetAndTimesCollectivesBetweenTheirEnds) {
  ProfilingOptions options;
  options.budget_s = 3;
  const auto tasks = plan(test::tiny_gpt2(), space({1, 2, 4}), options);
  double sum = 0;
  for (const ProfilingTask& task : tasks) {
    sum += task.budget_s;
    EXPECT_EQ(task.collectives.empty(), task.shape.size() == 1);
    for (std::size_t i = 1; i < task.collectives.size(); ++i) {
      const Work& before = task.collectives[i - 1];
      const Work& work = task.collectives[i];
      EXPECT_TRUE(is_collective(work.kind));
      EXPECT_TRUE(!is_same_curve(before, work) || before.size < work.size);
    }
  }
  EXPECT_NEAR(sum, 3, 1e-9);
}

TEST(ProfilingPlanTest, TellsHowMuchOfTheWorkAProfileKnows) {
  const ModelSpec model = test::tiny_gpt2();
  const auto members = space({2});
  std::vector<const Experiment*> pointers;
  for (const Experiment& member : members) pointers.push_back(&member);
  const auto share = [&](const DeviceProfile& profile) {
    return known_share(model, pointers, test::SomeWorkspaces(), profile);
  };
  DeviceProfile profile;
  EXPECT_EQ(share(profile), 0);
  GroupProfile group{{2, 1}, 1, {}};
  for (const Experiment& member : members) {
    for (Work work : works_of(test::build(model, member.config, 2))) {
      const std::vector<TimePoint> points{{work.size, 1}};
      work.size = 0;
      (is_collective(work.kind) ? group.collectives : profile.kernels).push_back({work, points});
    }
  }
  profile.groups.push_back(group);
  EXPECT_NEAR(share(profile), 1, 1e-9);

  // Another model has other products, and a profile without collectives lacks those.
  ModelSpec wider = model;
  wider.hidden_size *= 2;
  wider.head_size *= 2;
  EXPECT_LT(known_share(wider, pointers, test::SomeWorkspaces(), profile), 0.9);
  profile.groups.clear();
  EXPECT_LT(share(profile), 1);
  EXPECT_GT(share(profile), 0);
}

}  // namespace
}  // namespace dstune
