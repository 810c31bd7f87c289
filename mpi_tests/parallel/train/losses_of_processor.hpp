#pragma once
/// Trainings on a device with memory and queues of its own against those on the processor, in the
/// same program. device_training.hpp, one of several files of that name, says what device that is:
/// DeviceTraining has
/// - takes_all_cases: whether trainings take so little time there that all of them are tried;
/// - runs_twice: whether a training is run twice and has to give the same bits;
/// - device_kernels(): a table with the workspaces that plans for it have;
/// - device_course(): a plan's training, in an order of its work that a number draws;
/// - expect_alike(): how near its losses are to the processor's.

#include "device_training.hpp"

namespace dstune::test {

class LossesOfProcessor : public DeviceTraining {
 protected:
  /// In this order; in every other one with red zones. Collective over the job.
  static void expect_losses_of_processor(const ModelSpec& model, const TrainingConfig& config,
                                         std::int64_t seed, std::uint64_t order) {
    const StepPlan plan = plan_of(model, config, device_kernels());
    const Guard guard = order % 2 == 0 ? Guard::none : Guard::red_zones;
    const Course found = device_course(plan, seed, order, guard);
    SCOPED_TRACE("order " + std::to_string(order));
    expect_alike(found, processors_course(model, config, steps, seed), config.precision);
    // Other places in memory change no bit.
    const Guard other = order % 2 == 0 ? Guard::red_zones : Guard::none;
    if (runs_twice) {
      EXPECT_EQ(device_course(plan, seed, order, other), found);
    }
  }
};

}  // namespace dstune::test
