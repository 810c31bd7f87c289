#include <array>
#include <functional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan_fixtures.hpp"
#include "replay.hpp"

namespace dstune {
namespace {

using test::expect_same_memory;
using test::Replay;

/// Sound on every rank, and alike on all. After a failure nothing more is looked at.
void expect_sound(const ModelSpec& model, const TrainingConfig& config, int group_size, int bits) {
  if (testing::Test::HasFailure()) return;
  SCOPED_TRACE(fmt::format(
      "{}, stage {}, bits {}, bucket {}, group of {}, {} micro-steps, hpZ of {}, MiCS of {}",
      to_text(model.family), config.zero_stage, bits, config.reduce_bucket_size, group_size,
      config.accumulation_steps, config.zero_hpz_partition_size, config.mics_shard_size));
  StepPlan first;
  for (int rank = 0; rank < group_size; ++rank) {
    const StepPlan plan = test::build(model, config, group_size, rank);
    const Replay replay(plan);
    for (const std::string& problem : replay.problems()) ADD_FAILURE() << problem;
    expect_same_memory(plan.memory, replay.figures(Memory::device));
    expect_same_memory(plan.host_memory, replay.figures(Memory::host));
    expect_same_memory(plan.disk, replay.figures(Memory::disk));
    if (rank == 0) {
      first = plan;
      continue;
    }
    expect_same_memory(plan.memory, first.memory);
    expect_same_memory(plan.host_memory, first.host_memory);
    ASSERT_EQ(plan.tensors.size(), first.tensors.size());
    for (std::size_t index = 0; index < plan.tensors.size(); ++index) {
      EXPECT_EQ(plan.tensors[index].offset_bytes, first.tensors[index].offset_bytes);
      EXPECT_EQ(plan.tensors[index].elements, first.tensors[index].elements);
    }
  }
}

void vary_gathers(TrainingConfig& config, int number) {
  constexpr std::array<std::int64_t, 4> sizes{0, 60, 900, 1'000'000'000};
  const auto pick = [&] {
    const std::int64_t size = sizes[static_cast<std::size_t>(number % 4)];
    number = number * 7 / 4 + 3;
    return size;
  };
  config.stage3_param_persistence_threshold = pick();
  config.stage3_prefetch_bucket_size = pick();
  config.stage3_max_live_parameters = pick() * 5;
  config.stage3_max_reuse_distance = pick();
  config.stage3_allgather_sequential = number % 3 == 0;
  config.stage3_module_granularity_threshold = number % 5 == 0 ? 300 : 0;
  config.stage3_use_all_reduce_for_fetch_params = number % 2 == 0;
  config.memory_efficient_linear = number % 7 < 4;
  constexpr std::array<const char*, 4> leaves{"", "h.1\n", "mlp\n", "layers.0\nself_attn\n"};
  config.leaf_modules.name_suffixes = leaves[static_cast<std::size_t>(number / 3 % 4)];
}

/// Models that take turns.
ModelSpec model_of(int number, int period) {
  return number % period == 0 ? test::tiny_gpt2() : test::tiny_llama();
}

/// In groups of one to four ranks, each with other numbers of micro-steps.
void expect_sound_groups(const ModelSpec& model, TrainingConfig config, int bits,
                         const std::function<void(TrainingConfig&, int)>& vary = {}) {
  for (int group_size = 1; group_size <= 4; ++group_size) {
    config.accumulation_steps = 1 + (bits + group_size) % 4;
    if (vary) vary(config, group_size);
    expect_sound(model, config, group_size, bits);
  }
}

void vary_reductions(TrainingConfig& config, int bits, int group_size) {
  config.communication_data_type = static_cast<CommunicationType>((bits / 2 + group_size) % 4);
  config.round_robin_gradients = (bits / 3 + group_size) % 2 == 0;
}

class StepPlanReplayTest : public testing::TestWithParam<int> {
 protected:
  /// Every `stride`-th of the combinations of switches, from 0 on.
  static void check(const ModelSpec& model, int stride, const std::vector<std::int64_t>& buckets) {
    for (int bits = 0; bits < 32; bits += stride) {
      TrainingConfig config = test::tiny_config(GetParam());
      config.recompute = static_cast<Recompute>((bits + bits / 3) % 3);
      config.cpu_checkpointing = bits % 4 != 0;
      config.synchronize_checkpoint_boundary = bits % 5 == 0;
      config.overlap_comm = (bits & 2) != 0;
      config.contiguous_gradients = (bits & 4) != 0;
      config.reduce_scatter = (bits & 8) != 0;
      config.use_multi_rank_bucket_allreduce = (bits & 16) != 0;
      config.precision = static_cast<Precision>(bits % 3);
      for (const std::int64_t bucket : buckets) {
        config.reduce_bucket_size = bucket;
        expect_sound_groups(model, config, bits, [&](TrainingConfig& one, int group_size) {
          vary_gathers(one, bits + 3 * group_size + static_cast<int>(bucket % 7));
          vary_reductions(one, bits, group_size);
        });
      }
    }
  }
};

TEST_P(StepPlanReplayTest, IsSoundForEveryCombination) {
  for (const ModelSpec& model :
       {test::tiny_gpt2(), test::tiny_gpt2(false), test::tiny_llama(), test::tiny_llama(true)}) {
    check(model, 1, {1, 600, 1500, 500'000'000});
  }
}

TEST_P(StepPlanReplayTest, IsSoundForEveryFamily) {
  using enum ModelFamily;
  for (const ModelFamily family :
       {opt, gpt_neox, bert, qwen2, qwen3, phi3, mistral, olmo2, gemma3_text, falcon})
    check(test::tiny_model(family), 3, {600});
  ModelSpec falcon_of_two_norms = test::tiny_model(falcon);
  falcon_of_two_norms.architecture.shared_norm = false;
  check(falcon_of_two_norms, 3, {600});
}

TEST_P(StepPlanReplayTest, IsSoundWithAnOffloadedOptimizer) {
  for (int bits = 0; bits < 32; ++bits) {
    TrainingConfig config = test::tiny_config(GetParam());
    config.offload_optimizer = OffloadDevice::cpu;
    config.precision = (bits & 1) != 0 ? Precision::bf16 : Precision::fp32;
    config.overlap_comm = (bits & 2) != 0;
    config.reduce_scatter = (bits & 4) != 0;
    config.use_multi_rank_bucket_allreduce = (bits & 8) != 0;
    config.contiguous_gradients = (bits & 16) != 0;
    config.gradient_clipping = bits % 3 == 0 ? 0 : 1;
    for (const std::int64_t bucket : {1, 600, 500'000'000}) {
      config.reduce_bucket_size = bucket;
      expect_sound_groups(model_of(bits, 2), config, bits,
                          [&](auto& one, int size) { vary_reductions(one, bits, size); });
    }
  }
}

TEST_P(StepPlanReplayTest, IsSoundWithOtherTypesOfStates) {
  using enum OptimizerKind;
  for (int bits = 0; bits < 32; ++bits) {
    TrainingConfig config = test::tiny_config(GetParam());
    const bool sums = (bits & 1) != 0 && (GetParam() == 1 || GetParam() == 3);
    config.precision = (bits & 2) != 0 ? Precision::bf16 : Precision::fp16;
    config.overlap_comm = (bits & 4) != 0;
    config.fp32_gradient_accumulation = sums;
    config.immediate_grad_update = is_bf16_optimizer(config) && (bits & 8) != 0;
    config.low_precision_master = !sums && GetParam() > 0;
    config.low_precision_moments = config.low_precision_master && (bits & 8) != 0;
    if ((bits & 16) != 0) config.offload_optimizer = OffloadDevice::cpu;
    config.communication_data_type = static_cast<CommunicationType>(bits / 4 % 4);
    if (bits % 3 == 0) config.offload_param = OffloadDevice::cpu;
    if (sums) config.optimizer.kind = std::array{adam, lion, sgd, adagrad}[bits / 2 % 4];
    expect_sound_groups(test::tiny_gpt2(), config, bits);
  }
}

TEST_P(StepPlanReplayTest, IsSoundWithOffloadedParametersAndPartsOfTheOptimizer) {
  if (GetParam() < 3) return;
  for (int bits = 0; bits < 64; ++bits) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_param = (bits & 1) != 0 ? OffloadDevice::cpu : OffloadDevice::none;
    config.offload_optimizer = (bits & 2) != 0 ? OffloadDevice::cpu : OffloadDevice::none;
    config.offload_ratio = bits % 3 * 0.5;
    config.overlap_comm = (bits & 4) != 0;
    config.precision = static_cast<Precision>(bits % 3);
    config.recompute = (bits & 8) != 0 ? Recompute::block : Recompute::none;
    config.reduce_scatter = (bits & 16) != 0;
    config.sub_group_size = (bits & 32) != 0 ? 300 : 1'000'000'000;
    config.reduce_bucket_size = 600;
    expect_sound_groups(model_of(bits, 5), config, bits,
                        [&](auto& one, int size) { vary_gathers(one, bits + 3 * size); });
  }
}

TEST_P(StepPlanReplayTest, IsSoundWithTheOptimizerOnADisk) {
  if (GetParam() < 3) return;
  for (int bits = 0; bits < 64; ++bits) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_optimizer = OffloadDevice::nvme;
    config.disk.pipeline_read = (bits & 1) != 0;
    config.disk.pipeline_write = (bits & 2) != 0;
    config.optimizer.kind = static_cast<OptimizerKind>(bits / 3 % 5);
    config.optimizer.momentum = bits % 2 == 0 ? 0.9 : 0;
    config.disk.optimizer_buffers = 12 + bits % 3;
    config.offload_param = (bits & 4) != 0 ? OffloadDevice::cpu : OffloadDevice::none;
    config.overlap_comm = (bits & 8) != 0;
    config.precision = static_cast<Precision>(bits % 3);
    config.sub_group_size = (bits & 16) != 0 ? 300'000 : 1'000'000'000;
    config.reduce_bucket_size = (bits & 32) != 0 ? 200'000 : 500'000'000;
    config.gradient_clipping = bits % 5 == 0 ? 0 : 1;
    config.reduce_scatter = bits % 7 != 0;
    const int group_size = 1 + bits % 4;
    config.accumulation_steps = 1 + bits / 4 % 3;
    expect_sound(test::wide_gpt2(), config, group_size, bits);
  }
}

TEST_P(StepPlanReplayTest, IsSoundWithParametersOnADisk) {
  if (GetParam() < 3) return;
  constexpr std::array devices{OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme};
  std::set<std::string> violations;
  int on_disk = 0;
  for (int bits = 0; bits < 192; ++bits) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_param = OffloadDevice::nvme;
    config.offload_optimizer = devices[static_cast<std::size_t>(bits % 3)];
    config.disk.parameter_buffer_size = 1'100'000;
    config.disk.parameter_buffers = 2 + bits % 5;
    config.disk.parameters_in_memory = std::array{0, 400'000, 5'000'000}[bits / 3 % 3];
    config.disk.optimizer_buffers = 12;
    config.disk.pipeline_read = (bits & 1) != 0;
    config.disk.pipeline_write = (bits & 2) != 0;
    config.overlap_comm = (bits & 4) != 0;
    config.precision = static_cast<Precision>(bits / 2 % 3);
    config.sub_group_size = (bits & 8) != 0 ? 300'000 : 1'000'000'000;
    config.reduce_bucket_size = (bits & 16) != 0 ? 200'000 : 500'000'000;
    config.recompute = (bits & 32) != 0 ? Recompute::block : Recompute::none;
    config.stage3_allgather_sequential = bits % 5 == 0;
    config.stage3_use_all_reduce_for_fetch_params = bits % 7 == 0;
    config.stage3_prefetch_bucket_size = bits % 4 == 0 ? 0 : 1'200'000;
    config.stage3_max_reuse_distance = bits % 11 == 0 ? 1'000'000'000 : 0;
    const int group_size = 1 + bits / 2 % 3;
    config.accumulation_steps = 1 + bits / 4 % 3;
    const std::string violation = model_violation(test::wide_gpt2(), config, group_size);
    if (!violation.empty()) {
      violations.insert(violation.substr(0, 30));
      continue;
    }
    expect_sound(test::wide_gpt2(), config, group_size, bits);
    on_disk +=
        static_cast<int>(test::build(test::wide_gpt2(), config, group_size).disk.arena_bytes > 0);
  }
  EXPECT_GT(on_disk, 60);
  EXPECT_EQ(violations, std::set<std::string>{"DeepSpeed runs out of buffers "});
}

/// Blocks of a group that share the parameters once more, or each a copy of all states.
std::vector<TrainingConfig> over_parts(const TrainingConfig& config, int group_size) {
  std::vector<TrainingConfig> result;
  for (int size = 2; size <= group_size; ++size) {
    if (group_size % size != 0) continue;
    result.push_back(config);
    result.back().zero_hpz_partition_size = size;
    result.push_back(result.back());
    result.back().offload_param = OffloadDevice::cpu;
    result.push_back(config);
    result.back().mics_shard_size = size;
    for (int of_node = 1; of_node < size; ++of_node) {
      if (size % of_node != 0) continue;
      result.push_back(result.back());
      result.back().mics_hierarchical_params_gather = true;
      result.back().ranks_per_node = of_node;
    }
  }
  return result;
}

TEST_P(StepPlanReplayTest, IsSoundOverPartsOfAGroup) {
  if (GetParam() < 3) return;
  for (int bits = 0; bits < 32; bits += 3) {
    TrainingConfig config = test::tiny_config(3);
    config.overlap_comm = (bits & 1) != 0;
    config.reduce_scatter = (bits & 2) != 0;
    config.contiguous_gradients = (bits & 4) != 0;
    config.reduce_bucket_size = (bits & 8) != 0 ? 600 : 500'000'000;
    config.recompute = static_cast<Recompute>(bits % 3);
    config.precision = static_cast<Precision>(bits / 2 % 3);
    config.fp32_gradient_accumulation = config.precision != Precision::fp32 && (bits & 16) != 0;
    config.accumulation_steps = 1 + bits % 4;
    for (const int group_size : {2, 3, 4, 6}) {
      vary_gathers(config, bits + group_size);
      for (const TrainingConfig& each : over_parts(config, group_size)) {
        expect_sound(bits % 5 == 0 ? test::tiny_llama() : test::tiny_gpt2(), each, group_size,
                     bits);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, StepPlanReplayTest, testing::Range(0, 4));

}  // namespace
}  // namespace dstune
