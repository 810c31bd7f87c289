/// Plans of random models, groups and configurations, up to sizes that nobody trains: every figure
/// is one that can be, or what overflows is named. The build with UBSan sees what wraps.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "dstune/base/checked.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

constexpr double most_parameters = 1e12;
constexpr int most_ranks = 16'384;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  /// Small and large ones alike.
  std::int64_t size(double low, double high) {
    std::uniform_real_distribution<double> logarithm(std::log(low), std::log(high));
    return static_cast<std::int64_t>(std::exp(logarithm(engine_)));
  }
  bool one_in(int count) { return between(1, count) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<std::int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

ModelSpec random_model(Dice& dice) {
  ModelSpec model = test::tiny_model(
      dice.one_of({ModelFamily::gpt2, ModelFamily::llama, ModelFamily::mistral, ModelFamily::qwen2,
                   ModelFamily::qwen3, ModelFamily::opt, ModelFamily::gpt_neox, ModelFamily::bert,
                   ModelFamily::olmo2, ModelFamily::gemma3_text, ModelFamily::falcon}));
  model.num_kv_heads = dice.size(1, 64);
  const bool has_key_heads = model.architecture.norm == NormKind::rms;
  model.num_heads = model.num_kv_heads * (has_key_heads ? dice.size(1, 8) : 1);
  model.head_size = 8 * dice.size(1, 64);
  model.hidden_size = model.num_heads * model.head_size;
  model.intermediate_size = dice.size(8, 300'000);
  model.vocab_size = dice.size(8, 1'000'000);
  model.max_positions = dice.size(16, 1'000'000);
  model.tie_embeddings = dice.one_in(2);
  // Mostly of few layers, which are quick to plan: sizes count.
  model.num_layers = dice.one_in(20) ? dice.size(1, 128) : dice.size(1, 4);
  model.dropout = dice.one_in(2) ? 0.1 : 0;
  return model;
}

TrainingConfig random_config(Dice& dice, const ModelSpec& model, int group_size) {
  TrainingConfig config;
  config.zero_stage = static_cast<int>(dice.between(0, 3));
  config.precision = dice.one_of({Precision::fp32, Precision::bf16, Precision::fp16});
  config.recompute = dice.one_of({Recompute::none, Recompute::selective, Recompute::block});
  config.sequence_length = std::min(dice.size(1, 1'000'000), model.max_positions);
  config.micro_batch = dice.one_in(4) ? dice.size(1, 1 << 24) : dice.size(1, 64);
  config.accumulation_steps = dice.one_in(2) ? 1 : dice.size(1, 1 << 24);
  config.overlap_comm = dice.one_in(2);
  config.contiguous_gradients = dice.one_in(2);
  config.fp32_gradient_accumulation = dice.one_in(4);
  config.reduce_bucket_size = dice.one_in(8) ? dice.size(1e9, 9e18) : dice.size(1e5, 1e9);
  config.stage3_prefetch_bucket_size = dice.size(1, 1e12);
  config.stage3_param_persistence_threshold = dice.size(1, 1e12);
  config.stage3_max_live_parameters = dice.size(1, 1e12);
  config.stage3_max_reuse_distance = dice.one_in(2) ? dice.size(1, 1e12) : 0;
  config.sub_group_size = dice.size(1, 1e12);
  if (config.zero_stage > 0 && dice.one_in(3)) config.offload_optimizer = OffloadDevice::cpu;
  if (config.zero_stage == 3 && dice.one_in(4)) config.offload_param = OffloadDevice::cpu;
  if (config.zero_stage == 3 && dice.one_in(2)) {
    config.zero_hpz_partition_size = std::int64_t{1} << dice.between(1, 4);
    if (group_size % config.zero_hpz_partition_size != 0) config.zero_hpz_partition_size = 1;
  }
  return config;
}

/// Tells whether there is one: a step of a million tokens or more is only planned.
bool check_target(const ModelSpec& model, const TrainingConfig& config, int group_size,
                  TargetAttention attention) {
  TargetMemory memory;
  try {
    memory = test::target_memory_of(model, config, group_size, attention);
  } catch (const OverflowError&) {
    return false;
  }
  // This is surely there: a rank's part of the parameters, or that of the optimizer on the host.
  const std::int64_t own = parameter_count(model) / group_size;
  EXPECT_GE(memory.total_bytes + memory.host_bytes, 2 * own);
  for (const auto& [part, bytes] : memory.parts) EXPECT_GE(bytes, 0) << part;
  for (const auto& [instant, bytes] : memory.instants) EXPECT_GE(bytes, 0) << instant;
  // hpZ's second copy comes beside everything else; ends of buckets may differ by a little.
  if (config.zero_hpz_partition_size > 1) {
    TrainingConfig without = config;
    without.zero_hpz_partition_size = 1;
    const std::int64_t before =
        test::target_memory_of(model, without, group_size, attention).total_bytes;
    EXPECT_GE(memory.total_bytes, before - before / 1000);
  }
  return true;
}

void check_own(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  try {
    const StepPlan plan = test::build(model, config, group_size);
    EXPECT_GE(plan.memory.arena_bytes, plan.memory.peak_live_bytes);
    EXPECT_GT(plan.memory.peak_live_bytes, 0);
    EXPECT_GE(plan.host_memory.arena_bytes, 0);
  } catch (const OverflowError&) {
  }
}

TEST(RandomPlansTest, EveryFigureIsOneThatCanBe) {
  const char* const asked = std::getenv("DSTUNE_RANDOM_PLANS");
  const std::int64_t count = asked != nullptr ? std::stoll(asked) : 2'000;
  int planned = 0;
  for (std::int64_t seed = 0; seed < count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(static_cast<std::uint64_t>(seed));
    ModelSpec model = random_model(dice);
    while (static_cast<double>(parameter_count(model)) > most_parameters)
      model.intermediate_size = std::max<std::int64_t>(8, model.intermediate_size / 2),
      model.num_layers = std::max<std::int64_t>(1, model.num_layers / 2);
    const auto group_size = static_cast<int>(dice.one_in(2) ? std::int64_t{1} << dice.between(0, 14)
                                                            : dice.size(1, most_ranks));
    const TrainingConfig config = random_config(dice, model, group_size);
    const auto attention =
        dice.one_of({TargetAttention::eager, TargetAttention::sdpa, TargetAttention::flash});
    if (check_target(model, config, group_size, attention)) ++planned;
    // Its operations are as many as its layers and pieces.
    if (model.num_layers <= 4 && config.zero_hpz_partition_size == 1 && dice.one_in(10))
      check_own(model, config, group_size);
  }
  EXPECT_GT(planned, count / 2);
}

}  // namespace
}  // namespace dstune
