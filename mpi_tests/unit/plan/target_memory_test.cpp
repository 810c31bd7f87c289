#include "dstune/plan/target_memory.hpp"

#include <numeric>

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune {
namespace {

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

TrainingConfig mixed(int stage, std::int64_t micro_batch = 1) {
  TrainingConfig config;
  config.zero_stage = stage;
  config.micro_batch = micro_batch;
  config.precision = Precision::bf16;
  return config;
}

TargetMemory of(const ModelSpec& model, const TrainingConfig& config, int group_size,
                TargetAttention attention = TargetAttention::eager) {
  return target_memory(model, config, group_size, {TargetFramework::huggingface, attention, true});
}

std::int64_t largest_micro_batch(const ModelSpec& model, TrainingConfig config, int group_size,
                                 TargetAttention attention, std::int64_t budget_bytes) {
  config.micro_batch = 1;
  while (of(model, config, group_size, attention).total_bytes <= budget_bytes) ++config.micro_batch;
  return config.micro_batch - 1;
}

TEST(TargetMemoryTest, IsNothingForOurselves) {
  const TargetMemory memory =
      target_memory(preset("gpt2"), mixed(1), 4, {TargetFramework::self, TargetAttention::sdpa});
  EXPECT_EQ(memory.total_bytes, 0);
  for (const auto& [part, bytes] : memory.parts) EXPECT_EQ(bytes, 0) << part;
}

TEST(TargetMemoryTest, PartsAddUpToTheTotal) {
  for (int stage = 0; stage <= 3; ++stage) {
    const TargetMemory memory = of(preset("gpt2"), mixed(stage), 4);
    EXPECT_EQ(
        memory.total_bytes,
        std::accumulate(memory.parts.begin(), memory.parts.end(), std::int64_t{0},
                        [](std::int64_t sum, const auto& part) { return sum + part.second; }));
  }
}

TEST(TargetMemoryTest, AnOffloadedOptimizerLeavesStagingOnly) {
  // Of the largest parameter, the table of tokens: 2 bytes as they come, 4 in fp32 on their way.
  const std::int64_t p = parameter_count(preset("gpt2"));
  const std::int64_t largest = 50257 * 768;
  const std::int64_t own = p / 4;
  for (const int stage : {1, 2, 3}) {
    TrainingConfig config = mixed(stage);
    config.overlap_comm = true;
    const TargetMemory on_device = of(preset("gpt2"), config, 4);
    config.offload_optimizer = OffloadDevice::cpu;
    const TargetMemory offloaded = of(preset("gpt2"), config, 4);

    EXPECT_EQ(offloaded.parts.at("optimizer"), 0);
    EXPECT_EQ(offloaded.parts.at("parameters"), on_device.parts.at("parameters"));
    const std::int64_t buckets = offloaded.parts.at("buckets") - on_device.parts.at("buckets");
    if (stage == 1) {
      EXPECT_EQ(offloaded.parts.at("gradients"), 2 * p + 2 * largest);
      EXPECT_EQ(buckets, 4 * own - 2 * own);  // the own part is no longer copied out
    } else if (stage == 2) {
      EXPECT_EQ(offloaded.parts.at("gradients"), 2 * largest);
      EXPECT_EQ(buckets, 4 * own);
    } else {
      EXPECT_EQ(offloaded.parts.at("gradients"), 0);
      EXPECT_EQ(buckets, 6 * (largest / 4));
    }
  }
}

TEST(TargetMemoryTest, OnlyAGpuHasAContext) {
  const TargetSpec on_cpu{TargetFramework::huggingface, TargetAttention::sdpa, false};

  const TargetMemory memory = target_memory(preset("gpt2"), mixed(1), 4, on_cpu);

  EXPECT_EQ(memory.parts.at("framework"), 0);
  EXPECT_LT(memory.total_bytes, of(preset("gpt2"), mixed(1), 4, TargetAttention::sdpa).total_bytes);
}

TEST(TargetMemoryTest, Fp16IsHeldLikeBf16ButForTheUpdateOfStage0) {
  // One token: so little in backward that the update is the fullest instant at stage 0.
  for (int stage = 0; stage <= 3; ++stage) {
    TrainingConfig config = mixed(stage);
    config.sequence_length = 1;
    TargetMemory bf16 = of(preset("gpt2"), config, 1);
    config.precision = Precision::fp16;
    const TargetMemory fp16 = of(preset("gpt2"), config, 1);
    if (stage == 0) {
      EXPECT_EQ(fp16.parts.at("step"), 2 * bf16.parts.at("step"));
      EXPECT_EQ(fp16.parts.at("step"), 8 * parameter_count(preset("gpt2")));
    } else {
      EXPECT_EQ(fp16.parts, bf16.parts);
    }
    EXPECT_EQ(fp16.parts.at("optimizer"), 12 * parameter_count(preset("gpt2")));
  }
}

TEST(TargetMemoryTest, HoldsGpt2MediumAsPublishedOn32GiB) {
  // Six to seven samples with eager attention.
  const ModelSpec model = preset("gpt2-medium");
  EXPECT_EQ(largest_micro_batch(model, mixed(0), 8, TargetAttention::eager, 32 * gibibyte), 6);
  EXPECT_EQ(largest_micro_batch(model, mixed(1), 8, TargetAttention::eager, 32 * gibibyte), 7);
  EXPECT_GT(largest_micro_batch(model, mixed(1), 8, TargetAttention::sdpa, 32 * gibibyte), 10);
}

TEST(TargetMemoryTest, StatesAreThePublishedOnes) {
  const ModelSpec model = preset("gpt2");
  const std::int64_t p = 124'439'808;
  auto parts = of(model, mixed(0), 4).parts;
  EXPECT_EQ(parts["parameters"], 2 * p);
  EXPECT_EQ(parts["gradients"], 2 * p);
  EXPECT_EQ(parts["optimizer"], 12 * p);
  parts = of(model, mixed(2), 4).parts;
  EXPECT_EQ(parts["parameters"], 2 * p);
  EXPECT_EQ(parts["gradients"], 2 * p / 4);
  EXPECT_EQ(parts["optimizer"], 12 * p / 4);
  // fp32: stage 0 has no wrapper and no master copy, the others keep one.
  TrainingConfig single = mixed(0);
  single.precision = Precision::fp32;
  EXPECT_EQ(of(model, single, 4).parts["optimizer"], 8 * p);
  single.zero_stage = 1;
  EXPECT_EQ(of(model, single, 4).parts["optimizer"], 12 * p / 4);
}

TEST(TargetMemoryTest, BucketsOfStage2AreWholeAndDoubledByOverlap) {
  const ModelSpec model = preset("gpt2");
  TrainingConfig config = mixed(2, 8);
  const std::int64_t p = 124'439'808;
  const std::int64_t largest = 50257 * 768 + 1024 * 768;
  EXPECT_EQ(of(model, config, 4).parts["buckets"], 2 * (500'000'000 + p + largest));
  config.overlap_comm = true;
  EXPECT_EQ(of(model, config, 4).parts["buckets"], 2 * (1'000'000'000 + p + largest));
  config.contiguous_gradients = false;
  EXPECT_EQ(of(model, config, 4).parts["buckets"], 2 * (p + p));
  EXPECT_EQ(of(model, config, 1).parts["buckets"], 2 * (p + p));  // a group of one has them, too
}

TEST(TargetMemoryTest, AGpt2LayerKeepsKorthikantisBytesAndTheWrittenOutGelu) {
  // s·b·h·(34 + 5·a·s/h) and three more tensors of the MLP's width.
  const auto activations = [](std::int64_t layers) {
    ModelSpec model = preset("gpt2");
    model.num_layers = layers;
    return of(model, mixed(0, 32), 1).parts["activations"];
  };
  const std::int64_t tokens = 32 * 1024;
  const std::int64_t statistics = 16;
  EXPECT_EQ(activations(13) - activations(12),
            tokens * (34 * 768 + 5 * 12 * 1024 + 3 * 2 * 4 * 768 + statistics));
}

TEST(TargetMemoryTest, ALayerKeepsWhatItsPartsSave) {
  // Of one token in bf16 with flash attention and no dropout, hidden h, a heads, MLP width 4h.
  const std::int64_t h = 64;
  const std::int64_t a = 4;
  const auto layer = [&](ModelFamily family) {
    const auto activations = [&](std::int64_t layers) {
      ModelSpec model = test::tiny_model(family);
      model.hidden_size = h;
      model.num_heads = model.num_kv_heads = a;
      model.head_size = h / a;
      model.intermediate_size = 4 * h;
      model.num_layers = layers;
      TrainingConfig config = mixed(0, 4096);
      config.sequence_length = 16;
      return of(model, config, 1, TargetAttention::flash).parts["activations"];
    };
    return (activations(13) - activations(12)) / (4096 * 16);
  };
  const std::int64_t attention = 2 * 4 * h + 4 * a;
  EXPECT_EQ(layer(ModelFamily::gpt2), 8 * h + 16 + attention + 5 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::opt), 8 * h + 16 + attention + 8 * h);
  EXPECT_EQ(layer(ModelFamily::gpt_neox), 6 * h + 16 + attention + 2 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::bert), 8 * h + 16 + attention + 2 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::qwen2), 16 * h + 8 + attention + 4 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::qwen3), 16 * h + 8 + attention + 6 * 2 * h + 4 * 8 * h);
}

TEST(TargetMemoryTest, RecomputeKeepsTheInputOfEachLayer) {
  const auto activations = [](std::int64_t layers) {
    ModelSpec model = preset("llama-7b");
    model.num_layers = layers;
    TrainingConfig config = mixed(3, 32);
    config.recompute = Recompute::block;
    return of(model, config, 8).parts["activations"];
  };
  EXPECT_EQ(activations(33) - activations(32), std::int64_t{32} * 1024 * 2 * 4096);
}

TEST(TargetMemoryTest, LogitsTakeTwelveBytes) {
  EXPECT_EQ(of(preset("gpt2"), mixed(0, 16), 1).parts["logits"],
            std::int64_t{16} * 1024 * 50257 * 12);
}

TEST(TargetMemoryTest, TheUpdateIsTheFullestInstantOfTinyBatches) {
  TrainingConfig config = mixed(0);
  config.sequence_length = 8;
  auto parts = of(preset("gpt2"), config, 1).parts;
  EXPECT_EQ(parts["step"], std::int64_t{4} * 124'439'808);
  EXPECT_EQ(parts["activations"], 0);
}

TEST(TargetMemoryTest, IsMoreThanOurs) {
  for (int stage = 0; stage <= 3; ++stage) {
    const ModelSpec model = preset("gpt2-medium");
    const TrainingConfig config = mixed(stage, 4);
    const StepPlan plan = build_step_plan(model, config, 4, 0, test::SomeWorkspaces());
    EXPECT_LT(plan.memory.arena_bytes, of(model, config, 4, TargetAttention::flash).total_bytes);
  }
}

}  // namespace
}  // namespace dstune
