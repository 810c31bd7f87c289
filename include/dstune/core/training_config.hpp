#pragma once
/// One fully decided training configuration: what a StepPlan is built from. A plain value; the
/// table of knobs (settings.hpp) fills it from a DeepSpeed config.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "dstune/base/hash.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/deepspeed_switches.hpp"

namespace dstune {

/// Element type of parameters, activations and gradients. With bf16 and fp16 there are fp32 master
/// weights and moments. With fp16 the step scales the loss, so that small gradients do not vanish,
/// and skips the update if one of them overflows.
enum class Precision { fp32, bf16, fp16 };
/// The activations that backward computes again instead of keeping them from forward. `selective`:
/// wide and cheap ones, of norms and activations, but not results of products and of attention.
/// `block`: all of a block except its input.
enum class Recompute { none, selective, block };
/// PyTorch's SGD; the others as DeepSpeed runs them.
enum class OptimizerKind { adam, adamw, lion, sgd, adagrad };
/// The type in which gradients are reduced: that of the gradients, or one of these.
enum class CommunicationType { as_gradients, fp32, fp16, bf16 };
/// The place of states that the device need not hold.
enum class OffloadDevice { none, cpu, nvme };

/// How a disk is used where something is offloaded to one.
struct DiskUse {
  std::string folder;                  ///< nvme_path
  std::int64_t optimizer_buffers = 4;  ///< offload_optimizer.buffer_count
  bool pipeline_read = false;          ///< the next sub-group is read beside an update
  bool pipeline_write = false;         ///< the one before is written beside it
  std::int64_t parameter_buffers = 5;  ///< offload_param.buffer_count
  std::int64_t parameter_buffer_size = 100'000'000;   ///< offload_param.buffer_size; elements
  std::int64_t parameters_in_memory = 1'000'000'000;  ///< offload_param.max_in_cpu; elements
  std::int64_t block_bytes = 1 << 20;                 ///< aio.block_size
  std::int64_t queue_depth = 8;  ///< aio.queue_depth: blocks in flight, of a thread
  std::int64_t threads = 1;      ///< aio.intra_op_parallelism
  bool operator==(const DiskUse&) const = default;
};

/// Modules of the Hugging Face model that are gathered with all below them, as
/// zero_optimization.leaf_module names them: a line for each.
struct LeafModules {
  std::string classes;        ///< with or without their Python module
  std::string names;          ///< as in named_modules()
  std::string name_suffixes;  ///< ends of such names
  bool operator==(const LeafModules&) const = default;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  double momentum = 0;             ///< sgd
  double dampening = 0;            ///< sgd
  bool nesterov = false;           ///< sgd
  double learning_rate_decay = 0;  ///< adagrad, on the device
  double initial_accumulator = 0;  ///< adagrad, on the device
  bool torch_adam = false;         ///< PyTorch's adam or adamw
  bool operator==(const OptimizerConfig&) const = default;
};

/// A mean of gradients (the first moment), and of their squares or the sum of them (the second):
/// what an optimizer keeps for each parameter.
[[nodiscard]] constexpr bool has_first_moment(const OptimizerConfig& optimizer) {
  using enum OptimizerKind;
  return optimizer.kind != adagrad && (optimizer.kind != sgd || optimizer.momentum != 0);
}
[[nodiscard]] constexpr bool has_second_moment(const OptimizerConfig& optimizer) {
  using enum OptimizerKind;
  return optimizer.kind == adam || optimizer.kind == adamw || optimizer.kind == adagrad;
}

/// The factor on the loss before backward in fp16: section "fp16" of a DeepSpeed config.
struct LossScale {
  double fixed = 0;                 ///< loss_scale; 0: dynamic, as the others say
  std::int64_t initial_power = 16;  ///< of two: initial_scale_power
  std::int64_t window = 1000;       ///< loss_scale_window: steps without overflow before a raise
  std::int64_t hysteresis = 2;      ///< overflows before a fall; from ZeRO stage 1 on
  bool consecutive_hysteresis = false;  ///< … in a row; from ZeRO stage 1 on
  double minimum = 1;                   ///< min_loss_scale
  bool operator==(const LossScale&) const = default;
};

/// DeepSpeed's default of mics_shard_size: no MiCS.
inline constexpr std::int64_t default_mics_shard_size = -1;
/// The number of ranks that such a value stands for. DeepSpeed takes 0 and below for one thing: all
/// ranks, 0 here.
[[nodiscard]] constexpr std::int64_t mics_ranks(std::int64_t shard_size) {
  return shard_size > 0 ? shard_size : 0;
}

/// Names and defaults are DeepSpeed 0.19.6's; bucket sizes are counted in elements.
struct TrainingConfig {
  DeepSpeedSwitches switches;  ///< of the target's release
  int zero_stage = 0;
  std::int64_t micro_batch = 1;         ///< train_micro_batch_size_per_gpu, samples a rank
  std::int64_t accumulation_steps = 1;  ///< gradient_accumulation_steps
  std::int64_t sequence_length = 1024;
  Precision precision = Precision::fp32;
  LossScale loss_scale;
  // In 16-bit training at stages 1 to 3.
  /// data_types.grad_accum_dtype; at stages 0 and 2 where the release has it.
  bool fp32_gradient_accumulation = false;
  bool immediate_grad_update = false;  ///< of bf16 at stage 1 that accumulates so
  bool low_precision_master = false;   ///< bf16_master_weights_and_grads, fp16_…
  bool low_precision_moments = false;  ///< bf16_optimizer_states; only with such a master
  Recompute recompute = Recompute::none;
  bool cpu_checkpointing = false;  ///< with Recompute::block: blocks' inputs in host memory
  bool synchronize_checkpoint_boundary =
      false;  ///< with Recompute::block: the device is waited for

  std::int64_t reduce_bucket_size = 500'000'000;
  bool overlap_comm = false;
  bool reduce_scatter = true;
  bool contiguous_gradients = true;
  bool use_multi_rank_bucket_allreduce = true;
  bool round_robin_gradients = false;
  CommunicationType communication_data_type = CommunicationType::as_gradients;
  bool sums_gradients = false;  ///< gradient_allreduce_op: not the mean over ranks; stages 0 to 2
  bool aligns_parameters = false;  ///< parameter_alignment: each begins at 16 bytes; stages 1 and 2
  OffloadDevice offload_optimizer = OffloadDevice::none;  ///< stages 1 to 3
  double offload_ratio = 1.0;  ///< stage 3: share of the sub-groups whose states are offloaded
  OffloadDevice offload_param = OffloadDevice::none;  ///< stage 3
  DiskUse disk;                                       ///< stage 3

  std::int64_t sub_group_size = 1'000'000'000;  ///< stage 3; elements of this rank's shards
  std::int64_t stage3_prefetch_bucket_size = 50'000'000;
  std::int64_t stage3_param_persistence_threshold = 100'000;
  std::int64_t stage3_model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  std::int64_t stage3_max_live_parameters = 1'000'000'000;
  std::int64_t stage3_max_reuse_distance = 1'000'000'000;
  std::int64_t stage3_module_granularity_threshold = 0;  ///< 0: none
  LeafModules leaf_modules;
  bool memory_efficient_linear = true;  ///< linear layers hold no gathered weight for backward
  bool stage3_allgather_sequential = false;
  bool stage3_use_all_reduce_for_fetch_params = false;

  // Stage 3 over parts of the group.
  std::int64_t zero_hpz_partition_size = 1;  ///< ranks that hold the parameters once more; 1: none
  /// Ranks that share one copy of the states; 0: all.
  std::int64_t mics_shard_size = mics_ranks(default_mics_shard_size);
  bool mics_hierarchical_params_gather = false;
  /// The group's ranks on each node: no knob, but a fact of where it runs. Only where hierarchical
  /// gathers or quantised reductions across nodes ask for it.
  std::int64_t ranks_per_node = 0;
  bool zero_quantized_weights = false;    ///< gathered as numbers of 8 bits
  bool zero_quantized_gradients = false;  ///< across nodes reduced as numbers of 4 bits

  /// Ranks that compute one micro-batch together: by parts of the sequence or of each tensor. Only
  /// where somebody else's code runs the step.
  std::int64_t ranks_per_batch = 1;

  double gradient_clipping = 1.0;  ///< largest global gradient norm; 0: no clipping
  /// compute_grad_norm: the norm is taken where nothing is clipped, too; off at stages 1 and 2.
  bool computes_gradient_norm = true;
  bool checks_overflow = true;  ///< bf16.check_grad_overflow, where no norm is taken
  OptimizerConfig optimizer;

  bool operator==(const TrainingConfig&) const = default;
};

/// Samples of one optimizer step over the whole group.
[[nodiscard]] constexpr std::int64_t global_batch(const TrainingConfig& config, int group_size) {
  return config.micro_batch * config.accumulation_steps * group_size / config.ranks_per_batch;
}

/// Stage 0 has no part of the optimizer's states that could be elsewhere.
[[nodiscard]] constexpr bool is_optimizer_offloaded(const TrainingConfig& config) {
  return config.zero_stage > 0 && config.offload_optimizer != OffloadDevice::none;
}
/// Only stage 3 takes a disk for one: the others hold on the host what should be there.
[[nodiscard]] constexpr bool is_optimizer_on_disk(const TrainingConfig& config) {
  return config.zero_stage == 3 && config.offload_optimizer == OffloadDevice::nvme;
}
/// Only stage 3 has parameters that could be elsewhere.
[[nodiscard]] constexpr bool are_parameters_offloaded(const TrainingConfig& config) {
  return config.zero_stage == 3 && config.offload_param != OffloadDevice::none;
}
[[nodiscard]] constexpr bool are_parameters_on_disk(const TrainingConfig& config) {
  return config.zero_stage == 3 && config.offload_param == OffloadDevice::nvme;
}
/// A step may read and write a disk.
[[nodiscard]] constexpr bool uses_disk(const TrainingConfig& config) {
  return is_optimizer_on_disk(config) || are_parameters_on_disk(config);
}

/// Several ranks, but not all of the group's, may share one copy of the states.
[[nodiscard]] constexpr bool is_mics(const TrainingConfig& config) {
  return config.zero_stage == 3 && config.mics_shard_size > 0;
}

/// ZeRO++'s gathers of quantised weights. MiCS has gathers of its own.
[[nodiscard]] constexpr bool quantizes_weights(const TrainingConfig& config) {
  return config.zero_stage == 3 && config.zero_quantized_weights && !is_mics(config);
}
/// ZeRO++'s reductions of quantised gradients, likewise: only where there are several nodes.
[[nodiscard]] constexpr bool quantizes_gradients(const TrainingConfig& config) {
  return config.zero_stage == 3 && config.zero_quantized_gradients && !is_mics(config);
}

/// DeepSpeed's BF16_Optimizer, which adds up all gradients in fp32 and reduces them at once.
[[nodiscard]] constexpr bool is_bf16_optimizer(const TrainingConfig& config) {
  return config.zero_stage <= 1 && config.precision == Precision::bf16 &&
         config.fp32_gradient_accumulation && !is_optimizer_offloaded(config);
}
/// … each gradient as soon as it is there, and then drops it.
[[nodiscard]] constexpr bool frees_added_gradients(const TrainingConfig& config) {
  return is_bf16_optimizer(config) && config.immediate_grad_update &&
         config.switches.immediate_update_frees_gradients;
}
/// It partitions its states whatever the stage is: a step at stage 0 is that of stage 1.
[[nodiscard]] inline TrainingConfig as_partitioned(TrainingConfig config) {
  if (config.zero_stage == 0 && is_bf16_optimizer(config)) {
    config.zero_stage = 1;
    config.offload_optimizer = OffloadDevice::none;
  }
  return config;
}

/// Tells whether a pass over all gradients ends the step: for their norm, or for numbers that are
/// none.
[[nodiscard]] constexpr bool examines_gradients(const TrainingConfig& config) {
  if (config.gradient_clipping > 0 || config.precision == Precision::fp16) return true;
  if (config.zero_stage == 0) return false;
  // Stage 3 has no way without it.
  return config.zero_stage == 3 || config.computes_gradient_norm ||
         (config.precision == Precision::bf16 && config.checks_overflow);
}

/// Members that earlier releases do not know: what is written has them where they are not the
/// default, so that it stays as it was where they are.
template <class Config, class Visitor>
void for_each_later_member(Config& config, Visitor&& visit) {
  visit("computes_gradient_norm", config.computes_gradient_norm);
  visit("checks_overflow", config.checks_overflow);
  visit("aligns_parameters", config.aligns_parameters);
  visit("ranks_per_batch", config.ranks_per_batch);
  for_each_switch(config.switches, visit);
}

/// The members that are always written.
template <class Config, class Visitor>
void for_each_written_member(Config& config, Visitor&& visit) {
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
  visit("fp32_gradient_accumulation", config.fp32_gradient_accumulation);
  visit("immediate_grad_update", config.immediate_grad_update);
  visit("low_precision_master", config.low_precision_master);
  visit("low_precision_moments", config.low_precision_moments);
  visit("recompute", config.recompute);
  visit("cpu_checkpointing", config.cpu_checkpointing);
  visit("synchronize_checkpoint_boundary", config.synchronize_checkpoint_boundary);
  visit("reduce_bucket_size", config.reduce_bucket_size);
  visit("overlap_comm", config.overlap_comm);
  visit("reduce_scatter", config.reduce_scatter);
  visit("contiguous_gradients", config.contiguous_gradients);
  visit("use_multi_rank_bucket_allreduce", config.use_multi_rank_bucket_allreduce);
  visit("round_robin_gradients", config.round_robin_gradients);
  visit("communication_data_type", config.communication_data_type);
  visit("sums_gradients", config.sums_gradients);
  visit("offload_optimizer", config.offload_optimizer);
  visit("offload_ratio", config.offload_ratio);
  visit("offload_param", config.offload_param);
  visit("nvme_path", config.disk.folder);
  visit("optimizer_buffer_count", config.disk.optimizer_buffers);
  visit("pipeline_read", config.disk.pipeline_read);
  visit("pipeline_write", config.disk.pipeline_write);
  visit("parameter_buffer_count", config.disk.parameter_buffers);
  visit("parameter_buffer_size", config.disk.parameter_buffer_size);
  visit("max_in_cpu", config.disk.parameters_in_memory);
  visit("aio_block_size", config.disk.block_bytes);
  visit("aio_queue_depth", config.disk.queue_depth);
  visit("aio_intra_op_parallelism", config.disk.threads);
  visit("sub_group_size", config.sub_group_size);
  visit("stage3_prefetch_bucket_size", config.stage3_prefetch_bucket_size);
  visit("stage3_param_persistence_threshold", config.stage3_param_persistence_threshold);
  visit("stage3_model_persistence_threshold", config.stage3_model_persistence_threshold);
  visit("stage3_max_live_parameters", config.stage3_max_live_parameters);
  visit("stage3_max_reuse_distance", config.stage3_max_reuse_distance);
  visit("stage3_module_granularity_threshold", config.stage3_module_granularity_threshold);
  visit("leaf_module_classes", config.leaf_modules.classes);
  visit("leaf_module_names", config.leaf_modules.names);
  visit("leaf_module_name_suffixes", config.leaf_modules.name_suffixes);
  visit("memory_efficient_linear", config.memory_efficient_linear);
  visit("stage3_allgather_sequential", config.stage3_allgather_sequential);
  visit("stage3_use_all_reduce_for_fetch_params", config.stage3_use_all_reduce_for_fetch_params);
  visit("zero_hpz_partition_size", config.zero_hpz_partition_size);
  visit("mics_shard_size", config.mics_shard_size);
  visit("mics_hierarchical_params_gather", config.mics_hierarchical_params_gather);
  visit("ranks_per_node", config.ranks_per_node);
  visit("zero_quantized_weights", config.zero_quantized_weights);
  visit("zero_quantized_gradients", config.zero_quantized_gradients);
  visit("gradient_clipping", config.gradient_clipping);
  visit("optimizer", config.optimizer.kind);
  visit("learning_rate", config.optimizer.learning_rate);
  visit("beta1", config.optimizer.beta1);
  visit("beta2", config.optimizer.beta2);
  visit("epsilon", config.optimizer.epsilon);
  visit("weight_decay", config.optimizer.weight_decay);
  visit("momentum", config.optimizer.momentum);
  visit("dampening", config.optimizer.dampening);
  visit("nesterov", config.optimizer.nesterov);
  visit("learning_rate_decay", config.optimizer.learning_rate_decay);
  visit("initial_accumulator", config.optimizer.initial_accumulator);
  visit("torch_adam", config.optimizer.torch_adam);
}

/// A TrainingConfig's members by name, once for everything that writes or reads all of them.
/// Visitor: (const char* name, member&). Config: TrainingConfig, const or not.
template <class Config, class Visitor>
void for_each_member(Config& config, Visitor&& visit) {
  for_each_written_member(config, visit);
  for_each_later_member(config, visit);
}

/// For tables of configurations.
struct TrainingConfigHash {
  std::size_t operator()(const TrainingConfig& config) const {
    std::size_t hash = 0;
    for_each_member(config, [&](const char*, const auto& member) { mix_hash(hash, member); });
    return hash;
  }
};

/// All members one behind the other: equal for equal configurations alone. Within a process.
inline std::string bytes_of(const TrainingConfig& config) {
  std::string bytes;
  const auto add = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for_each_member(config, [&](const char*, const auto& member) {
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::string>) {
      add(member.size());
      bytes += member;
    } else {
      static_assert(std::is_arithmetic_v<std::decay_t<decltype(member)>> ||
                    std::is_enum_v<std::decay_t<decltype(member)>>);
      add(member);
    }
  });
  return bytes;
}

// Their names here are their texts.
[[nodiscard]] const EnumTexts& texts_of(Precision);
[[nodiscard]] const EnumTexts& texts_of(CommunicationType);
[[nodiscard]] const EnumTexts& texts_of(OptimizerKind);
[[nodiscard]] const EnumTexts& texts_of(OffloadDevice);
[[nodiscard]] const EnumTexts& texts_of(Recompute);

}  // namespace dstune
