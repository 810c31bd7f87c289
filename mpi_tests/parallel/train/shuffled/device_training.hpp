#pragma once
/// Trainings on a device that works late with the processor's kernels: the losses are the
/// processor's, bit for bit.

#include "shuffled_training.hpp"

namespace dstune::test {

class DeviceTraining : public ShuffledTraining {
 protected:
  static constexpr bool takes_all_cases = false;
  static constexpr bool runs_twice = false;

  static const kernels::Table& device_kernels() { return kernels::cpu_table(); }
  static Course device_course(const StepPlan& plan, std::int64_t seed, std::uint64_t order,
                              Guard guard) {
    return shuffled_course(plan, seed, order, guard);
  }
  static void expect_alike(const Course& found, const Course& expected, Precision) {
    EXPECT_EQ(found, expected);
  }
};

}  // namespace dstune::test
