/// What the host does not wait for: norms that it need not know, and operations that queues time.

#include <vector>

#include "shuffled_training.hpp"

namespace dstune {
namespace {

using test::Golden;

/// Clipping by a norm that the host need not know.
class ShuffledClippingTest : public test::ShuffledTraining {
 protected:
  static constexpr double limit = 0.05;

  struct Seen {
    std::vector<double> norms;
    std::int64_t host_waits;
  };
  Seen run_shuffled(const TrainingConfig& config) {
    const StepPlan plan = plan_of(golden_.model, config);
    const std::unique_ptr<ProcessGroup> group = job().join();
    test::ShuffledDevice device(256 << 20, 7);
    test::ShuffledGroup shuffled(*group, device.shuffled_queues());
    return {norms(plan, device, shuffled), device.shuffled_queues().host_waits()};
  }
  std::vector<double> norms_of_processor(const TrainingConfig& config) {
    const StepPlan plan = plan_of(golden_.model, config);
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice device(256 << 20, 1);
    return norms(plan, device, *group);
  }
  /// Host waits that clipping costs, beside a step that knows no norm.
  std::int64_t waits_for_clipping(TrainingConfig config) {
    config.gradient_clipping = limit;
    const Seen clipped = run_shuffled(config);
    EXPECT_EQ(clipped.norms, norms_of_processor(config));
    EXPECT_GT(clipped.norms.front(), limit);
    config.gradient_clipping = 0;
    config.computes_gradient_norm = false;
    return clipped.host_waits - run_shuffled(config).host_waits;
  }

  Golden golden_{"gpt2"};

 private:
  std::vector<double> norms(const StepPlan& plan, Device& device, ProcessGroup& group) {
    Executor executor(plan, device, group, golden_.seed);
    executor.initialize();
    std::vector<double> norms;
    for (int step = 0; step < steps; ++step) norms.push_back(executor.step(step).gradient_norm);
    return norms;
  }
};

TEST_F(ShuffledClippingTest, WaitsForNothingWhereTheUpdateIsOnTheDevice) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    EXPECT_EQ(waits_for_clipping(golden_.on(job().size(), stage, 1)), 0);
  }
}

TEST_F(ShuffledClippingTest, WaitsWhereTheUpdateIsOnTheHost) {
  if (job().size() == 4) GTEST_SKIP() << "shows no more than on two ranks";
  TrainingConfig config = golden_.on(job().size(), 2, 1);
  config.offload_optimizer = OffloadDevice::cpu;
  EXPECT_GT(waits_for_clipping(config), 0);
}

/// Steps whose operations are timed.
class ShuffledTraceTest : public test::ShuffledTraining {
 protected:
  static constexpr std::int64_t traced_step = 2;

  /// All losses; the trace is that of one step.
  static std::vector<double> run_traced(Executor& executor, StepTrace& trace) {
    executor.initialize();
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step)
      losses.push_back(executor.step(step, step == traced_step ? &trace : nullptr).loss);
    return losses;
  }
};

TEST_F(ShuffledTraceTest, AreTimedByTheQueuesAndNotByTheHostsWaits) {
  const Golden golden("llama");
  TrainingConfig config = golden.on(job().size(), 3, 1);
  config.overlap_comm = true;
  config.gradient_clipping = 0.05;
  const StepPlan plan = plan_of(golden.model, config);
  const std::unique_ptr<ProcessGroup> group = job().join();
  StepTrace of_processor, of_device;
  CpuDevice cpu(256 << 20, 1);
  Executor processors(plan, cpu, *group, golden.seed);
  const std::vector<double> expected = run_traced(processors, of_processor);
  test::ShuffledDevice device(256 << 20, 3);
  test::ShuffledGroup shuffled(*group, device.shuffled_queues());
  Executor executor(plan, device, shuffled, golden.seed);
  EXPECT_EQ(run_traced(executor, of_device), expected);

  ASSERT_EQ(of_device.size(), of_processor.size());
  std::size_t not_zero = 0;
  for (std::size_t place = 0; place < of_device.size(); ++place) {
    EXPECT_EQ(of_device[place].operation, of_processor[place].operation);
    EXPECT_GE(of_device[place].seconds, 0);
    not_zero += of_device[place].seconds > 0 ? 1 : 0;
  }
  EXPECT_GT(not_zero, of_device.size() / 4);
  if (job().size() > 1) return;  // collectives are waited for
  EXPECT_LT(device.shuffled_queues().host_waits(), std::ssize(of_device) / 4);
}

}  // namespace
}  // namespace dstune
