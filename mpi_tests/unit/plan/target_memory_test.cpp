#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "dstune/base/checked.hpp"
#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

using test::mixed;
using test::target_memory_of;

class TargetMemoryTest : public testing::Test {
 protected:
  /// GPT-2's parameters, a rank's part of four, and the largest, the table of tokens.
  static constexpr std::int64_t p = 124'439'808, own = p / 4, largest = 50257 * 768;

  static TargetMemory of_gpt2(const TrainingConfig& config, int group_size = 4,
                              TargetAttention attention = TargetAttention::eager) {
    return target_memory_of(preset("gpt2"), config, group_size, attention);
  }
  static std::int64_t host_bytes(const TrainingConfig& config, int group_size = 4,
                                 bool on_gpu = false, const ModelSpec& model = preset("gpt2")) {
    TargetSpec target;
    target.on_gpu = on_gpu;
    return target_memory(model, config, group_size, target).host_bytes;
  }
};

std::int64_t largest_micro_batch(const ModelSpec& model, TrainingConfig config, int group_size,
                                 TargetAttention attention, std::int64_t budget_bytes) {
  config.micro_batch = 1;
  while (target_memory_of(model, config, group_size, attention).total_bytes <= budget_bytes)
    ++config.micro_batch;
  return config.micro_batch - 1;
}

TEST_F(TargetMemoryTest, IsNothingForOurselves) {
  const TargetMemory memory =
      target_memory(preset("gpt2"), mixed(1), 4, {TargetFramework::self, TargetAttention::sdpa});
  EXPECT_EQ(memory.total_bytes, 0);
  for (const auto& [part, bytes] : memory.parts) EXPECT_EQ(bytes, 0) << part;
}

TEST_F(TargetMemoryTest, PartsAddUpToTheTotal) {
  for (int stage = 0; stage <= 3; ++stage) {
    const TargetMemory memory = of_gpt2(mixed(stage));
    EXPECT_EQ(
        memory.total_bytes,
        std::accumulate(memory.parts.begin(), memory.parts.end(), std::int64_t{0},
                        [](std::int64_t sum, const auto& part) { return sum + part.second; }));
  }
}

TEST_F(TargetMemoryTest, AnOffloadedOptimizerLeavesStagingOnly) {
  // Staging is for the largest parameter, the table of tokens, as backward begins.
  for (const int stage : {1, 2, 3}) {
    TrainingConfig config = mixed(stage);
    config.overlap_comm = true;
    const TargetMemory on_device = of_gpt2(config);
    config.offload_optimizer = OffloadDevice::cpu;
    const TargetMemory offloaded = of_gpt2(config);

    EXPECT_EQ(offloaded.parts.at("optimizer"), 0);
    EXPECT_EQ(offloaded.parts.at("parameters"), on_device.parts.at("parameters"));
    const std::int64_t staging = stage == 3 ? 2 * (largest / 4) - 2 * own : 2 * largest;
    EXPECT_EQ(offloaded.instants.at("loss") - on_device.instants.at("loss"), staging - 12 * own);
  }
}

TEST_F(TargetMemoryTest, HpzOfAnEighthTakesMoreWhereBytesTimesParametersPass64Bits) {
  // 2·P/8 bytes of a second copy, as far as forward has released parameters: some 1.6 GiB.
  const auto total = [](std::int64_t partition, std::int64_t accumulation_steps) {
    TrainingConfig config = mixed(3);
    config.sequence_length = 4096;
    config.recompute = Recompute::block;
    config.zero_hpz_partition_size = partition;
    config.accumulation_steps = accumulation_steps;
    return target_memory_of(preset("llama-3-8b"), config, 16, TargetAttention::sdpa).total_bytes;
  };
  const std::int64_t more = total(8, 1) - total(1, 1);
  EXPECT_GT(more, gibibyte * 13 / 10);
  EXPECT_LT(more, gibibyte * 2);
  // Several micro-steps have all of it in backward.
  EXPECT_GE(total(8, 2) - total(1, 2), more);
}

TEST_F(TargetMemoryTest, WhatIsMoreThanAnyMachineHasIsSaid) {
  TrainingConfig config = mixed(1, std::int64_t{1} << 24);
  config.sequence_length = 1'000'000;
  EXPECT_THROW((void)target_memory_of(preset("llama-3-70b"), config, 1), OverflowError);
  config = mixed(2);
  config.reduce_bucket_size = std::int64_t{1} << 62;
  EXPECT_THROW((void)target_memory_of(preset("llama-3-70b"), config, 2), OverflowError);
}

TEST_F(TargetMemoryTest, AnOffloadedOptimizerIsOnTheHost) {
  const auto host = [](int stage, std::int64_t accumulation_steps, bool on_gpu) {
    TrainingConfig config = mixed(stage);
    config.accumulation_steps = accumulation_steps;
    config.offload_optimizer = OffloadDevice::cpu;
    return host_bytes(config, 4, on_gpu);
  };
  EXPECT_EQ(host(0, 1, false), 0);
  EXPECT_EQ(host(1, 2, false), 18 * own + 2 * largest);
  EXPECT_EQ(host(2, 1, false), 18 * own + 2 * largest);
  EXPECT_EQ(host(3, 1, false), 18 * own);
  // Sums are of whole parameters: one rank has the end of the table, positions and layers.
  EXPECT_GT(host(2, 2, false) - host(2, 1, false), 2 * (own + largest / 2));
  // Pinned memory comes in powers of two: gradients of 4·own in 128 MiB, sums of 2·own in 64 MiB.
  // The states, and parameters on their way back, are as large as they are.
  EXPECT_EQ(host(3, 1, true), (std::int64_t{1} << 27) + (std::int64_t{1} << 26) + 14 * own);
}

TEST_F(TargetMemoryTest, OffloadedParametersLeaveWhatStaysWholeAndWhatTravels) {
  TrainingConfig config = mixed(3);
  config.stage3_max_reuse_distance = 0;  // or backward gathers nothing
  TrainingConfig offloaded = config;
  offloaded.offload_param = OffloadDevice::cpu;
  const TargetMemory here = of_gpt2(config);
  const TargetMemory there = of_gpt2(offloaded);
  EXPECT_EQ(there.parts.at("parameters"), here.parts.at("parameters") - 2 * own);
  EXPECT_EQ(there.parts.at("optimizer"), here.parts.at("optimizer"));
  // The own shards of what is gathered in one call: 50 million elements, and what the last
  // parameter has beyond.
  const std::int64_t more = there.instants.at("layers") - here.instants.at("layers") + 2 * own;
  EXPECT_GE(more, 2 * 50'000'000 / 4);
  EXPECT_LT(more, 2 * (50'000'000 + largest) / 4);
  // A group of one fetches whole parameters and puts nothing together.
  EXPECT_EQ(of_gpt2(offloaded, 1).parts.at("parameters"), there.parts.at("parameters"));
  // Twin-Flow: half of the sub-groups, of one parameter and more.
  offloaded.offload_optimizer = OffloadDevice::cpu;
  offloaded.sub_group_size = 1'000'000;
  EXPECT_EQ(of_gpt2(offloaded).parts.at("optimizer"), 0);
  offloaded.offload_ratio = 0;
  const std::int64_t all = of_gpt2(offloaded).parts.at("optimizer");
  EXPECT_NEAR(static_cast<double>(all), 12.0 * static_cast<double>(own), 12.0 * 200);
  offloaded.offload_ratio = 0.5;
  const std::int64_t half = of_gpt2(offloaded).parts.at("optimizer");
  EXPECT_GT(half, all / 3);
  EXPECT_LT(half, all);
  EXPECT_EQ(of_gpt2(offloaded).parts.at("gradients"), half / 3);
}

TEST_F(TargetMemoryTest, ParametersOnADiskLeaveBuffersOnTheHost) {
  TrainingConfig config = mixed(3);
  config.offload_param = OffloadDevice::nvme;
  config.disk.parameter_buffers = 3;
  config.disk.parameter_buffer_size = 10'000'000;
  // DeepSpeed's max_in_cpu keeps them there; buffers are of 512 elements and more.
  const std::int64_t buffers = 2 * 3 * 10'000'384;
  EXPECT_EQ(host_bytes(config), 2 * own + buffers);
  EXPECT_EQ(host_bytes(config, 4, true), (1 << 26) + buffers);
  // The large ones are on their way, norms, biases, and 0.6 million elements of products stay.
  config.disk.parameters_in_memory = 0;
  const std::int64_t swapped = host_bytes(config);
  EXPECT_GT(swapped, buffers + 2 * own);
  EXPECT_LT(swapped, buffers + 2 * (own + 10'000'000));
  // In smaller sub-groups fewer are on their way at once.
  config.sub_group_size = 1'000'000;
  EXPECT_LT(host_bytes(config), swapped - own);
  // Backward and update take as much of the device as with parameters on the host.
  TrainingConfig on_host = config;
  on_host.offload_param = OffloadDevice::cpu;
  EXPECT_EQ(of_gpt2(config).parts, of_gpt2(on_host).parts);
}

TEST_F(TargetMemoryTest, FilesOnTheDisk) {
  const auto disk = [](const TrainingConfig& config) { return of_gpt2(config).disk_bytes; };
  TrainingConfig config = mixed(3);
  config.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(disk(config), 0);
  // One sub-group: master copy, two moments, gradients, each in whole transfers of 256 elements.
  config.offload_optimizer = OffloadDevice::nvme;
  const auto in_transfers = [](std::int64_t elements, std::int64_t transfer = 256) {
    return (elements + transfer - 1) / transfer * transfer;
  };
  EXPECT_EQ(disk(config), 16 * in_transfers(own));
  using enum OptimizerKind;
  for (const auto& [kind, bytes] : {std::pair(lion, 16), {adagrad, 12}, {sgd, 8}}) {
    config.optimizer.kind = kind;
    EXPECT_EQ(disk(config), bytes * in_transfers(own)) << to_text(kind);
  }
  // Parameters: the table's shard, and 48 matrices' but for the 12 below 1 MiB; positions neither.
  config.offload_optimizer = OffloadDevice::none;
  config.offload_param = OffloadDevice::nvme;
  const std::int64_t width = 768;
  const std::int64_t files = 2 * in_transfers(largest / 4, 512) + 12 * 2 * (2 * width * width);
  EXPECT_EQ(disk(config), files);
  // Files of what stays in memory are made, too.
  config.disk.parameters_in_memory = 0;
  EXPECT_EQ(disk(config), files);
}

TEST_F(TargetMemoryTest, LinearLayersHoldWhatForwardGathered) {
  TrainingConfig config = mixed(3);
  const auto buckets = [&](const char* name, const char* instant, bool efficient) {
    config.memory_efficient_linear = efficient;
    return target_memory_of(preset(name), config, 4).instants.at(instant);
  };
  const auto more = [&](const char* name, const char* instant) {
    return buckets(name, instant, false) - buckets(name, instant, true);
  };
  // All but 10⁹ elements of LLaMA-7B's parameters are released.
  const std::int64_t of_llama = parameter_count(preset("llama-7b"));
  EXPECT_LT(more("llama-7b", "loss"), 2 * (of_llama - 1'000'000'000));
  EXPECT_GT(more("llama-7b", "loss"), 2 * (of_llama - 1'140'000'000));
  EXPECT_EQ(more("llama-7b", "reduction"), 0);
  config.recompute = Recompute::block;
  const std::int64_t layer = 4 * 4096 * 4096 + 3 * 4096 * 11008;
  EXPECT_EQ(more("llama-7b", "loss"), 2 * 32000 * 4096);
  EXPECT_EQ(more("llama-7b", "layers"), 2 * layer);
  EXPECT_EQ(more("gpt2", "loss"), 0);  // all of it stays gathered
  config.stage3_max_reuse_distance = 0;
  EXPECT_EQ(more("gpt2", "loss"), 2 * largest);  // the head alone
}

TEST_F(TargetMemoryTest, OffloadingTakesWhatDeepSpeedsOwnEstimateLeavesRoomFor) {
  // estimate_zero3_model_states_mem_needs of DeepSpeed 0.19.6 for all states and parameters on the
  // host: 18 bytes a parameter over the node's ranks, times 1.5 for buffers.
  for (const char* name : {"gpt2", "gpt2-xl", "llama-7b"}) {
    TrainingConfig config = mixed(3);
    config.offload_optimizer = config.offload_param = OffloadDevice::cpu;
    const auto elements = static_cast<double>(parameter_count(preset(name)));
    const double ours = 4 * static_cast<double>(host_bytes(config, 4, false, preset(name)));
    EXPECT_GT(ours, 18 * elements) << name;
    EXPECT_LT(ours, 1.5 * 18 * elements) << name;
  }
}

TEST_F(TargetMemoryTest, BlocksOfAGroupHoldMore) {
  const TrainingConfig plain = mixed(3);
  TrainingConfig hpz = plain;
  hpz.zero_hpz_partition_size = 4;
  // From the first release of a step to its update.
  const auto more = [&](const char* instant) {
    TrainingConfig without = hpz;
    without.zero_hpz_partition_size = 1;
    return of_gpt2(hpz, 8).instants.at(instant) - of_gpt2(without, 8).instants.at(instant);
  };
  EXPECT_EQ(more("update"), 2 * (p / 4));
  EXPECT_EQ(more("loss"), 0);  // all of it stays gathered
  hpz.accumulation_steps = 2;
  EXPECT_EQ(more("loss"), 2 * (p / 4));
  // On the host where the parameters are.
  TrainingConfig offloaded = plain;
  offloaded.offload_param = OffloadDevice::cpu;
  const std::int64_t on_host = host_bytes(offloaded, 8);
  offloaded.zero_hpz_partition_size = 4;
  EXPECT_EQ(host_bytes(offloaded, 8), on_host + 2 * (p / 4));
  hpz.zero_hpz_partition_size = 32;  // no more than there are
  EXPECT_EQ(more("loss"), 2 * (p / 8));
  // A copy of the states in each block: as many bytes as a group of its size has.
  TrainingConfig mics = plain;
  mics.mics_shard_size = 2;
  const TargetMemory copies = of_gpt2(mics, 8);
  const TargetMemory two_ranks = of_gpt2(plain, 2);
  EXPECT_EQ(copies.parts.at("optimizer"), two_ranks.parts.at("optimizer"));
  EXPECT_EQ(copies.parts.at("gradients"), two_ranks.parts.at("gradients"));
  EXPECT_EQ(copies.parts.at("parameters"), two_ranks.parts.at("parameters"));
  // Nothing is put together from shards of several parameters.
  mics.stage3_max_reuse_distance = 0;
  TrainingConfig together = plain;
  together.stage3_max_reuse_distance = 0;
  EXPECT_LT(of_gpt2(mics, 2).instants.at("layers"), of_gpt2(together, 2).instants.at("layers"));
}

TEST_F(TargetMemoryTest, WhatTravelsQuantizedIsThereInCodesToo) {
  TrainingConfig config = mixed(3);
  config.stage3_max_reuse_distance = 0;
  const auto instants = [&] { return of_gpt2(config, 8).instants; };
  const auto plain = instants();
  // 50 million and more gathered ahead in 2 bytes, and one for its code.
  config.zero_quantized_weights = true;
  const std::int64_t more = instants().at("layers") - plain.at("layers");
  EXPECT_GE(more, 50'000'000);
  EXPECT_LT(more, 50'000'000 + largest);
  EXPECT_EQ(instants().at("loss"), plain.at("loss"));
  EXPECT_EQ(instants().at("update"), plain.at("update"));
  EXPECT_EQ(of_gpt2(config, 1).total_bytes, of_gpt2(mixed(3), 1).total_bytes);
  config.zero_quantized_weights = false;
  // The table's gradient in codes, a byte for those sent and received, on nodes of 4 ranks;
  // beside it sums of the node. Without it the whole bucket is flattened.
  config.zero_quantized_gradients = true;
  config.ranks_per_node = 4;
  config.reduce_bucket_size = 100'000'000;
  const std::int64_t table = largest, scales = 50257;
  const std::int64_t codes = table + 8 * scales;
  const std::int64_t quantized = codes + (codes + 2 * table) / 4 + 2 * 100'000'000 / 8;
  const auto found = instants();
  config.zero_quantized_gradients = false;
  EXPECT_EQ(instants().at("layers") - found.at("layers"), 2 * 100'000'000 - quantized);
}

TEST_F(TargetMemoryTest, OnlyAGpuHasAContext) {
  const TargetSpec on_cpu{.attention = TargetAttention::sdpa};

  const TargetMemory memory = target_memory(preset("gpt2"), mixed(1), 4, on_cpu);

  EXPECT_EQ(memory.parts.at("framework"), 0);
  EXPECT_LT(memory.total_bytes, of_gpt2(mixed(1), 4, TargetAttention::sdpa).total_bytes);
}

TEST_F(TargetMemoryTest, Fp16IsHeldLikeBf16) {
  // One token: so little in backward that the update is the fullest instant at stage 0.
  for (int stage = 0; stage <= 3; ++stage) {
    TrainingConfig config = mixed(stage);
    config.sequence_length = 1;
    const TargetMemory bf16 = of_gpt2(config, 1);
    config.precision = Precision::fp16;
    EXPECT_EQ(of_gpt2(config, 1).parts, bf16.parts);
    EXPECT_EQ(bf16.parts.at("optimizer"), 12 * p);
    if (stage == 0) {
      EXPECT_EQ(bf16.parts.at("step"), 8 * p);
    }
  }
}

TEST_F(TargetMemoryTest, EachOptimizerHasItsMomentsAndTemporaries) {
  struct Expected {
    OptimizerConfig optimizer;
    std::int64_t states, step;
  };
  using enum OptimizerKind;
  const Expected expected[] = {
      {{.kind = adamw}, 12, 8},
      {{.kind = adamw, .torch_adam = true}, 12, 4 + 4},
      {{.kind = adam, .weight_decay = 0.1, .torch_adam = true}, 12, 4 + 8},
      {{.kind = lion}, 8, 4},
      {{.kind = sgd}, 4, 4},
      {{.kind = sgd, .weight_decay = 0.1, .momentum = 0.9}, 8, 4 + 4},
      {{.kind = adagrad}, 8, 4 + 8},
  };
  for (const Expected& each : expected) {
    TrainingConfig config = mixed(0);
    config.sequence_length = 1;
    config.optimizer = each.optimizer;
    const auto parts = of_gpt2(config, 1).parts;
    EXPECT_EQ(parts.at("optimizer"), each.states * p) << to_text(each.optimizer.kind);
    EXPECT_EQ(parts.at("step"), each.step * p) << to_text(each.optimizer.kind);
  }
}

TEST_F(TargetMemoryTest, StatesHaveTheirTypes) {
  TrainingConfig config = mixed(1);
  config.fp32_gradient_accumulation = true;
  config.accumulation_steps = 2;  // gradients are there at every instant
  auto parts = of_gpt2(config).parts;
  EXPECT_EQ(parts.at("gradients"), 6 * p);
  // Without BF16_Optimizer a gradient goes as it is added to its sum.
  config.precision = Precision::fp16;
  TrainingConfig in_16_bits = mixed(1);
  in_16_bits.accumulation_steps = 2;
  EXPECT_EQ(of_gpt2(config).instants.at("loss"),
            of_gpt2(in_16_bits).instants.at("loss") + (4 - 2) * p);
  config = mixed(3);
  config.fp32_gradient_accumulation = true;
  EXPECT_EQ(of_gpt2(config).parts.at("gradients"), 4 * p / 4);
  config.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(host_bytes(config), 20 * p / 4);
  config = mixed(2);
  const std::int64_t gradients = of_gpt2(config).parts.at("gradients");
  config.low_precision_master = true;
  config.low_precision_moments = true;
  parts = of_gpt2(config).parts;
  EXPECT_EQ(parts.at("gradients"), gradients);
  EXPECT_EQ(parts.at("optimizer"), 6 * p / 4);
}

TEST_F(TargetMemoryTest, HoldsWhatWasPublishedOf32GiBWithinOneStep) {
  // DeepSpeed's autotuning tutorial: fp16 on 16 V100s of 32 GB, its fastest micro-batches.
  TrainingConfig config = mixed(1);
  config.precision = Precision::fp16;
  for (const auto& [name, published] :
       {std::pair("gpt2", 15), {"gpt2-medium", 6}, {"gpt2-large", 3}, {"gpt2-xl", 1}}) {
    const std::int64_t most =
        largest_micro_batch(preset(name), config, 16, TargetAttention::eager, 32 * gibibyte);
    EXPECT_NEAR(static_cast<double>(most), published, 1) << name;
  }
  EXPECT_GT(
      largest_micro_batch(preset("gpt2-medium"), config, 16, TargetAttention::sdpa, 32 * gibibyte),
      10);
}

TEST_F(TargetMemoryTest, StatesAreThePublishedOnes) {
  TrainingConfig config = mixed(0);
  auto parts = of_gpt2(config).parts;
  EXPECT_EQ(parts["parameters"], 2 * p);
  EXPECT_EQ(parts["gradients"], 0);  // none yet as the first backward begins
  EXPECT_EQ(parts["optimizer"], 12 * p);
  config.accumulation_steps = 2;
  EXPECT_EQ(of_gpt2(config).parts["gradients"], 2 * p);
  config.zero_stage = 2;
  parts = of_gpt2(config).parts;
  EXPECT_EQ(parts["parameters"], 2 * p);
  EXPECT_GT(parts["gradients"], 2 * p / 4);  // parameters as a whole
  EXPECT_LT(parts["gradients"], 2 * p);
  EXPECT_EQ(parts["optimizer"], 12 * p / 4);
  // fp32: stage 0 has no wrapper and no master copy, the others keep one.
  TrainingConfig single = mixed(0);
  single.precision = Precision::fp32;
  EXPECT_EQ(of_gpt2(single).parts["optimizer"], 8 * p);
  single.zero_stage = 1;
  EXPECT_EQ(of_gpt2(single).parts["optimizer"], 12 * p / 4);
}

TEST_F(TargetMemoryTest, BucketsOfStage2AreWholeAndDoubledByOverlap) {
  TrainingConfig config = mixed(2, 8);
  // Bytes that a bucket of 100 million elements more takes.
  const auto more = [&](const char* instant, int group_size) {
    TrainingConfig larger = config;
    larger.reduce_bucket_size += 100'000'000;
    return of_gpt2(larger, group_size).instants.at(instant) -
           of_gpt2(config, group_size).instants.at(instant);
  };
  EXPECT_EQ(more("layers", 4), 2 * 100'000'000);
  EXPECT_EQ(more("layers", 1), 2 * 100'000'000);  // a group of one, too
  EXPECT_EQ(more("loss", 4), 0);                  // the first gradient asks for it
  config.overlap_comm = true;
  EXPECT_EQ(more("layers", 4), 2 * 200'000'000);
  config.contiguous_gradients = false;
  EXPECT_EQ(more("layers", 4), 0);
}

TEST_F(TargetMemoryTest, ABucketOfTheWholeModelIsFlattenedAsBackwardEnds) {
  TrainingConfig config = mixed(2);
  config.sequence_length = 1;
  EXPECT_EQ(of_gpt2(config).parts["buckets"], 2 * (500'000'000 + p));
}

TEST_F(TargetMemoryTest, TheUpdateIsTheFullestInstantOfTinyBatches) {
  TrainingConfig config = mixed(0);
  config.sequence_length = 8;
  auto parts = of_gpt2(config, 1).parts;
  EXPECT_EQ(parts["step"], std::int64_t{8} * 124'439'808);
  EXPECT_EQ(parts["activations"], 0);
}

TEST_F(TargetMemoryTest, IsMoreThanOurs) {
  for (int stage = 0; stage <= 3; ++stage) {
    const ModelSpec model = preset("gpt2-medium");
    const TrainingConfig config = mixed(stage, 4);
    const StepPlan plan = build_step_plan(model, config, 4, 0, test::SomeWorkspaces());
    EXPECT_LT(plan.memory.arena_bytes,
              target_memory_of(model, config, 4, TargetAttention::flash).total_bytes);
  }
}

}  // namespace
}  // namespace dstune
