#pragma once
/// A training on all ranks of the job, with what it did to memory.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/comm/communicator.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/train/executor.hpp"

namespace dstune::test {

/// Groups over the whole job.
class Job {
 public:
  Job()
      : world_(Communicator::world().duplicate()),
        node_(world_.split_shared()),
        topology_(find_topology(world_, node_)),
        table_(world_, node_, topology_, {everyone()}, {}) {}

  [[nodiscard]] int rank() const { return topology_.world_rank; }
  [[nodiscard]] int size() const { return topology_.world_size; }
  std::unique_ptr<ProcessGroup> join() {
    const auto deadline = Waiter::Clock::now() + std::chrono::seconds(40);
    return table_.join(everyone(), ++attempt_, {deadline, nullptr, topology_.share_core});
  }

 private:
  [[nodiscard]] std::vector<int> everyone() const {
    std::vector<int> ranks(static_cast<std::size_t>(topology_.world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  Communicator world_;
  Communicator node_;
  Topology topology_;
  GroupTable table_;
  std::uint64_t attempt_ = 0;
};

class TrainingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { job_ = new Job; }
  static void TearDownTestSuite() {
    delete job_;
    job_ = nullptr;
  }
  static Job& job() { return *job_; }

  /// What a training gives: a loss a step, and the steps that left their update out (fp16).
  struct Course {
    std::vector<double> losses;
    std::vector<std::int64_t> skipped_steps;
    bool operator==(const Course&) const = default;
  };

  /// The losses of so many steps.
  static std::vector<double> train(const ModelSpec& model, const TrainingConfig& config, int steps,
                                   std::int64_t seed) {
    return course(model, config, steps, seed).losses;
  }

  /// So many steps. Expects of memory: the arena's own account is the plan's, and
  /// nothing beyond the plan's bytes is written. Collective over the job.
  static Course course(const ModelSpec& model, const TrainingConfig& config, int steps,
                       std::int64_t seed) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice device(256 << 20, 1);
    const StepPlan plan = build_step_plan(model, config, group->size(), group->group_rank(),
                                          CpuWorkspaces(device.kernels()));
    const Guarded guarded[] = {{device.arena(), plan.memory},
                               {device.host_arena(), plan.host_memory}};

    Executor executor(plan, device, *group, seed);
    executor.initialize();
    Course course;
    for (int step = 0; step < steps; ++step) {
      const StepOutcome outcome = executor.step(step);
      course.losses.push_back(outcome.loss);
      if (outcome.skipped) course.skipped_steps.push_back(step);
    }

    for (const Guarded& each : guarded) each.check();
    return course;
  }

 private:
  /// An arena with bytes behind the plan's that nothing may touch.
  class Guarded {
   public:
    Guarded(Arena& arena, const MemoryPlan& plan) : arena_(arena), plan_(plan) {
      arena.prepare(plan.arena_bytes + guard_bytes);
      std::fill(guard(), guard() + guard_bytes, guard_value);
    }
    void check() const {
      const Arena::Account& account = arena_.account();
      EXPECT_EQ(account.high_water_bytes, plan_.arena_bytes);
      EXPECT_EQ(account.peak_live_bytes, plan_.peak_live_bytes);
      for (std::size_t category = 0; category < num_categories; ++category)
        EXPECT_EQ(account.categories_at_peak[category], plan_.categories_at_peak[category]);
      EXPECT_TRUE(std::all_of(guard(), guard() + guard_bytes,
                              [](std::byte value) { return value == guard_value; }));
    }

   private:
    static constexpr std::int64_t guard_bytes = 1 << 16;
    static constexpr std::byte guard_value{0xA5};
    [[nodiscard]] std::byte* guard() const { return arena_.base() + plan_.arena_bytes; }

    Arena& arena_;
    const MemoryPlan& plan_;
  };

  static inline Job* job_ = nullptr;
};

/// The largest relative difference of two series.
inline double largest_difference(const std::vector<double>& losses,
                                 const std::vector<double>& reference) {
  EXPECT_EQ(losses.size(), reference.size());
  double largest = 0;
  for (std::size_t step = 0; step < losses.size(); ++step)
    largest = std::max(largest, std::abs(losses[step] - reference[step]) / reference[step]);
  return largest;
}

}  // namespace dstune::test
