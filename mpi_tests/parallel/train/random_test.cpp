/// Losses of configurations drawn from the whole table of knobs. A few dozen where nothing is said;
/// DSTUNE_RANDOM_CONFIGURATIONS says how many, DSTUNE_RANDOM_SEED where to begin: configuration k
/// has seed + k, so that one that fails runs alone with its own seed.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "dstune/core/settings.hpp"
#include "golden.hpp"
#include "random_configuration.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::draw_configuration;
using test::first_draft;
using test::Golden;
using test::RandomConfiguration;
using test::tolerance_of;

constexpr int steps = 4;

std::uint64_t number_in(const char* variable, std::uint64_t fallback) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

/// The knobs that losses depend on: all others may be changed.
TrainingConfig plain(const TrainingConfig& config) {
  TrainingConfig result;
  result.zero_stage = config.zero_stage;
  result.micro_batch = config.micro_batch;
  result.accumulation_steps = config.accumulation_steps;
  result.sequence_length = config.sequence_length;
  result.precision = config.precision;
  result.loss_scale = config.loss_scale;
  result.gradient_clipping = config.gradient_clipping;
  result.optimizer = config.optimizer;
  return result;
}

/// Tells whether a difference in rounding stays one. Large updates make any training drift apart,
/// and below a loss scale of 1 halves lose small gradients.
bool is_tame(const TrainingConfig& config) {
  const double scale = config.loss_scale.fixed;
  return config.optimizer.learning_rate <= 2e-3 && config.optimizer.epsilon >= 1e-9 &&
         (scale == 0 || scale >= 1);
}

/// Tells whether losses are those of the plain configuration: knobs that are there to change
/// numbers have tests of their own. Lion's steps are signs, so that rounding turns some of them
/// around.
bool has_plain_numbers(const TrainingConfig& config) {
  const OptimizerKind kind = config.optimizer.kind;
  return (kind == OptimizerKind::adam || kind == OptimizerKind::adamw) &&
         !config.low_precision_master && !config.fp32_gradient_accumulation &&
         config.communication_data_type == CommunicationType::as_gradients &&
         !config.sums_gradients && !quantizes_weights(config) && !quantizes_gradients(config);
}

/// Blocks of sizes that divide a group of so many ranks, in the place of those that were drawn.
void fit_blocks(TrainingConfig& config, int ranks) {
  const auto fitting = [&](std::int64_t drawn) {
    std::int64_t size = 1 + drawn % ranks;
    while (ranks % size != 0) ++size;
    return size;
  };
  if (config.zero_hpz_partition_size > 1)
    config.zero_hpz_partition_size = fitting(config.zero_hpz_partition_size);
  if (config.mics_shard_size == 0) return;
  config.mics_shard_size = fitting(config.mics_shard_size);
  if (config.mics_shard_size < 2 || is_optimizer_offloaded(config))
    config.mics_shard_size = ranks > 1 ? ranks : 0;
  config.ranks_per_node = config.mics_hierarchical_params_gather ? 1 : 0;
  if (!is_mics(config)) config.mics_hierarchical_params_gather = false;
}

/// Nodes of one rank each, and nothing quantised that DeepSpeed can not quantise.
void fit_quantization(ModelSpec& model, TrainingConfig& config, int ranks) {
  if (quantizes_gradients(config)) {
    config.ranks_per_node = 1;
    config.communication_data_type = CommunicationType::fp16;
    model.vocab_size = 256;
  }
  if (!model_violation(model, config, ranks).empty()) config.zero_quantized_gradients = false;
  if (!model_violation(model, config, ranks).empty()) config.zero_quantized_weights = false;
}

class RandomTest : public test::TrainingTest {
 protected:
  /// In a group of one the gradients of all micro-steps are added up inside the kernels unless they
  /// leave the device after each.
  static bool adds_up_alike(const TrainingConfig& config) {
    // Copies of the states are averaged after what shares one.
    if (is_mics(config) && config.mics_shard_size < job().size()) return false;
    const bool is_offloaded = is_optimizer_offloaded(config) || are_parameters_offloaded(config);
    return !is_offloaded || job().size() > 1 || config.accumulation_steps == 1 ||
           config.zero_stage == 1;
  }

  static void check(const RandomConfiguration& drawn) {
    static const std::vector<Golden> goldens{
        Golden("gpt2"),     Golden("llama"),  Golden("bert"),       Golden("opt"),
        Golden("gpt_neox"), Golden("qwen3"),  Golden("phi3"),       Golden("olmo2"),
        Golden("granite"),  Golden("gemma2"), Golden("gemma3_text")};
    const Golden& golden = goldens[drawn.model_number % goldens.size()];
    TrainingConfig config = drawn.config;
    std::vector<std::int64_t> splits;  // of what a rank has of the batch, into micro-steps
    for (std::int64_t count = 1; count <= golden.global_batch / job().size(); ++count)
      if (golden.global_batch / job().size() % count == 0) splits.push_back(count);
    const TrainingConfig batch =
        golden.on(job().size(), config.zero_stage, splits[drawn.split_number % splits.size()]);
    config.sequence_length = batch.sequence_length;
    config.micro_batch = batch.micro_batch;
    config.accumulation_steps = batch.accumulation_steps;
    fit_blocks(config, job().size());
    ModelSpec model = golden.model;
    fit_quantization(model, config, job().size());
    SCOPED_TRACE("DSTUNE_RANDOM_CONFIGURATIONS=1 DSTUNE_RANDOM_SEED=" + std::to_string(drawn.seed) +
                 ": " + model.name + ", micro-batch " + std::to_string(config.micro_batch) + ", " +
                 std::to_string(config.accumulation_steps) + " micro-steps, recompute " +
                 std::string(to_text(config.recompute)) + ", " + drawn.ds_config.dump());

    const Course found = course(model, config, steps, golden.seed);
    if (!has_plain_numbers(config)) return;
    const Course expected = course(model, plain(config), steps, golden.seed, Guard::none);
    if (adds_up_alike(config)) {
      EXPECT_EQ(found, expected);
    } else if (is_tame(config)) {
      expect_close(found, expected, config);
    }
    if (!is_tame(config)) return;
    TrainingConfig alone = plain(config);
    alone.zero_stage = 0;
    alone.micro_batch = golden.global_batch;
    alone.accumulation_steps = 1;
    expect_close(found, course_alone(model, alone, steps, golden.seed), config);
  }

  /// Which parts of a batch overflow depends on how it is split.
  static void expect_close(const Course& found, const Course& expected,
                           const TrainingConfig& config) {
    if (!found.skipped_steps.empty() || !expected.skipped_steps.empty()) return;
    EXPECT_LT(test::largest_difference(found.losses, expected.losses),
              tolerance_of(config.precision));
  }
};

TEST_F(RandomTest, LossesAreThoseOfThePlainConfiguration) {
  const std::uint64_t count = number_in("DSTUNE_RANDOM_CONFIGURATIONS", 36);
  // Each rank count has its own by default.
  const std::uint64_t seed =
      number_in("DSTUNE_RANDOM_SEED", 1000 * static_cast<std::uint64_t>(job().size()));
  int refused = 0;
  for (std::uint64_t number = 0; number < count; ++number) {
    const RandomConfiguration drawn = draw_configuration(seed + number);
    refused += drawn.refused;
    check(drawn);
    if (HasFatalFailure()) return;
  }
  RecordProperty("refused", refused);
  if (job().rank() == 0)
    std::cout << count << " configurations from seed " << seed << ", " << refused << " refused\n";
}

// Nothing acts that is never drawn: a text without choices, a list of a new kind.
TEST_F(RandomTest, EveryKnobThatActsIsDrawn) {
  if (job().rank() != 0) return;
  std::set<std::string> missing;
  for (const Knob& knob : every_knob().knobs())
    // A folder is the machine's, not the table's.
    if (knob.apply != nullptr && !knob.pointer.ends_with("nvme_path") &&
        test::is_of_drawn_release(knob.pointer))
      missing.emplace(knob.pointer);
  const auto writes = [](const json::Value& ds_config, const std::string& pointer) {
    const json::Value::json_pointer place(pointer);
    return ds_config.contains(place) &&
           ds_config[place].dump() != every_knob().find_knob(pointer)->fallback;
  };
  // Drafts cost little, reading them until one is not refused much: only seeds are drawn whose
  // first draft has a knob that is missing.
  int drawn_configurations = 0;
  for (std::uint64_t seed = 0; drawn_configurations < 10'000 && !missing.empty(); ++seed) {
    const json::Value draft = first_draft(seed);
    if (std::none_of(missing.begin(), missing.end(),
                     [&](const std::string& pointer) { return writes(draft, pointer); }))
      continue;
    const RandomConfiguration drawn = draw_configuration(seed);
    ++drawn_configurations;
    std::erase_if(missing, [&](const std::string& pointer) {
      return writes(drawn.ds_config, pointer) &&
             every_knob().find_knob(pointer)->acts_at(drawn.config.zero_stage);
    });
  }
  EXPECT_EQ(missing, std::set<std::string>());
}

}  // namespace
}  // namespace dstune
