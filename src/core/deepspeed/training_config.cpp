/// The configuration of a step, decided from the settings of a config.

#include "deepspeed/config_rules.hpp"

namespace dstune {

namespace {

OptimizerKind optimizer_kind(const Settings& settings) {
  const std::string type = settings.word("/optimizer/type");
  // DeepSpeed makes AdamW of Adam too, unless adam_w_mode says otherwise.
  if (type == "adam" && settings.is_on("/optimizer/params/adam_w_mode"))
    return OptimizerKind::adamw;
  return from_text<OptimizerKind>(type).value_or(OptimizerConfig().kind);
}

OptimizerConfig optimizer_config(const Settings& settings, OptimizerConfig optimizer) {
  optimizer.kind = optimizer_kind(settings);
  // PyTorch's AdamW decays by default, DeepSpeed's does not.
  if (optimizer.kind == OptimizerKind::adamw && optimizer.torch_adam &&
      !settings.is_given("/optimizer/params/weight_decay"))
    optimizer.weight_decay = 0.01;
  if (optimizer.kind == OptimizerKind::adagrad) {
    if (!settings.is_given("/optimizer/params/lr")) optimizer.learning_rate = 0.01;
    if (!settings.is_given("/optimizer/params/eps")) optimizer.epsilon = 1e-10;
  }
  return optimizer;
}

/// Gradients of 16 bits are added up in fp32.
bool sums_in_fp32(const TrainingConfig& config, const Settings& settings) {
  const bool is_given = settings.is_given("/data_types/grad_accum_dtype");
  const bool asked = is_given && element_type(settings, "/data_types/grad_accum_dtype") == "fp32";
  switch (config.zero_stage) {
    case 0:  // only BF16_Optimizer does
      return config.precision == Precision::bf16 &&
             (asked || (!is_given && config.switches.stage_0_partitions_bf16));
    case 2:  // 16-bit master weights beside such sums are not built
      return asked && config.switches.fp32_sums_at_stage_2 && !config.low_precision_master;
    default:
      return asked;
  }
}

/// Types are set where they say something.
void add_types_of_states(TrainingConfig& config, const Settings& settings) {
  const bool is_bf16 = config.precision == Precision::bf16;
  if (config.precision == Precision::fp32) return;
  config.low_precision_master =
      config.zero_stage > 0 && settings.is_on(is_bf16 ? "/bf16/bf16_master_weights_and_grads"
                                                      : "/fp16/fp16_master_weights_and_grads");
  config.fp32_gradient_accumulation = sums_in_fp32(config, settings);
  config.immediate_grad_update =
      is_bf16_optimizer(config) && settings.is_on("/bf16/immediate_grad_update");
  // DeepSpeed's Adam for the host takes the master copy's type for the moments where it is told to.
  const bool asked = is_optimizer_offloaded(config) &&
                     settings.is_given("/optimizer/params/fp32_optimizer_states") &&
                     !settings.is_on("/optimizer/params/fp32_optimizer_states");
  config.low_precision_moments =
      config.low_precision_master &&
      ((is_bf16 && settings.is_on("/bf16/bf16_optimizer_states")) || asked);
}

void leave_out_unused(DiskUse& disk, const TrainingConfig& config) {
  const DiskUse usual;
  if (!uses_disk(config)) disk = usual;
  if (!is_optimizer_on_disk(config)) {
    disk.optimizer_buffers = usual.optimizer_buffers;
    disk.pipeline_read = disk.pipeline_write = false;
  }
  if (!are_parameters_on_disk(config)) {
    disk.parameter_buffers = usual.parameter_buffers;
    disk.parameter_buffer_size = usual.parameter_buffer_size;
    disk.parameters_in_memory = usual.parameters_in_memory;
  }
}

}  // namespace

TrainingConfig training_config(const Settings& settings) {
  const KnobTable& table = settings.table();
  TrainingConfig config = table.usual();
  config.switches = switches_of(table.release());
  for (const std::size_t row : table.acting())
    if (settings.is_given(row)) table.knobs()[row].apply(config, settings.value(row));
  if (!settings.is_given("/zero_optimization/overlap_comm"))
    config.overlap_comm = config.zero_stage == 3;
  // Below stage 3 DeepSpeed takes every device but "none" for the host.
  if (config.offload_optimizer == OffloadDevice::nvme && config.zero_stage < 3)
    config.offload_optimizer = OffloadDevice::cpu;
  // DeepSpeed's stages 1 and 2 need contiguous gradients for offloading and turn them on.
  if (config.offload_optimizer != OffloadDevice::none && config.zero_stage < 3)
    config.contiguous_gradients = true;
  // Values without a say in the step are left out, so that configurations are equal where steps
  // are.
  if (config.offload_optimizer == OffloadDevice::none) config.offload_ratio = 1;
  leave_out_unused(config.disk, config);
  if (is_mics(config)) {
    // DeepSpeed hands none of these on.
    config.stage3_allgather_sequential = config.stage3_use_all_reduce_for_fetch_params = false;
    config.stage3_module_granularity_threshold = 0;
    config.zero_quantized_weights = config.zero_quantized_gradients = false;
    config.offload_ratio = 1;
  } else {
    config.mics_hierarchical_params_gather = false;
  }
  const double fixed = config.loss_scale.fixed;
  if (config.precision != Precision::fp16 || fixed > 0) config.loss_scale = {};
  if (config.precision == Precision::fp16) config.loss_scale.fixed = fixed;
  add_types_of_states(config, settings);
  if (config.computes_gradient_norm || config.precision != Precision::bf16)
    config.checks_overflow = true;
  config.optimizer = optimizer_config(settings, config.optimizer);
  return config;
}

}  // namespace dstune
