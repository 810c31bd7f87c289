// The target's memory on GPUs: what its optimizer, its loss and its framework take there.
#include <bit>
#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using test::mixed;

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

TargetSpec on_gpus(TargetOptimizer optimizer = TargetOptimizer::of_config) {
  TargetSpec target;
  target.attention = TargetAttention::flash;
  target.optimizer = optimizer;
  target.on_gpu = true;
  return target;
}

/// Bytes of tensors at the fullest instant.
std::int64_t tensors(const TargetMemory& memory) {
  return memory.total_bytes - memory.parts.at("framework");
}

class TargetOnGpusTest : public testing::Test {
 protected:
  static TargetMemory of(const TrainingConfig& config, const TargetSpec& target, int group_size = 8,
                         const ModelSpec& model = preset("llama-7b")) {
    return target_memory(model, config, group_size, target);
  }
  static constexpr std::int64_t p = 6'738'415'616;
};

TEST_F(TargetOnGpusTest, TheUpdateByListsIsWhatAnErrorMessageCounted) {
  // 28.28 GiB were held, 2P + 20P/8, and 3.14 asked, 4P/8, of 6.7 billion parameters on eight
  // ranks.
  TrainingConfig config = mixed(2);
  config.sequence_length = 512;
  config.recompute = Recompute::block;
  const TargetMemory listed = of(config, on_gpus(TargetOptimizer::adamw_torch));
  EXPECT_NEAR(static_cast<double>(listed.instants.at("update")), 2.0 * p + 24.0 * p / 8,
              0.01 * 5.0 * static_cast<double>(p));
  const TargetMemory fused = of(config, on_gpus(TargetOptimizer::adamw_torch_fused));
  EXPECT_EQ(listed.instants.at("update") - fused.instants.at("update"), 4 * (p / 8));
  TargetSpec old = on_gpus(TargetOptimizer::adamw_torch);
  old.torch = 10300;
  EXPECT_EQ(of(config, old).instants.at("update") - listed.instants.at("update"), 4 * (p / 8));
}

TEST_F(TargetOnGpusTest, OptimizersKeepTheirMoments) {
  const auto states = [&](TargetOptimizer optimizer, int stage) {
    return of(mixed(stage), on_gpus(optimizer)).parts.at("optimizer");
  };
  const std::int64_t own = p / 8;
  using enum TargetOptimizer;
  for (const TargetOptimizer adam :
       {of_config, adamw_torch, adamw_torch_fused, deepspeed_fused_adam})
    EXPECT_EQ(states(adam, 2), 12 * own) << to_text(adam);
  EXPECT_EQ(states(adamw_8bit, 2), 6 * own + 8 * (own / 256));
  EXPECT_EQ(states(lion, 2), 8 * own);
  EXPECT_EQ(states(sgd, 2), 4 * own);
  // Flat parts have no rows and columns; whole parameters have.
  EXPECT_EQ(states(adafactor, 2), 8 * own);
  EXPECT_EQ(states(adafactor, 0), 4 * p);
}

TEST_F(TargetOnGpusTest, LossesHoldTheirLogits) {
  TrainingConfig config = mixed(3, 2);
  config.sequence_length = 4096;
  config.recompute = Recompute::block;
  const std::int64_t logits = 2 * 4096 * 32000;
  const auto held = [&](const TargetSpec& target) {
    const TargetMemory memory = of(config, target);
    return memory.instants.at("loss");
  };
  TargetSpec target = on_gpus();
  const std::int64_t full = held(target);
  target.keeps_output = false;
  EXPECT_EQ(full - held(target), 2 * logits);
  target.loss = TargetLoss::in_place;
  EXPECT_EQ(full - held(target), (14 - 8) * logits);
  target.loss = TargetLoss::full;
  target.fp32_logits = false;
  EXPECT_EQ(full - held(target), (14 - 6) * logits);
  target = on_gpus();
  target.loss = TargetLoss::chunked;
  const std::int64_t input = 2 * 4096 * 4096;
  EXPECT_EQ(full - held(target), 14 * logits - 14 * 256 * 32000 - 2 * input);
  // Liger's kernels: the head's gradient in forward, and less of norms and SwiGLU.
  target.loss = TargetLoss::fused;
  EXPECT_EQ(full - held(target), 14 * logits - 8 * input - 2 * 4096 * 32000);
  EXPECT_LT(of(config, target).instants.at("layers"), of(config, on_gpus()).instants.at("layers"));
  // On processors a loop that keeps the loss alone was measured.
  target = on_gpus();
  target.on_gpu = false;
  EXPECT_EQ(full - held(target), 2 * logits);
}

TEST_F(TargetOnGpusTest, TheFrameworkTakesMoreOfMoreRanks) {
  const auto framework = [&](int ranks, const TargetSpec& target) {
    const TargetMemory memory = of(mixed(1), target, ranks, preset("gpt2"));
    return memory.parts.at("framework") - 2 * (tensors(memory) + 32 * mebibyte) / 100;
  };
  EXPECT_EQ(framework(1, on_gpus()), (707 + 32) * mebibyte);
  EXPECT_EQ(framework(8, on_gpus()), (1413 + 32) * mebibyte);
  EXPECT_EQ(framework(16, on_gpus()), (2099 + 32) * mebibyte);
  const TargetMemory memory = of(mixed(2), on_gpus());
  EXPECT_GT(memory.shown_bytes, memory.total_bytes);
  TargetSpec processors = on_gpus();
  processors.on_gpu = false;
  EXPECT_EQ(of(mixed(2), processors).parts.at("framework"), 0);
  EXPECT_EQ(of(mixed(2), processors).shown_bytes, 0);
}

TEST_F(TargetOnGpusTest, ListsOfSeveralSubGroupsSplitTheAllocatorsSegments) {
  TrainingConfig config = mixed(3);
  config.sub_group_size = 100'000'000;
  const auto framework = [&](const TargetSpec& target) {
    const TargetMemory memory = of(config, target);
    const std::int64_t percent = target.expandable_segments ? 1 : 2;
    return memory.parts.at("framework") - percent * (tensors(memory) + 32 * mebibyte) / 100;
  };
  TargetSpec listed = on_gpus(TargetOptimizer::adamw_torch);
  const std::int64_t fused = framework(on_gpus(TargetOptimizer::adamw_torch_fused));
  EXPECT_NEAR(static_cast<double>(framework(listed) - fused),
              4.0 * (static_cast<double>(p) / 8 - 1e8), 1e6);
  listed.expandable_segments = true;
  EXPECT_EQ(framework(listed), fused);
  config.offload_optimizer = OffloadDevice::cpu;
  listed.expandable_segments = false;
  EXPECT_EQ(framework(listed), fused);
}

TEST_F(TargetOnGpusTest, FrozenParametersHaveNeitherStatesNorGradients) {
  TargetSpec lora = on_gpus();
  lora.trainable.emplace();
  lora.trainable->rank = 16;
  lora.trainable->targets = {"q_proj", "v_proj"};
  // Two matrices of [16, 4096] and [4096, 16] in each of 32 layers.
  const std::int64_t trained = 32 * 2 * 2 * 16 * 4096;
  for (const int stage : {0, 1, 2, 3}) {
    const TargetMemory all = of(mixed(stage), on_gpus());
    const TargetMemory some = of(mixed(stage), lora);
    const std::int64_t ranks = stage == 0 ? 1 : 8;
    EXPECT_EQ(some.parts.at("optimizer"), 12 * (trained / ranks)) << stage;
    EXPECT_EQ(some.parts.at("parameters") - all.parts.at("parameters"),
              2 * trained / (stage == 3 ? 8 : 1))
        << stage;
    EXPECT_LT(some.instants.at("reduction"), all.instants.at("reduction")) << stage;
  }
  lora.trainable->targets = {"all-linear"};
  const TargetMemory everywhere = of(mixed(2), lora);
  // q, k, v, o of 4096; gate, up and down between 4096 and 11008.
  const std::int64_t widths = 4 * (4096 + 4096) + 3 * (4096 + 11008);
  EXPECT_EQ(everywhere.parts.at("optimizer"), 12 * (32 * 16 * widths / 8));
  lora.trainable = Trainable{.names = {"*norm.weight"}, .rank = 0, .targets = {}};
  EXPECT_EQ(of(mixed(2), lora).parts.at("optimizer"), 12 * (65 * 4096 / 8));
}

TEST_F(TargetOnGpusTest, PageLockedMemoryComesInPowersOfTwo) {
  // Stage 2 holds 16P/N of states and gradients, 2P/N of parameters and the largest gradient.
  constexpr std::int64_t own = p / 8, largest = std::int64_t{32000} * 4096;
  const auto host_bytes = [&](int stage, bool pins, bool pins_master_copy) {
    TrainingConfig config = mixed(stage);
    config.offload_optimizer = OffloadDevice::cpu;
    TargetSpec target = on_gpus();
    target.pins_optimizer = pins;
    target.pins_master_copy = pins_master_copy;
    return of(config, target).host_bytes;
  };
  const auto rounded = [](std::int64_t bytes) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
  };
  EXPECT_NEAR(static_cast<double>(host_bytes(2, false, false)), 18.0 * own + 2.0 * largest, 1e6);
  EXPECT_EQ(host_bytes(2, false, true) - host_bytes(2, false, false), rounded(4 * own) - 4 * own);
  EXPECT_EQ(
      host_bytes(2, true, true) - host_bytes(2, false, true),
      rounded(4 * own) - 4 * own + rounded(2 * own) - 2 * own + rounded(2 * largest) - 2 * largest);
  EXPECT_EQ(host_bytes(3, false, true), host_bytes(3, false, false)) << "never pinned";
  EXPECT_GT(host_bytes(3, true, true), host_bytes(3, false, true));
}

TEST_F(TargetOnGpusTest, TwinFlowMovesWholeSubGroupsOfTwoGroupsOfParameters) {
  const auto host = [&](double ratio, bool keeps_last) {
    TrainingConfig config = mixed(3);
    config.offload_optimizer = OffloadDevice::cpu;
    config.offload_ratio = ratio;
    config.switches.twin_flow_keeps_last_part = keeps_last;
    return of(config, on_gpus()).host_bytes;
  };
  // One sub-group of parameters with weight decay, and one of those without.
  EXPECT_EQ(host(0.4, false), host(0, false));
  EXPECT_EQ(host(0.5, false), host(1, false));
  EXPECT_NEAR(static_cast<double>(host(0.5, false) - host(0.4, false)), 12.0 * p / 8, 1e5);
  EXPECT_EQ(host(0.5, true), host(0, true));
  EXPECT_EQ(host(0.6, true), host(1, true));
}

}  // namespace
}  // namespace dstune
