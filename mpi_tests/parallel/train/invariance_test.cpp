/// Ways to train that must not change the losses: docs/inside/reference-step.md, section 7.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "golden.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;
using test::largest_difference;

/// All that can differ does so by the third step.
constexpr int steps = 4;
/// … and of one that skips steps until the scale of the loss fits.
constexpr int steps_with_skips = 10;
/// A shorter training, for what is tried in many ways.
constexpr int few_steps = 3;

struct Case {
  const char* model;
  int stage;
  Precision precision;
  LossScale loss_scale = {};
};

class InvarianceTest : public test::TrainingTest, public testing::WithParamInterface<Case> {
 protected:
  [[nodiscard]] TrainingConfig config(std::int64_t accumulation_steps) const {
    TrainingConfig result = golden_.on(job().size(), GetParam().stage, accumulation_steps);
    result.precision = GetParam().precision;
    result.loss_scale = GetParam().loss_scale;
    return result;
  }
  [[nodiscard]] static int num_steps() {
    return GetParam().loss_scale == LossScale() ? steps : steps_with_skips;
  }
  [[nodiscard]] std::vector<double> losses(const TrainingConfig& config) const {
    return train(golden_.model, config, num_steps(), golden_.seed);
  }
  /// Equal courses have equal bits.
  [[nodiscard]] Course run(const TrainingConfig& config) const {
    return course(golden_.model, config, num_steps(), golden_.seed);
  }

  /// docs/inside/reference-step.md, section 7: how far ZeRO++'s quantisation may take the losses.
  static void expect_near(const Course& found, const Course& expected, const char* what) {
    if (GetParam().loss_scale != LossScale()) return;  // skips other steps
    const double difference = largest_difference(found.losses, expected.losses);
    RecordProperty(what, std::to_string(difference));
    EXPECT_LT(difference, 2e-3) << what;
  }

  Golden golden_{GetParam().model};
};

TEST_P(InvarianceTest, BucketsAndOverlapChangeNoBit) {
  const TrainingConfig base = config(2);
  const Course expected = run(base);
  // A model has 100,000 parameters and more: one each, several, a bucket larger than the model.
  for (const std::int64_t bucket : {1, 5'000, 40'000, 500'000'000}) {
    for (const bool overlap : {false, true}) {
      TrainingConfig variant = base;
      variant.reduce_bucket_size = bucket;
      variant.overlap_comm = overlap;
      EXPECT_EQ(run(variant), expected) << "bucket " << bucket << ", overlap " << overlap;
    }
  }
}

TEST_P(InvarianceTest, WaysToReduceChangeNoBit) {
  const TrainingConfig base = config(3);
  const Course expected = run(base);
  const std::vector<std::pair<std::string, bool TrainingConfig::*>> switches{
      {"reduce_scatter", &TrainingConfig::reduce_scatter},
      {"contiguous_gradients", &TrainingConfig::contiguous_gradients},
      {"use_multi_rank_bucket_allreduce", &TrainingConfig::use_multi_rank_bucket_allreduce}};
  for (const auto& [name, member] : switches) {
    for (const bool overlap : {false, true}) {
      TrainingConfig variant = base;
      variant.reduce_bucket_size = 20'000;
      variant.overlap_comm = overlap;
      variant.*member = false;
      EXPECT_EQ(run(variant), expected) << name << ", overlap " << overlap;
    }
  }
}

/// Stage 3's knobs; the other stages know none of them.
std::vector<std::pair<std::string, std::function<void(TrainingConfig&)>>> gather_knobs() {
  return {
      {"nothing stays whole", [](auto& c) { c.stage3_param_persistence_threshold = 0; }},
      {"few stay whole", [](auto& c) { c.stage3_model_persistence_threshold = 300; }},
      {"gathered twice",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 0;
         c.stage3_prefetch_bucket_size = 0;
         c.stage3_max_reuse_distance = 0;
       }},
      {"gathered ahead",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 100;
         c.stage3_prefetch_bucket_size = 9'000;
         c.stage3_max_live_parameters = 30'000;
         c.stage3_max_reuse_distance = 10'000;
       }},
      {"one by one",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 100;
         c.stage3_allgather_sequential = true;
       }},
      {"as leaves",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 0;
         c.stage3_module_granularity_threshold = 1'000'000;
       }},
      {"as blocks",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 0;
         c.leaf_modules = {"GPT2Block\nLlamaDecoderLayer\nQwen3DecoderLayer\n", "", "mlp\n"};
       }},
      {"held by linear layers",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 0;
         c.stage3_max_reuse_distance = 0;
         c.memory_efficient_linear = false;
       }},
      {"by all-reduce",
       [](auto& c) {
         c.stage3_param_persistence_threshold = 0;
         c.stage3_use_all_reduce_for_fetch_params = true;
       }},
      {"sub-groups", [](auto& c) { c.sub_group_size = 1'000; }},
  };
}

TEST_P(InvarianceTest, GatheringChangesNoBit) {
  if (GetParam().stage < 3) GTEST_SKIP() << "nothing is gathered";
  const TrainingConfig base = config(3);
  const std::vector<double> expected = losses(base);
  for (const auto& [name, change] : gather_knobs()) {
    for (const bool overlap : {false, true}) {
      TrainingConfig variant = base;
      change(variant);
      variant.overlap_comm = overlap;
      for (const Recompute recompute : overlap ? std::vector{Recompute::block, Recompute::selective}
                                               : std::vector{Recompute::none}) {
        variant.recompute = recompute;
        EXPECT_EQ(losses(variant), expected) << name << ", overlap " << overlap;
      }
    }
  }
}

/// Into which the job's ranks can be cut, from 2 ranks on.
std::vector<std::int64_t> block_sizes(int ranks) {
  std::vector<std::int64_t> sizes;
  for (int size = 2; size <= ranks; ++size)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes;
}

/// Gathers that make a difference to parts: twice, ahead, each by itself.
std::vector<std::pair<std::string, std::function<void(TrainingConfig&)>>> ways_over_parts() {
  std::vector<std::pair<std::string, std::function<void(TrainingConfig&)>>> ways = gather_knobs();
  std::erase_if(ways, [](const auto& way) {
    return way.first == "few stay whole" || way.first == "as leaves" || way.first == "sub-groups";
  });
  return ways;
}

TEST_P(InvarianceTest, ASecondPartitionOfTheParametersChangesNoBit) {
  if (GetParam().stage < 3) GTEST_SKIP() << "it has none";
  TrainingConfig base = config(2);
  const Course expected = course(golden_.model, base, few_steps, golden_.seed);
  for (const std::int64_t size : block_sizes(job().size())) {
    for (const auto& [name, change] : ways_over_parts()) {
      TrainingConfig variant = base;
      change(variant);
      variant.zero_hpz_partition_size = size;
      EXPECT_EQ(course(golden_.model, variant, few_steps, golden_.seed), expected)
          << "blocks of " << size << ", " << name;
      if (job().size() > 1) variant.offload_param = OffloadDevice::cpu;
      EXPECT_EQ(course(golden_.model, variant, few_steps, golden_.seed), expected)
          << "blocks of " << size << ", " << name << ", on the host";
      base.overlap_comm = !base.overlap_comm;
    }
  }
}

// Gradients are averaged in two steps where there are several copies.
TEST_P(InvarianceTest, CopiesOfTheStatesRoundAtMost) {
  if (GetParam().stage < 3) GTEST_SKIP() << "it has none";
  // Overflows come in the first of the two steps.
  if (GetParam().loss_scale != LossScale()) GTEST_SKIP() << "skips other steps";
  const double tolerance = test::tolerance_of(GetParam().precision);
  const TrainingConfig base = config(2);
  const std::vector<double> expected = losses(base);
  for (const std::int64_t size : block_sizes(job().size())) {
    TrainingConfig copies = base;
    copies.mics_shard_size = size;
    const std::vector<double> found = losses(copies);
    if (size == job().size()) {
      EXPECT_EQ(found, expected);
    }
    EXPECT_LT(largest_difference(found, expected), tolerance) << "blocks of " << size;
    const Course few = course(golden_.model, copies, few_steps, golden_.seed);
    TrainingConfig variant = copies;
    variant.overlap_comm = true;
    variant.reduce_bucket_size = 20'000;
    variant.stage3_param_persistence_threshold = 100;
    variant.stage3_prefetch_bucket_size = 9'000;
    variant.stage3_max_reuse_distance = 10'000;
    EXPECT_EQ(course(golden_.model, variant, few_steps, golden_.seed), few) << "blocks of " << size;
    variant.mics_hierarchical_params_gather = true;
    for (variant.ranks_per_node = 1; variant.ranks_per_node < size; ++variant.ranks_per_node) {
      if (size % variant.ranks_per_node != 0) continue;
      EXPECT_EQ(course(golden_.model, variant, few_steps, golden_.seed), few)
          << "blocks of " << size << ", nodes of " << variant.ranks_per_node;
    }
  }
}

// ZeRO++: weights of 8 bits.
TEST_P(InvarianceTest, QuantizedWeightsMoveTheLossesALittle) {
  if (GetParam().stage < 3) GTEST_SKIP() << "nothing is gathered";
  TrainingConfig quantized = config(2);
  const Course expected = run(quantized);
  quantized.zero_quantized_weights = true;
  if (!model_violation(golden_.model, quantized, job().size()).empty())
    GTEST_SKIP() << "DeepSpeed fails on so many ranks";
  const Course found = run(quantized);
  if (job().size() == 1) {
    EXPECT_EQ(found, expected);
    return;
  }
  EXPECT_NE(found, expected);
  expect_near(found, expected, "weights");
  // Matrices that are gathered together have their scales together; all else changes nothing.
  const Course few = course(golden_.model, quantized, few_steps, golden_.seed);
  TrainingConfig variant = quantized;
  variant.overlap_comm = !variant.overlap_comm;
  variant.reduce_bucket_size = 20'000;
  variant.recompute = Recompute::block;
  variant.offload_optimizer = OffloadDevice::cpu;
  variant.stage3_use_all_reduce_for_fetch_params = true;
  EXPECT_EQ(course(golden_.model, variant, few_steps, golden_.seed), few);
  for (const std::int64_t size : block_sizes(job().size())) {
    variant.zero_hpz_partition_size = size;
    if (!model_violation(golden_.model, variant, job().size()).empty()) continue;
    expect_near(course(golden_.model, variant, few_steps, golden_.seed), few, "hpZ");
  }
}

// ZeRO++: gradients of 4 bits, across nodes.
TEST_P(InvarianceTest, QuantizedGradientsMoveTheLossesALittle) {
  if (GetParam().stage < 3) GTEST_SKIP() << "its gradients travel as they are";
  // The ranks divide the longer side of every matrix.
  ModelSpec model = golden_.model;
  model.vocab_size = 264;
  TrainingConfig base = config(2);
  base.communication_data_type = CommunicationType::fp16;
  const Course expected = course(model, base, few_steps, golden_.seed);
  for (int of_node = 1; of_node < job().size(); ++of_node) {
    if (job().size() % of_node != 0) continue;
    TrainingConfig quantized = base;
    quantized.zero_quantized_gradients = true;
    quantized.ranks_per_node = of_node;
    if (!model_violation(model, quantized, job().size()).empty()) continue;
    SCOPED_TRACE(std::to_string(of_node) + " ranks a node");
    const Course found = course(model, quantized, few_steps, golden_.seed);
    const bool has_updates = std::ssize(expected.skipped_steps) < few_steps;
    EXPECT_EQ(found == expected, !has_updates);
    expect_near(found, expected, "gradients");
    // Each gradient travels by itself, however they are put into buckets.
    for (const std::int64_t bucket : {1, 20'000}) {
      TrainingConfig variant = quantized;
      variant.overlap_comm = !variant.overlap_comm;
      variant.reduce_bucket_size = bucket;
      variant.contiguous_gradients = bucket == 1;
      EXPECT_EQ(course(model, variant, few_steps, golden_.seed), found) << "buckets of " << bucket;
    }
  }
}

TEST_P(InvarianceTest, DealingParametersOutChangesNoBit) {
  const TrainingConfig base = config(3);
  const Course expected = run(base);
  for (const bool to_owners : {false, true}) {
    TrainingConfig variant = base;
    variant.reduce_bucket_size = 20'000;
    variant.round_robin_gradients = true;
    variant.use_multi_rank_bucket_allreduce = !to_owners;
    EXPECT_EQ(run(variant), expected) << "to owners " << to_owners;
  }
}

// Sums are formed in fp32 in any case, so that a wider type rounds no less in the end.
TEST_P(InvarianceTest, ReducingInAWiderTypeChangesNoBit) {
  TrainingConfig variant = config(2);
  variant.reduce_bucket_size = 20'000;
  const Course expected = run(variant);
  variant.communication_data_type = CommunicationType::fp32;
  for (const bool overlap : {false, true}) {
    variant.overlap_comm = overlap;
    EXPECT_EQ(run(variant), expected) << "overlap " << overlap;
  }
}

TEST_P(InvarianceTest, ReducingInANarrowerTypeRounds) {
  if (GetParam().precision != Precision::fp32) GTEST_SKIP() << "it is narrow already";
  TrainingConfig variant = config(2);
  const std::vector<double> expected = losses(variant);
  variant.communication_data_type = CommunicationType::bf16;
  const std::vector<double> rounded = losses(variant);
  EXPECT_LT(largest_difference(rounded, expected), 1e-3);
  if (job().size() > 1) {
    EXPECT_NE(rounded, expected);
  }
}

TEST_P(InvarianceTest, RecomputationChangesNoBit) {
  TrainingConfig variant = config(2);
  const Course expected = run(variant);
  for (const Recompute recompute : {Recompute::selective, Recompute::block}) {
    variant.recompute = recompute;
    EXPECT_EQ(run(variant), expected) << to_text(recompute);
  }
  // Still with blocks computed again.
  variant.synchronize_checkpoint_boundary = true;
  EXPECT_EQ(run(variant), expected) << "waiting at boundaries";
  variant.cpu_checkpointing = true;
  EXPECT_EQ(run(variant), expected) << "from host memory, waiting at boundaries";
  variant.synchronize_checkpoint_boundary = false;
  EXPECT_EQ(run(variant), expected) << "from host memory";
}

TEST_P(InvarianceTest, EqualRunsAreEqual) {
  EXPECT_EQ(run(config(1)), run(config(1)));
}

// An overflow anywhere is everybody's: ranks that did not agree would hang or drift apart.
TEST_P(InvarianceTest, OverflowsAreSkippedByAll) {
  if (GetParam().loss_scale == LossScale()) GTEST_SKIP() << "nothing overflows";
  const std::vector<std::int64_t> skipped = run(config(2)).skipped_steps;
  EXPECT_GT(skipped.size(), 2U);
  EXPECT_LT(skipped.size(), 10U);
  EXPECT_EQ(skipped.front(), 0);
}

TEST_P(InvarianceTest, StagesAndSplitsOfTheBatchAgree) {
  // Which part of a batch overflows depends on how it is split.
  if (GetParam().loss_scale != LossScale()) GTEST_SKIP() << "skips other steps";
  const double tolerance = test::tolerance_of(GetParam().precision);
  TrainingConfig base = config(1);
  base.zero_stage = 0;
  const std::vector<double> expected = losses(base);
  for (const std::int64_t accumulation_steps : {1, 2, 3, 4, 6, 12}) {
    if (golden_.global_batch / job().size() % accumulation_steps != 0) continue;
    EXPECT_LT(largest_difference(losses(config(accumulation_steps)), expected), tolerance)
        << accumulation_steps << " micro-steps";
  }
}

std::vector<Case> cases() {
  const LossScale skipping{.initial_power = 24, .hysteresis = 1};
  std::vector<Case> result;
  for (const int stage : {0, 1, 2, 3}) {
    result.push_back({"gpt2", stage, Precision::fp32});
    result.push_back({"llama", stage, Precision::bf16});
    result.push_back({"gpt2", stage, Precision::fp16});
    result.push_back({"llama", stage, Precision::fp16, skipping});
    result.push_back({"bert", stage, Precision::bf16});
  }
  // Parallel branches, norms of heads.
  result.push_back({"gpt_neox", 3, Precision::bf16});
  result.push_back({"qwen3", 2, Precision::bf16});
  result.push_back({"olmo2", 3, Precision::bf16});
  result.push_back({"gemma3_text", 1, Precision::bf16});
  result.push_back({"qwen2_window", 1, Precision::bf16});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest, testing::ValuesIn(cases()),
                         [](const auto& test_case) {
                           const Case& each = test_case.param;
                           const bool skips = each.loss_scale != LossScale();
                           return std::string(each.model) + "_" +
                                  std::string(to_text(each.precision)) +
                                  (skips ? "_skipping" : "") + "_stage" +
                                  std::to_string(test_case.param.stage);
                         });

}  // namespace
}  // namespace dstune
