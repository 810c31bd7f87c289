#pragma once
/// A training on all ranks of the job, with what it did to memory.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/comm/communicator.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/train/executor.hpp"
#include "matched_group.hpp"
#include "watchdog.hpp"

namespace dstune::test {

/// Groups over the whole job.
class Job {
 public:
  explicit Job(const GroupTable::Options& options = {})
      : world_(Communicator::world().duplicate()),
        node_(world_.split_shared()),
        topology_(find_topology(world_, node_)),
        table_(world_, node_, topology_, {everyone()}, options) {}

  [[nodiscard]] int rank() const { return topology_.world_rank; }
  [[nodiscard]] int size() const { return topology_.world_size; }
  /// How the collectives of all ranks go, where they work on devices.
  [[nodiscard]] std::string way() const { return table_.devices()->transport_of(everyone()).text; }
  std::unique_ptr<ProcessGroup> join() { return join(everyone()); }
  std::unique_ptr<ProcessGroup> join_alone() { return join({rank()}); }

 private:
  std::unique_ptr<ProcessGroup> join(const std::vector<int>& world_ranks) {
    // Before the watchdog ends it, which would not say what it was at.
    const double limit_s = test::test_limit_s() > 0 ? test::test_limit_s() * 2 / 3 : 3600;
    const auto deadline =
        Waiter::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * limit_s));
    return table_.join(world_ranks, ++attempt_, {deadline, nullptr, topology_.share_core});
  }
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

/// The largest relative difference of two series; infinite where a number is none.
inline double largest_difference(const std::vector<double>& losses,
                                 const std::vector<double>& reference) {
  EXPECT_EQ(losses.size(), reference.size());
  double largest = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const double difference = std::abs(losses[step] - reference[step]) / reference[step];
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

/// How far apart the losses of two ways to train are at most: docs/inside/reference-step.md,
/// section 7.
constexpr double tolerance_of(Precision precision) {
  return precision == Precision::fp32 ? 1e-5 : precision == Precision::bf16 ? 1e-3 : 1e-4;
}

/// Of trainings in fp16 of which two to five updates are skipped: with that seed none so near to
/// what would not be that another order of sums decides (tolerance_test.cpp).
constexpr LossScale skipping{.initial_power = 21, .hysteresis = 1};
constexpr std::int64_t skipping_seed(std::int64_t seed) {
  return seed + 1;
}

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
    /// Bit for bit, so that equal NaNs are equal, too.
    bool operator==(const Course& other) const {
      const auto bits = [](double loss) { return std::bit_cast<std::uint64_t>(loss); };
      return skipped_steps == other.skipped_steps &&
             std::ranges::equal(losses, other.losses, {}, bits, bits);
    }
    friend std::ostream& operator<<(std::ostream& out, const Course& course) {
      return out << "losses " << testing::PrintToString(course.losses) << ", skipped "
                 << testing::PrintToString(course.skipped_steps);
    }
  };

  /// The losses of so many steps.
  static std::vector<double> train(const ModelSpec& model, const TrainingConfig& config, int steps,
                                   std::int64_t seed) {
    return course(model, config, steps, seed).losses;
  }

  /// So many steps. Expects that the arenas' own accounts are the plan's, that nothing is written
  /// beyond a tensor's end, and that all ranks call the same collectives. Collective over the job.
  static Course course(const ModelSpec& model, const TrainingConfig& config, int steps,
                       std::int64_t seed, Guard guard = Guard::red_zones) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    MatchedGroup matched(*group);
    return course(matched, model, config, steps, seed, guard);
  }

  /// Whether the same updates were skipped and no loss is farther off than that, relative.
  static bool are_near(const Course& found, const Course& expected, double tolerance) {
    return found.skipped_steps == expected.skipped_steps &&
           largest_difference(found.losses, expected.losses) <= tolerance;
  }

  /// The same on a group of this rank alone. Local.
  static Course course_alone(const ModelSpec& model, const TrainingConfig& config, int steps,
                             std::int64_t seed) {
    return course(*job().join_alone(), model, config, steps, seed, Guard::none);
  }

  /// From the first step on.
  static Course run(Executor& executor, int steps) {
    executor.initialize();
    Course course;
    for (int step = 0; step < steps; ++step) {
      const StepOutcome outcome = executor.step(step);
      course.losses.push_back(outcome.loss);
      if (outcome.skipped) course.skipped_steps.push_back(step);
    }
    return course;
  }

  /// A plan's, on a device.
  static Course course(const StepPlan& plan, Device& device, ProcessGroup& group, int steps,
                       std::int64_t seed, Guard guard) {
    Executor executor(plan, device, group, seed, guard);
    const Course course = run(executor, steps);
    // Where every update was skipped, the plan's fullest instant may never have come.
    if (course.skipped_steps.size() < static_cast<std::size_t>(steps)) {
      expect_equal(device.arena().account(), plan.memory);
      expect_equal(device.host_arena().account(), plan.host_memory);
    } else {
      EXPECT_LE(device.arena().account().high_water_bytes, plan.memory.arena_bytes);
      EXPECT_LE(device.host_arena().account().high_water_bytes, plan.host_memory.arena_bytes);
    }
    EXPECT_EQ(executor.damage(), std::vector<std::string>());
    return course;
  }

  static Course processors_course(const ModelSpec& model, const TrainingConfig& config, int steps,
                                  std::int64_t seed) {
    return course(*job().join(), model, config, steps, seed, Guard::none);
  }

  /// The plan of this rank of the job for kernels like these.
  static StepPlan plan_of(const ModelSpec& model, const TrainingConfig& config,
                          const kernels::Table& kernels) {
    return build_step_plan(model, config, job().size(), job().rank(), CpuWorkspaces(kernels));
  }

 private:
  static Course course(ProcessGroup& group, const ModelSpec& model, const TrainingConfig& config,
                       int steps, std::int64_t seed, Guard guard) {
    CpuDevice device(256 << 20, 1);
    const StepPlan plan = build_step_plan(model, config, group.size(), group.group_rank(),
                                          CpuWorkspaces(device.kernels()));
    return course(plan, device, group, steps, seed, guard);
  }

  static void expect_equal(const Arena::Account& account, const MemoryPlan& plan) {
    EXPECT_EQ(account.high_water_bytes, plan.arena_bytes);
    EXPECT_EQ(account.peak_live_bytes, plan.peak_live_bytes);
    for (std::size_t category = 0; category < num_categories; ++category)
      EXPECT_EQ(account.categories_at_peak[category], plan.categories_at_peak[category]);
  }

  static inline Job* job_ = nullptr;
};

}  // namespace dstune::test
