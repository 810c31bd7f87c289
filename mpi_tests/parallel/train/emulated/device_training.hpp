#pragma once
/// Trainings with the CUDA kernels, emulated, on a device that works late: as near to the
/// processor's losses as a GPU's have to be.

#include "emulator.hpp"
#include "later_table.hpp"
#include "shuffled_device.hpp"
#include "training.hpp"

namespace dstune::kernels::emulated {
extern const Table table;
}

namespace dstune::test {

class DeviceTraining : public TrainingTest {
 protected:
  static constexpr int steps = 3;
  static constexpr bool takes_all_cases = false;
  static constexpr bool runs_twice = false;

  static const kernels::Table& device_kernels() { return kernels::emulated::table; }
  static Course device_course(const StepPlan& plan, std::int64_t seed, std::uint64_t order,
                              Guard guard) {
    static const kernels::Table later = later_table<device_kernels, ShuffledQueues::ask_current>();
    const std::unique_ptr<ProcessGroup> group = job().join();
    MatchedGroup matched(*group);
    set_emulated_order(static_cast<int>(order));
    ShuffledDevice device(256 << 20, order, later);
    ShuffledGroup shuffled(matched, device.shuffled_queues());
    return course(plan, device, shuffled, steps, seed, guard);
  }
  static void expect_alike(const Course& found, const Course& expected, Precision precision) {
    EXPECT_TRUE(are_near(found, expected, tolerance_of(precision)))
        << found << "\nand on the processor\n"
        << expected;
  }
};

}  // namespace dstune::test
