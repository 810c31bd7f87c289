#pragma once
/// Trainings on a device that works late.

#include "golden.hpp"
#include "shuffled_device.hpp"
#include "training.hpp"

namespace dstune::test {

class ShuffledTraining : public TrainingTest {
 protected:
  /// One step that traces, one that gathers for the first time, and those that are alike.
  static constexpr int steps = 4;

  using TrainingTest::plan_of;
  static StepPlan plan_of(const ModelSpec& model, const TrainingConfig& config) {
    return plan_of(model, config, kernels::cpu_table());
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
};

}  // namespace dstune::test
