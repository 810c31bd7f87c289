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
