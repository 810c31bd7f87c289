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
  /// Of a plan. Collective over the job.
  static Course shuffled_course(const StepPlan& plan, std::int64_t seed, std::uint64_t order,
                                Guard guard) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    MatchedGroup matched(*group);
    ShuffledDevice device(256 << 20, order);
    ShuffledGroup shuffled(matched, device.shuffled_queues());
    const Course found = course(plan, device, shuffled, steps, seed, guard);
    EXPECT_GT(device.shuffled_queues().done(), 0);
    return found;
  }
};

}  // namespace dstune::test
