#pragma once
/// Trainings on a device that works late.

#include <vector>

#include "golden.hpp"
#include "shuffled_device.hpp"
#include "training.hpp"

namespace dstune::test {

class ShuffledTraining : public TrainingTest {
 protected:
  /// One step that traces, one that gathers for the first time, and those that are alike.
  static constexpr int steps = 4;

  static StepPlan plan_of(const ModelSpec& model, const TrainingConfig& config) {
    return build_step_plan(model, config, job().size(), job().rank(),
                           CpuWorkspaces(kernels::cpu_table()));
  }
  /// Of those steps the micro-steps are recorded, unless a disk has a part in them.
  static constexpr std::int64_t recorded_steps = steps - 2;
  static std::int64_t accumulation(const StepPlan& plan) { return plan.config.accumulation_steps; }
  static bool are_of_queues(const StepPlan& plan) {
    return plan.config.offload_param != OffloadDevice::nvme &&
           plan.config.offload_optimizer != OffloadDevice::nvme;
  }
  /// Of a plan. Collective over the job.
  static Course shuffled_course(const StepPlan& plan, std::int64_t seed, std::uint64_t order,
                                Guard guard) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    MatchedGroup matched(*group);
    ShuffledDevice device(256 << 20, order);
    ShuffledGroup shuffled(matched, device.shuffled_queues());
    const Course found = course(plan, device, shuffled, steps, seed, guard);
    const ShuffledQueues& queues = device.shuffled_queues();
    EXPECT_GT(queues.done(), 0);
    // Red zones are other memory in each step; where something is skipped it may be too early.
    if (guard != Guard::none) {
      EXPECT_EQ(queues.replayed(), 0);
    } else if (found.skipped_steps.empty()) {
      EXPECT_EQ(queues.replayed(), are_of_queues(plan) ? recorded_steps * accumulation(plan) : 0);
    }
    return found;
  }
  static Course processors_course(const StepPlan& plan, std::int64_t seed) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice device(256 << 20, 1);
    return course(plan, device, *group, steps, seed, Guard::none);
  }

  /// In this order; in every other one with red zones. Collective over the job.
  static void expect_losses_of_processor(const ModelSpec& model, const TrainingConfig& config,
                                         std::int64_t seed, std::uint64_t order) {
    const StepPlan plan = plan_of(model, config);
    const Course expected = processors_course(plan, seed);
    const Guard guard = order % 2 == 0 ? Guard::none : Guard::red_zones;
    EXPECT_EQ(shuffled_course(plan, seed, order, guard), expected) << "order " << order;
  }
};

}  // namespace dstune::test
