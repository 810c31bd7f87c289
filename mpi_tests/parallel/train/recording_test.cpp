#include "shuffled_training.hpp"

namespace dstune {
namespace {

using test::Golden;

/// Micro-steps that are recorded once and asked for as a whole.
class ShuffledRecordingTest : public test::ShuffledTraining {
 protected:
  /// How many recordings, how many micro-steps as one, and of how many recordings the memory is
  /// counted in the end.
  struct Counts {
    std::int64_t recorded, replayed, kept;
    bool operator==(const Counts&) const = default;
    friend void PrintTo(const Counts& counts, std::ostream* out) {
      *out << counts.recorded << " recorded, " << counts.replayed << " replayed, " << counts.kept
           << " kept";
    }
  };
  /// Expects the processor's losses of so many steps.
  Counts run_on_both(const TrainingConfig& config, int num_steps, bool is_warm = false) {
    const StepPlan plan = plan_of(golden_.model, config);
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice cpu(256 << 20, 1);
    Executor processors(plan, cpu, *group, golden_.seed);
    const Course expected = run(processors, num_steps);
    test::ShuffledQueues& queues = device_.shuffled_queues();
    test::ShuffledGroup shuffled(*group, queues);
    Executor executor(plan, device_, shuffled, golden_.seed);
    if (is_warm) executor.expect_warm();
    steps_until_alike_ = executor.steps_until_alike();
    EXPECT_EQ(run(executor, num_steps), expected);
    // Profilers show what is asked for.
    EXPECT_EQ(queues.open_ranges(), 0);
    for (const char* const name : {"matmul", "norm_backward", "update"})
      EXPECT_TRUE(queues.names().contains(name)) << name;
    EXPECT_EQ(queues.names().contains("recorded micro-step"), queues.replayed() > 0);
    return {queues.recorded(), queues.replayed(),
            executor.recording_bytes() / test::ShuffledDevice::recording_bytes};
  }

  Golden golden_{"gpt2"};
  test::ShuffledDevice device_{256 << 20, 5};
  int steps_until_alike_ = 0;
};

TEST_F(ShuffledRecordingTest, IsMadeOnceASegment) {
  const TrainingConfig config = golden_.on(job().size(), 1, 3);
  ASSERT_GE(config.accumulation_steps, 3);
  // The first micro-step, those that add to its gradients, and where these are reduced the last.
  const std::int64_t recorded = job().size() == 1 ? 2 : 3;
  EXPECT_EQ(run_on_both(config, 5), (Counts{recorded, 3 * config.accumulation_steps, recorded}));
}

// Where this process has run all operations, one step comes before it; at stage 3 the two that
// differ.
TEST_F(ShuffledRecordingTest, IsMadeSoonerWhereAllIsWarm) {
  for (const int stage : {1, 3}) {
    const TrainingConfig config = golden_.on(job().size(), stage, 3);
    const bool has_tracing = !plan_of(golden_.model, config).tracing.empty();
    const int before = has_tracing ? 2 : 1;
    const Counts counts = run_on_both(config, 5, true);
    EXPECT_EQ(counts.replayed, (5 - before) * config.accumulation_steps);
    EXPECT_EQ(steps_until_alike_, before + 1);
  }
}

TEST_F(ShuffledRecordingTest, IsMadeAnewForAnotherLossScale) {
  TrainingConfig config = golden_.on(job().size(), 1, 1);
  config.precision = Precision::fp16;
  config.loss_scale = {.initial_power = 4, .window = 3};
  // In steps 2, 4 and 7.
  EXPECT_EQ(run_on_both(config, 8), (Counts{3, 6, 1}));
}

TEST_F(ShuffledRecordingTest, IsNobodysWhereARankRefuses) {
  const int refusing = job().size() - 1;
  if (job().rank() == refusing) device_.shuffled_queues().refuse_recordings();
  // It was tried.
  EXPECT_EQ(run_on_both(golden_.on(job().size(), 1, 2), 5), (Counts{1, 0, 0}));
}

}  // namespace
}  // namespace dstune
