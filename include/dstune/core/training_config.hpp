#pragma once
/// One fully decided training configuration: what a StepPlan is built from. A plain value; the
/// table of knobs (knobs.hpp) fills it from a DeepSpeed config.

#include <cstdint>
#include <limits>
#include <string_view>

namespace dstune {

/// Element type of parameters, activations and gradients. bf16 and fp16 keep fp32 master weights
/// and moments; fp16 scales the loss, so that small gradients do not vanish, and skips the update
/// where one of them overflows.
enum class Precision { fp32, bf16, fp16 };
/// What backward computes again instead of keeping it from forward.
enum class Recompute { none, block };
enum class OptimizerKind { adam, adamw };
/// Where states live that the device need not hold.
enum class OffloadDevice { none, cpu };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool operator==(const OptimizerConfig&) const = default;
};

/// What the loss is multiplied by before backward in fp16: section "fp16" of a DeepSpeed config.
struct LossScale {
  double fixed = 0;                 ///< loss_scale; 0: dynamic, as the others say
  std::int64_t initial_power = 16;  ///< of two: initial_scale_power
  std::int64_t window = 1000;       ///< loss_scale_window: steps without overflow before a raise
  std::int64_t hysteresis = 2;      ///< overflows before a fall; from ZeRO stage 1 on
  bool consecutive_hysteresis = false;  ///< … in a row; from ZeRO stage 1 on
  double minimum = 1;                   ///< min_loss_scale
  bool operator==(const LossScale&) const = default;
};

/// Names and defaults are DeepSpeed 0.19.6's; bucket sizes are counted in elements.
struct TrainingConfig {
  int zero_stage = 0;
  std::int64_t micro_batch = 1;         ///< train_micro_batch_size_per_gpu, samples a rank
  std::int64_t accumulation_steps = 1;  ///< gradient_accumulation_steps
  std::int64_t sequence_length = 1024;
  Precision precision = Precision::fp32;
  LossScale loss_scale;
  Recompute recompute = Recompute::none;

  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;
  bool overlap_comm = false;
  bool reduce_scatter = true;
  bool contiguous_gradients = true;
  bool use_multi_rank_bucket_allreduce = true;
  OffloadDevice offload_optimizer = OffloadDevice::none;  ///< stages 1 to 3

  std::int64_t sub_group_size = 1'000'000'000;  ///< stage 3; elements of this rank's shards
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;
  std::int64_t stage3_param_persistence_threshold = 100'000;
  std::int64_t stage3_model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  std::int64_t stage3_max_live_parameters = 1'000'000'000;
  std::int64_t stage3_max_reuse_distance = 1'000'000'000;
  std::int64_t stage3_module_granularity_threshold = 0;  ///< 0: none
  bool stage3_allgather_sequential = false;

  double gradient_clipping = 1.0;  ///< largest global gradient norm; 0: no clipping
  OptimizerConfig optimizer;

  bool operator==(const TrainingConfig&) const = default;
};

/// Samples of one optimizer step over the whole group.
[[nodiscard]] constexpr std::int64_t global_batch(const TrainingConfig& config, int group_size) {
  return config.micro_batch * config.accumulation_steps * group_size;
}

/// Stage 0 has no part of the optimizer's states that could be elsewhere.
[[nodiscard]] constexpr bool is_optimizer_offloaded(const TrainingConfig& config) {
  return config.zero_stage > 0 && config.offload_optimizer != OffloadDevice::none;
}

/// A TrainingConfig's members by name, once for everything that writes or reads all of them.
/// Visitor: (const char* name, member&). Config: TrainingConfig, const or not.
template <class Config, class Visitor>
void for_each_member(Config& config, Visitor&& visit) {
  visit("zero_stage", config.zero_stage);
  visit("micro_batch", config.micro_batch);
  visit("accumulation_steps", config.accumulation_steps);
  visit("sequence_length", config.sequence_length);
  visit("precision", config.precision);
  visit("loss_scale", config.loss_scale.fixed);
  visit("initial_scale_power", config.loss_scale.initial_power);
  visit("loss_scale_window", config.loss_scale.window);
  visit("hysteresis", config.loss_scale.hysteresis);
  visit("consecutive_hysteresis", config.loss_scale.consecutive_hysteresis);
  visit("min_loss_scale", config.loss_scale.minimum);
  visit("recompute", config.recompute);
  visit("reduce_bucket_size", config.reduce_bucket_size);
  visit("allgather_bucket_size", config.allgather_bucket_size);
  visit("overlap_comm", config.overlap_comm);
  visit("reduce_scatter", config.reduce_scatter);
  visit("contiguous_gradients", config.contiguous_gradients);
  visit("use_multi_rank_bucket_allreduce", config.use_multi_rank_bucket_allreduce);
  visit("offload_optimizer", config.offload_optimizer);
  visit("sub_group_size", config.sub_group_size);
  visit("stage3_prefetch_bucket_size", config.stage3_prefetch_bucket_size);
  visit("stage3_param_persistence_threshold", config.stage3_param_persistence_threshold);
  visit("stage3_model_persistence_threshold", config.stage3_model_persistence_threshold);
  visit("stage3_max_live_parameters", config.stage3_max_live_parameters);
  visit("stage3_max_reuse_distance", config.stage3_max_reuse_distance);
  visit("stage3_module_granularity_threshold", config.stage3_module_granularity_threshold);
  visit("stage3_allgather_sequential", config.stage3_allgather_sequential);
  visit("gradient_clipping", config.gradient_clipping);
  visit("optimizer", config.optimizer.kind);
  visit("learning_rate", config.optimizer.learning_rate);
  visit("beta1", config.optimizer.beta1);
  visit("beta2", config.optimizer.beta2);
  visit("epsilon", config.optimizer.epsilon);
  visit("weight_decay", config.optimizer.weight_decay);
}

[[nodiscard]] std::string_view to_text(Precision precision);
[[nodiscard]] std::string_view to_text(OffloadDevice device);  ///< "none", "cpu"
[[nodiscard]] std::string_view to_text(Recompute recompute);   ///< "none", "block"

}  // namespace dstune
