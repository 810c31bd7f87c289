/// Measuring a real training step, and an out-of-memory that only one rank has.

#include <string>

#include <gmock/gmock.h>

#include "dstune/instrument/instrument.hpp"
#include "dstune/instrument/workloads.hpp"
#include "dstune/model/parameter_table.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using testing::Each;
using testing::Gt;
using testing::HasSubstr;

class TransformerTest : public test::TrainingTest {
 protected:
  TransformerTest() {
    model_.hidden_size = 32;
    model_.num_layers = 2;
    model_.num_heads = model_.num_kv_heads = 2;
    model_.head_size = 16;
    model_.intermediate_size = 128;
    model_.vocab_size = 101;
    model_.max_positions = 16;
    config_.zero_stage = 2;
    config_.micro_batch = 2;
    config_.accumulation_steps = 2;
    config_.sequence_length = 16;
  }

  /// On this rank's device, in a group of its own.
  Measurement run(Device& device, const MeasureHooks& hooks = {}) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    const Waiter waiter;
    const auto workload =
        make_own_step({&model_, &config_, &name_, 0, &device, group.get(), &waiter});
    return measure(*workload, *group, options_, hooks);
  }
  [[nodiscard]] std::int64_t arena_bytes(const Device& device) const {
    return build_step_plan(model_, config_, job().size(), job().rank(),
                           CpuWorkspaces(device.kernels()))
        .memory.arena_bytes;
  }

  WorkloadSpec spec_;
  ModelSpec model_;
  TrainingConfig config_;
  std::string name_ = "z2_gas2_tmbspg2";
  MeasureOptions options_{3, 5, 0.2, true};
};

TEST_F(TransformerTest, MeasuresAStep) {
  CpuDevice device(64 << 20, 1);
  const Measurement result = run(device);
  ASSERT_EQ(result.status, Status::ok) << result.reason;
  ASSERT_GE(result.warmup_steps, 3);
  ASSERT_GE(static_cast<int>(result.step_times_s.size()), result.warmup_steps + 5);
  ASSERT_EQ(result.losses.size(), result.step_times_s.size());
  EXPECT_THAT(result.step_times_s, Each(Gt(0.0)));
  EXPECT_NEAR(result.losses.front(), std::log(101.0), 0.3);
  // Tokens are drawn anew in each step: the loss of a step that the clock chose may be any.
  EXPECT_LT(result.losses[7], result.losses[0]);
  EXPECT_GT(result.forward_s, 0);
  EXPECT_GT(result.backward_s, 0);
  EXPECT_GT(result.update_s, 0);
  // Phases are of one micro-step, so they fit into the longest step.
  EXPECT_LT(2 * (result.forward_s + result.backward_s) + result.update_s,
            *std::max_element(result.step_times_s.begin(), result.step_times_s.end()));
  EXPECT_EQ(result.peak_memory.total_bytes, arena_bytes(device));
  EXPECT_GT(result.peak_memory.category_bytes.at("activations"), 0);
  EXPECT_GT(result.peak_memory.process_bytes, result.peak_memory.total_bytes);
  const double tokens = 2.0 * 2 * job().size() * 16;
  EXPECT_DOUBLE_EQ(result.flops_per_step, flops_per_token(model_, 16) * tokens);
}

// The code of a plan's operations is compiled once, whatever else a plan does with them.
TEST_F(TransformerTest, WhatIsWarmIsNotWarmedAgain) {
  CpuDevice device(64 << 20, 1);
  const std::unique_ptr<Instrument> instrument = make_instrument({});
  const auto warmup_steps = [&](std::int64_t micro_batch) {
    const std::unique_ptr<ProcessGroup> group = job().join();
    const Waiter waiter;
    config_.micro_batch = micro_batch;
    RunContext context;
    context.model = &model_;
    context.config = &config_;
    context.experiment_name = &name_;
    context.seed = 0;
    context.device = &device;
    context.group = group.get();
    context.waiter = &waiter;
    const auto workload = instrument->make(context);
    return measure(*workload, *group, {.trial_budget_s = 0.2}, {}).warmup_steps;
  };
  EXPECT_GE(warmup_steps(2), 2);
  EXPECT_EQ(warmup_steps(2), 1);
  EXPECT_GE(warmup_steps(1), 2) << "other shapes";
  EXPECT_EQ(warmup_steps(2), 1);
}

TEST_F(TransformerTest, EveryRankGetsTheSameMeasurement) {
  CpuDevice device(64 << 20, 1);
  const Measurement result = run(device);
  double sum = 0;
  for (double step_s : result.step_times_s) sum += step_s;
  const std::vector<double> mine{sum, result.losses.back(), result.forward_s,
                                 static_cast<double>(result.peak_memory.process_bytes)};
  const std::vector<double> all = job().join()->exchange(mine);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], mine[i % mine.size()]);
}

TEST_F(TransformerTest, AStopEndsAllRanksAfterTheSameStep) {
  CpuDevice device(64 << 20, 1);
  int steps = 0;
  MeasureHooks hooks;
  hooks.stepped = [&](double) { return ++steps == 2; };
  const Measurement result = run(device, hooks);
  EXPECT_EQ(result.status, Status::raced_out);
  EXPECT_EQ(result.step_times_s.size(), 3U);
}

TEST_F(TransformerTest, OutOfMemoryOnOneRankAloneIsEverybodysAndTheNextExperimentRuns) {
  CpuDevice device(64 << 20, 1);
  for (int victim = 0; victim < job().size(); ++victim) {
    const bool is_victim = job().rank() == victim;
    const std::int64_t limit = arena_bytes(device) - 1;
    device.arena().free();
    if (is_victim) device.budget().set_limit_bytes(limit);
    const Measurement failed = run(device);
    EXPECT_EQ(failed.status, Status::out_of_memory);
    EXPECT_THAT(failed.reason, HasSubstr("rank " + std::to_string(victim) + ": "));
    EXPECT_THAT(failed.reason, HasSubstr("asked for"));
    EXPECT_THAT(failed.reason, HasSubstr("available"));
    EXPECT_TRUE(failed.losses.empty());

    device.budget().set_limit_bytes(64 << 20);
    EXPECT_EQ(run(device).status, Status::ok);
  }
}

TEST_F(TransformerTest, EachMemberWaitsForGo) {
  CpuDevice device(64 << 20, 1);
  int readies = 0;
  MeasureHooks hooks;
  hooks.ready = [&] { ++readies; };
  EXPECT_EQ(run(device, hooks).status, Status::ok);
  EXPECT_EQ(readies, 1);
}

}  // namespace
}  // namespace dstune
