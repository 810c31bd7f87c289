#include "dstune/plan/step_plan.hpp"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using test::build;
using test::padded_elements;
using test::round_up;
using test::traffic_of;

template <class Op>
std::int64_t count_of(const std::vector<Step>& steps) {
  return std::count_if(steps.begin(), steps.end(),
                       [](const Step& step) { return std::holds_alternative<Op>(step.operation); });
}

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
  const auto kinds = [](std::int64_t accumulation) {
    TrainingConfig config = test::tiny_config(2);
    config.accumulation_steps = accumulation;
    std::vector<std::pair<Segment::Kind, std::int64_t>> result;
    for (const Segment& segment : build(test::tiny_gpt2(), config, 2).cycle)
      result.emplace_back(segment.kind, segment.repeat);
    return result;
  };
  using Kinds = std::vector<std::pair<Segment::Kind, std::int64_t>>;
  EXPECT_EQ(kinds(1), (Kinds{{only_micro, 1}, {update, 1}}));
  EXPECT_EQ(kinds(2), (Kinds{{first_micro, 1}, {last_micro, 1}, {update, 1}}));
  EXPECT_EQ(kinds(9), (Kinds{{first_micro, 1}, {middle_micro, 7}, {last_micro, 1}, {update, 1}}));
}

TEST(StepPlanTest, Stage1CommunicatesInItsLastMicroStepOnly) {
  TrainingConfig config = test::tiny_config(1);
  config.accumulation_steps = 3;
  for (const bool overlap : {false, true}) {
    config.overlap_comm = overlap;
    const StepPlan plan = build(test::tiny_gpt2(), config, 2);
    EXPECT_EQ(traffic_of(plan.cycle[0].steps, 2).calls, 0);
    EXPECT_EQ(traffic_of(plan.cycle[1].steps, 2).calls, 0);
    EXPECT_GT(traffic_of(plan.cycle[2].steps, 2).calls, 1);
  }
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

TEST(StepPlanTest, ModelStatesAreThoseOfThePublishedFormulas) {
  // P parameters over N ranks in bf16, bytes: 2P + 2P + 12P, 2P + 2P + 12P/N (+ the own part's
  // gradients), 2P + 2P/N + 12P/N, 16P/N.
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  const auto persistent = [&](int stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    std::int64_t bytes = 0;
    for (const PlannedTensor& tensor : build(model, config, 4).tensors)
      if (tensor.persistent) bytes += tensor.elements * size_bytes(tensor.dtype);
    return bytes;
  };
  const std::int64_t part = round_up(p, 8) / 4;
  EXPECT_EQ(persistent(0), 16 * p);
  EXPECT_EQ(persistent(1), 2 * round_up(p, 8) + 2 * p + 14 * part);
  EXPECT_EQ(persistent(2), 2 * round_up(p, 8) + 14 * part);
  const ParameterTable table(model);
  std::int64_t shards = 0;
  for (int unit = 0; unit < table.num_units(); ++unit)
    shards += padded_elements(table, unit, 4) / 4;
  // Norms and biases stay whole: those of a block of 10 · 6 + 30 + 37 elements, the final norm's.
  std::int64_t kept = 0;
  for (const Parameter& parameter : table.all())
    if (parameter.columns == 1) kept += round_up(parameter.elements(), 4);
  EXPECT_EQ(persistent(3), 16 * shards + 2 * kept);
}

TEST(StepPlanTest, OffloadedStatesAreThoseOfDeepSpeed) {
  // On the host: fp32 masters, moments and gradients, 16 bytes; what waits there in 16 bit. On the
  // device: parameters, at stage 1 gradients, and staging for the largest parameter.
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  const ParameterTable table(model);
  std::int64_t largest = 0;
  for (const Parameter& parameter : table.all()) largest = std::max(largest, parameter.elements());
  const auto persistent = [&](int stage, std::int64_t accumulation, Memory memory) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    config.accumulation_steps = accumulation;
    config.offload_optimizer = OffloadDevice::cpu;
    config.stage3_param_persistence_threshold = 0;
    std::int64_t bytes = 0;
    for (const PlannedTensor& tensor : build(model, config, 4).tensors)
      if (tensor.persistent && tensor.memory == memory)
        bytes += tensor.elements * size_bytes(tensor.dtype);
    return bytes;
  };
  const std::int64_t part = round_up(p, 8) / 4;
  std::int64_t shards = 0;
  for (int unit = 0; unit < table.num_units(); ++unit)
    shards += padded_elements(table, unit, 4) / 4;
  for (const std::int64_t accumulation : {1, 3}) {
    EXPECT_EQ(persistent(1, accumulation, Memory::host), 18 * part + 2 * largest);
    EXPECT_EQ(persistent(1, accumulation, Memory::device),
              2 * round_up(p, 8) + 2 * p + 2 * largest);
    EXPECT_EQ(persistent(2, accumulation, Memory::device), 2 * round_up(p, 8) + 2 * largest);
    EXPECT_EQ(persistent(3, accumulation, Memory::host), 18 * shards);
    EXPECT_EQ(persistent(3, accumulation, Memory::device), 2 * shards);
  }
  EXPECT_EQ(persistent(2, 1, Memory::host), 18 * part + 2 * largest);
  // Sums over micro-steps are of whole parameters, however little of them is the rank's own.
  const std::int64_t sums = persistent(2, 3, Memory::host) - persistent(2, 1, Memory::host);
  EXPECT_GT(sums, 2 * part);
  EXPECT_LE(sums, 2 * (part + 2 * largest));
}

/// Elements that a step copies from one memory to the other.
std::int64_t copied(const StepPlan& plan, Memory to) {
  std::int64_t elements = 0;
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto* copy = std::get_if<op::Copy>(&step.operation);
      if (copy == nullptr) continue;
      const auto tensor = static_cast<std::size_t>(copy->y.tensor);
      if (plan.tensors[tensor].memory == to) elements += copy->count * segment.repeat;
    }
  }
  return elements;
}

TEST(StepPlanTest, OffloadedGradientsTravelAsInDeepSpeed) {
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  for (const std::int64_t steps : {1, 2, 5}) {
    const auto traffic = [&](int stage, Memory to) {
      TrainingConfig config = test::tiny_config(stage);
      config.accumulation_steps = steps;
      config.offload_optimizer = OffloadDevice::cpu;
      return copied(build(model, config, 1), to);
    };
    const std::int64_t padded = round_up(p, 2);  // of the parameters on their way back
    EXPECT_EQ(traffic(1, Memory::host), p);
    EXPECT_EQ(traffic(1, Memory::device), padded);
    // Sums go to the host in every micro-step and come back for the next.
    EXPECT_EQ(traffic(2, Memory::host), steps == 1 ? p : (steps + 1) * p);
    EXPECT_EQ(traffic(2, Memory::device), padded + (steps - 1) * p);
    // Stage 3 fetches what it has sent even where nothing is added to it.
    EXPECT_EQ(traffic(3, Memory::host), (steps + 1) * p);
    EXPECT_EQ(traffic(3, Memory::device), padded + steps * p);
  }
}

std::int64_t activations_at_peak(std::int64_t layers, ModelFamily family, Recompute recompute) {
  ModelSpec model = family == ModelFamily::gpt2 ? test::tiny_gpt2() : test::tiny_model(family);
  model.hidden_size = 256;
  model.num_heads = 4;
  model.num_kv_heads = model.architecture.norm == NormKind::layer ? 4 : 2;
  model.head_size = 64;
  model.intermediate_size = 1024;
  model.max_positions = 128;
  model.num_layers = layers;
  TrainingConfig config = test::tiny_config(0);
  config.precision = Precision::bf16;
  config.recompute = recompute;
  config.sequence_length = 128;
  return build(model, config, 1)
      .memory.categories_at_peak[static_cast<std::size_t>(Category::activations)];
}

TEST(StepPlanTest, ALayerKeepsThePublishedBytes) {
  const std::int64_t tokens = 2 * 128;
  const std::int64_t h = 256;
  const std::int64_t a = 4;
  const auto of_a_layer = [](ModelFamily family, Recompute recompute) {
    return activations_at_peak(6, family, recompute) - activations_at_peak(5, family, recompute);
  };
  EXPECT_EQ(of_a_layer(ModelFamily::gpt2, Recompute::none), tokens * (32 * h + 4 * a + 16));
  // 12h + 4gh + 6f + 4a + 8 with g = kv heads / heads = 1/2 and f = 1024.
  EXPECT_EQ(of_a_layer(ModelFamily::llama, Recompute::none),
            tokens * (12 * h + 2 * h + 6 * 1024 + 4 * a + 8));
  EXPECT_EQ(of_a_layer(ModelFamily::opt, Recompute::none), tokens * (32 * h + 4 * a + 16));
  EXPECT_EQ(of_a_layer(ModelFamily::bert, Recompute::none), tokens * (32 * h + 4 * a + 16));
  EXPECT_EQ(of_a_layer(ModelFamily::gpt_neox, Recompute::none), tokens * (30 * h + 4 * a + 16));
  // 2h(1 + g) + 4a(1 + g) more.
  EXPECT_EQ(of_a_layer(ModelFamily::qwen3, Recompute::none),
            tokens * (12 * h + 2 * h + 6 * 1024 + 4 * a + 8 + 3 * h + 6 * a));
  using enum ModelFamily;
  for (const ModelFamily family : {gpt2, llama, opt, bert, gpt_neox, qwen3})
    EXPECT_EQ(of_a_layer(family, Recompute::block), tokens * 2 * h) << to_text(family);
}

TEST(StepPlanTest, LogitsComeInChunksOfBoundedSize) {
  TrainingConfig config = test::tiny_config(0);
  config.sequence_length = 1024;
  const StepPlan plan = build(preset("gpt2"), config, 1);
  std::int64_t rows = 0;
  for (const Step& step : plan.cycle.front().steps) {
    if (const auto* loss = std::get_if<op::CrossEntropy>(&step.operation)) {
      EXPECT_EQ(loss->first_row, rows);
      EXPECT_LE(loss->rows * 50257 * 4, std::int64_t{64} << 20);
      EXPECT_FLOAT_EQ(loss->scale, 1.0F / 2048.0F);
      rows += loss->rows;
    }
  }
  EXPECT_EQ(rows, 2048);
}

TEST(StepPlanTest, ClippingIsLeftOutWhereItIsOff) {
  TrainingConfig config = test::tiny_config(1);
  const auto update = [&] { return build(test::tiny_gpt2(), config, 2).cycle.back().steps; };
  EXPECT_EQ(count_of<op::AccumulateSquares>(update()), 1);
  EXPECT_EQ(count_of<op::ClipFactor>(update()), 1);
  config.gradient_clipping = 0;
  EXPECT_EQ(count_of<op::AccumulateSquares>(update()), 0);
  EXPECT_EQ(count_of<op::ClipFactor>(update()), 0);
  EXPECT_EQ(count_of<op::Adam>(update()), 1);
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
      EXPECT_EQ(count_of<op::Adam>(guarded), 1);
      // The parameters of stages 1 and 2 at once; stage 3's norms and biases, which stay whole.
      constexpr std::array gathers{0, 1, 1, 3 * 8 + 2};
      EXPECT_EQ(count_of<op::AllGather>(guarded), gathers[static_cast<std::size_t>(stage)]);
      EXPECT_EQ(count_of<op::Adam>(always) + count_of<op::AllGather>(always), 0);
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
    EXPECT_EQ(fp16.arena_bytes, bf16.arena_bytes);
    EXPECT_EQ(fp16.categories_at_peak, bf16.categories_at_peak);
  }
}

TEST(StepPlanTest, RecomputeRunsForwardAgain) {
  TrainingConfig config = test::tiny_config(3);
  const auto forwards = [&] {
    return count_of<op::AttentionForward>(build(test::tiny_gpt2(), config, 2).cycle[0].steps);
  };
  EXPECT_EQ(forwards(), 3);
  config.recompute = Recompute::block;
  EXPECT_EQ(forwards(), 6);
}

TEST(StepPlanTest, EveryInitialWeightIsDrawnOnceInTheGroup) {
  for (int stage = 0; stage <= 3; ++stage) {
    std::int64_t drawn = 0;
    for (int rank = 0; rank < 4; ++rank) {
      for (const Step& step :
           build(test::tiny_gpt2(), test::tiny_config(stage), 4, rank).initialize) {
        if (const auto* fill = std::get_if<op::FillNormal>(&step.operation)) drawn += fill->count;
      }
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
  ModelSpec windowed = test::tiny_llama();
  windowed.attention_window = 20;
  EXPECT_NO_THROW(build(windowed, config, 1));
  windowed.attention_window = 19;
  EXPECT_THROW(build(windowed, config, 1), LogicError);
  config.zero_stage = 4;
  EXPECT_THROW(build(test::tiny_llama(), config, 1), LogicError);
}

}  // namespace
}  // namespace dstune
