#include "dstune/plan/step_plan.hpp"

#include <array>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using test::build;
using test::count_of;
using test::traffic_of;

TEST(StepPlanTest, AGroupOfOneCommunicatesNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(traffic_of(build(test::tiny_gpt2(), test::tiny_config(stage), 1)).calls, 0);
  }
}

TEST(StepPlanTest, Stage0CutsItsReductionAtHalfABillion) {
  const StepPlan plan = build(preset("gpt2-xl"), test::tiny_config(0), 2);
  EXPECT_EQ(traffic_of(plan).calls, 4);  // 1,557,611,200 elements
  EXPECT_EQ(traffic_of(plan.cycle.back().steps, 2).calls, 4);
}

TEST(StepPlanTest, FoldsMicroSteps) {
  using enum Segment::Kind;
  const auto kinds = [](int stage, std::int64_t accumulation, bool offloads = false) {
    TrainingConfig config = test::tiny_config(stage);
    config.accumulation_steps = accumulation;
    if (offloads) config.offload_optimizer = OffloadDevice::cpu;
    std::vector<std::pair<Segment::Kind, std::int64_t>> result;
    for (const Segment& segment : build(test::tiny_gpt2(), config, 2).cycle)
      result.emplace_back(segment.kind, segment.repeat);
    return result;
  };
  using Kinds = std::vector<std::pair<Segment::Kind, std::int64_t>>;
  const Kinds last_is_another{{first_micro, 1}, {middle_micro, 7}, {last_micro, 1}, {update, 1}};
  const Kinds last_is_alike{{first_micro, 1}, {middle_micro, 8}, {update, 1}};
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_EQ(kinds(stage, 1), (Kinds{{only_micro, 1}, {update, 1}}));
    EXPECT_EQ(kinds(stage, 9), stage == 1 ? last_is_another : last_is_alike) << stage;
    EXPECT_EQ(kinds(stage, 9, true), stage == 0 ? last_is_alike : last_is_another) << stage;
  }
  EXPECT_EQ(kinds(1, 2), (Kinds{{first_micro, 1}, {last_micro, 1}, {update, 1}}));
  EXPECT_EQ(kinds(2, 2), (Kinds{{first_micro, 1}, {middle_micro, 1}, {update, 1}}));
}

TEST(StepPlanTest, OneLargeBucketIsReducedAfterAllOfBackward) {
  TrainingConfig config = test::tiny_config(2);
  config.overlap_comm = true;
  config.reduce_bucket_size = 500'000'000;
  const StepPlan plan = build(test::tiny_gpt2(), config, 2);
  const auto& steps = plan.cycle.front().steps;
  ASSERT_EQ(traffic_of(steps, 2).calls, 1);
  const auto reduction = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    return std::holds_alternative<op::AllReduceAverage>(step.operation);
  });
  const auto last_compute = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    return std::holds_alternative<op::EmbeddingBackward>(step.operation);
  });
  EXPECT_LT(last_compute, reduction);
}

TEST(StepPlanTest, SmallBucketsAreReducedDuringBackward) {
  TrainingConfig config = test::tiny_config(2);
  config.overlap_comm = true;
  const StepPlan plan = build(test::tiny_gpt2(), config, 2);
  const auto& steps = plan.cycle.front().steps;
  bool during = false;
  bool reduced = false;
  for (const Step& step : steps) {
    if (std::holds_alternative<op::AllReduceAverage>(step.operation)) {
      EXPECT_EQ(step.stream, Stream::reduce);
      reduced = true;
    }
    during = during || (reduced && std::holds_alternative<op::AttentionBackward>(step.operation));
  }
  EXPECT_TRUE(during);
}

TEST(StepPlanTest, WithoutOverlapThereIsOneStream) {
  for (int stage = 0; stage <= 3; ++stage) {
    const StepPlan plan = build(test::tiny_gpt2(), test::tiny_config(stage), 3);
    EXPECT_EQ(plan.num_events, 0);
    for (const Segment& segment : plan.cycle)
      for (const Step& step : segment.steps) EXPECT_EQ(step.stream, Stream::compute);
  }
}

TEST(StepPlanTest, Fp16PutsBehindAGuardWhatASkippedStepLeavesOut) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const double clipping : {0.0, 1.0}) {
      TrainingConfig config = test::tiny_config(stage);
      config.precision = Precision::fp16;
      config.gradient_clipping = clipping;
      const StepPlan plan = build(test::tiny_gpt2(), config, 2);
      ASSERT_EQ(plan.cycle.size(), 3U);
      EXPECT_EQ(plan.cycle[1].kind, Segment::Kind::update);
      EXPECT_EQ(plan.cycle[2].kind, Segment::Kind::guarded_update);
      const std::vector<Step>& always = plan.cycle[1].steps;
      const std::vector<Step>& guarded = plan.cycle[2].steps;
      EXPECT_EQ(count_of<op::FinishLoss>(always), 1);
      EXPECT_EQ(count_of<op::AccumulateSquares>(always), 1);
      EXPECT_TRUE(std::holds_alternative<op::CheckOverflow>(always.back().operation));
      EXPECT_EQ(std::get<op::CheckOverflow>(always.back().operation).over_group, stage > 0);
      EXPECT_EQ(count_of<op::ClipFactor>(guarded), clipping > 0 ? 1 : 0);
      EXPECT_EQ(count_of<op::UpdateParameters>(guarded), 1);
      // The parameters of stages 1 and 2 at once; stage 3's norms and biases, which stay whole.
      constexpr std::array gathers{0, 1, 1, 3 * 8 + 2};
      EXPECT_EQ(count_of<op::AllGather>(guarded), gathers[static_cast<std::size_t>(stage)]);
      EXPECT_EQ(count_of<op::UpdateParameters>(always) + count_of<op::AllGather>(always), 0);
    }
  }
}

TEST(StepPlanTest, Fp16NeedsTheMemoryOfBf16) {
  for (int stage = 0; stage <= 3; ++stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    const MemoryPlan bf16 = build(test::tiny_llama(), config, 4).memory;
    config.precision = Precision::fp16;
    const MemoryPlan fp16 = build(test::tiny_llama(), config, 4).memory;
    test::expect_same_memory(fp16, bf16);
  }
}

TEST(StepPlanTest, EveryInitialWeightIsDrawnOnceInTheGroup) {
  for (int stage = 0; stage <= 3; ++stage) {
    std::int64_t drawn = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const StepPlan plan = build(test::tiny_gpt2(), test::tiny_config(stage), 4, rank);
      for (const auto& fill : test::every<op::FillNormal>(plan.initialize)) drawn += fill.count;
    }
    std::int64_t normal = 0;
    const ParameterTable table(test::tiny_gpt2());
    for (const Parameter& parameter : table.all())
      if (parameter.initial == InitialValue::normal) normal += parameter.elements();
    EXPECT_EQ(drawn, stage == 3 ? normal : 4 * normal);
  }
}

TEST(StepPlanTest, RefusesWhatValidationShouldHaveRefused) {
  TrainingConfig config = test::tiny_config(0);
  EXPECT_THROW(build(test::tiny_gpt2(), config, 2, 2), LogicError);
  config.sequence_length = 20;
  EXPECT_THROW(build(test::tiny_gpt2(), config, 1), LogicError);
  EXPECT_NO_THROW(build(test::tiny_llama(), config, 1));
  config.zero_stage = 4;
  EXPECT_THROW(build(test::tiny_llama(), config, 1), LogicError);
}

}  // namespace
}  // namespace dstune
