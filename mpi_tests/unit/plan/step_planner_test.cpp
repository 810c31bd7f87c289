#include <random>

#include <gtest/gtest.h>

#include "dstune/plan/step_plan.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

void expect_equal(const StepPlan& plan, const std::vector<Step>& steps, const StepPlan& other_plan,
                  const std::vector<Step>& others) {
  ASSERT_EQ(steps.size(), others.size());
  for (std::size_t place = 0; place < steps.size(); ++place) {
    const Step& step = steps[place];
    const Step& other = others[place];
    ASSERT_EQ(step.stream, other.stream);
    ASSERT_EQ(step.operation.index(), other.operation.index());
    ASSERT_TRUE(accesses(plan, step.operation) == accesses(other_plan, other.operation));
  }
}

void expect_equal(const StepPlan& plan, const std::vector<Segment>& segments,
                  const StepPlan& other_plan, const std::vector<Segment>& others) {
  ASSERT_EQ(segments.size(), others.size());
  for (std::size_t index = 0; index < segments.size(); ++index) {
    ASSERT_EQ(segments[index].kind, others[index].kind);
    ASSERT_EQ(segments[index].repeat, others[index].repeat);
    expect_equal(plan, segments[index].steps, other_plan, others[index].steps);
  }
}

void expect_equal(const StepPlan& plan, const StepPlan& other) {
  test::expect_same_memory(plan.memory, other.memory);
  test::expect_same_memory(plan.host_memory, other.host_memory);
  test::expect_same_memory(plan.disk, other.disk);
  EXPECT_EQ(plan.num_events, other.num_events);
  ASSERT_EQ(plan.tensors.size(), other.tensors.size());
  for (std::size_t index = 0; index < plan.tensors.size(); ++index) {
    ASSERT_EQ(plan.tensors[index].offset_bytes, other.tensors[index].offset_bytes);
    ASSERT_EQ(plan.tensors[index].padded_bytes, other.tensors[index].padded_bytes);
    ASSERT_EQ(plan.tensors[index].persistent, other.tensors[index].persistent);
  }
  expect_equal(plan, plan.initialize, other, other.initialize);
  expect_equal(plan, plan.tracing, other, other.tracing);
  expect_equal(plan, plan.cycle, other, other.cycle);
}

class Configurations {
 public:
  TrainingConfig next() {
    TrainingConfig config = test::tiny_config(pick({0, 1, 2, 3, 3, 3}));
    config.micro_batch = pick({1, 2, 3});
    config.accumulation_steps = pick({1, 2, 3, 5});
    config.precision = pick({Precision::fp32, Precision::bf16, Precision::fp16});
    config.recompute = pick({Recompute::none, Recompute::selective, Recompute::block});
    config.overlap_comm = pick({false, true});
    config.contiguous_gradients = pick({false, true});
    config.reduce_bucket_size = pick<std::int64_t>({300, 1000, 1'000'000});
    config.offload_optimizer = pick({OffloadDevice::none, OffloadDevice::cpu});
    config.stage3_param_persistence_threshold = pick<std::int64_t>({0, 50});
    config.stage3_prefetch_bucket_size = pick<std::int64_t>({0, 800, 1'000'000});
    config.stage3_max_reuse_distance = pick<std::int64_t>({0, 1500, 1'000'000});
    config.stage3_allgather_sequential = pick({false, true});
    config.stage3_module_granularity_threshold = pick<std::int64_t>({0, 300});
    return config;
  }
  template <class Value>
  Value pick(std::initializer_list<Value> values) {
    return values.begin()[random_() % values.size()];
  }

 private:
  std::mt19937 random_{1};
};

TEST(StepPlanner, PlansEachConfigurationAsIfItWereTheFirst) {
  const test::SomeWorkspaces workspaces;
  for (const ModelSpec& model : {test::tiny_gpt2(), test::tiny_llama()}) {
    StepPlanner planner(model, workspaces);
    Configurations configurations;
    for (int count = 0; count < 300; ++count) {
      const TrainingConfig config = configurations.next();
      const int group_size = configurations.pick({1, 2, 3});
      const int rank = group_size - 1;
      expect_equal(planner.plan(config, group_size, rank),
                   build_step_plan(model, config, group_size, rank, workspaces));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(StepPlanner, FiguresAreThoseOfThePlan) {
  const test::SomeWorkspaces workspaces;
  for (const ModelSpec& model : {test::tiny_gpt2(), test::tiny_llama()}) {
    StepPlanner planner(model, workspaces), other(model, workspaces);
    Configurations configurations;
    for (int count = 0; count < 300; ++count) {
      const TrainingConfig config = configurations.next();
      const int group_size = configurations.pick({1, 2, 3});
      const StepPlan& figures = planner.figures(config, group_size);
      const StepPlan& plan = other.plan(config, group_size, group_size - 1);
      test::expect_same_memory(figures.memory, plan.memory);
      test::expect_same_memory(figures.host_memory, plan.host_memory);
      test::expect_same_memory(figures.disk, plan.disk);
      for (const Segment& segment : figures.cycle) EXPECT_TRUE(segment.steps.empty());
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace dstune
