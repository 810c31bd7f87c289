/// Rows of a step beside zero_optimization: batches, precision, optimizer and schedule.

#include <array>

#include <fmt/format.h>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

using Config = TrainingConfig;

/// More samples than any group takes.
constexpr double largest_batch_size = 1 << 24;

/// What is absent follows from the others and from the group: whoever knows it decides.
Key batch_size(std::string_view pointer, std::string_view help) {
  return Column{&Key::largest_here}(largest_batch_size,
                                    integer(pointer, "null", 1, measured, help));
}

void set_reduction(Config& config, const KnobValue& value) {
  config.sums_gradients = std::get<std::string>(value) == "sum";
}

void set_communication_type(Config& config, const KnobValue& value) {
  using enum CommunicationType;
  for (const CommunicationType type : {fp32, fp16, bf16})
    if (std::get<std::string>(value) == to_text(type)) config.communication_data_type = type;
}

template <Precision precision>
void set_precision(Config& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.precision = precision;
}

/// The words of DeepSpeed for element types.
constexpr std::string_view element_types =
    "fp32|fp16|bf16|float32|float16|bfloat16|float|half|torch.float32|torch.float16|"
    "torch.bfloat16|int8|torch.int8";

std::vector<Knob> engine_rows() {
  return {
      // Read by whoever knows the group: they depend on each other and on its size.
      batch_size("/train_batch_size", "samples of an optimizer step, all ranks"),
      given_candidates(batch_size("/train_micro_batch_size_per_gpu", "samples of a micro-step")),
      batch_size("/gradient_accumulation_steps", "micro-steps of a step"),

      not_null(from(
          0, sets<&Config::gradient_clipping>(
                 "/gradient_clipping", "largest global norm of the gradient; 0: no clipping"))),
      at(stages_0_1_2,
         acting(not_null(not_auto(in_any_case(text("/gradient_allreduce_op", "\"mean\"", "mean|sum",
                                                   measured, "mean or sum over ranks")))),
                set_reduction)),
      flag("/prescale_gradients", "false", inert,
           "divide before reducing: rounding only, sums are in fp32 here"),
      not_null(number("/gradient_predivide_factor", "1.0", -unbounded, unbounded, inert,
                      "divide by so much before reducing: rounding only")),
      integer("/allgather_size", "500000000", 0, inert,
              "allgather_bucket_size beside zero_optimization true"),
      acting(not_auto(in_any_case(text("/communication_data_type", "null", "fp32|fp16|bf16",
                                       measured, "type in which gradients are reduced"))),
             set_communication_type),
      not_auto(
          in_any_case(text("/seq_parallel_communication_data_type", "\"fp32\"", "fp32|fp16|bf16",
                           inert, "type of reductions over sequence-parallel ranks"))),
      flag("/graph_harvesting", "false", not_built, "CUDA graphs of the update"),
      flag("/sparse_gradients", "false", refused, "sparse gradients of embeddings"),
      flag("/managed_gradient_accumulation", "true", refused,
           "DeepSpeed finds the accumulation boundary"),
      flag("/disable_allgather", "false", inert, "legacy"),
      flag("/zero_allow_untested_optimizer", "false", inert, "allow other optimizers with ZeRO"),
      flag("/zero_force_ds_cpu_optimizer", "true", inert, "insist on DeepSpeed's CPU optimizer"),

      section("/activation_checkpointing", measured,
              "for trainings that call deepspeed.checkpointing, with activation_recompute block"),
      flag("/activation_checkpointing/partition_activations", "false", inert,
           "split kept activations over model-parallel ranks: there is one"),
      sets<&Config::cpu_checkpointing>("/activation_checkpointing/cpu_checkpointing",
                                       "keep activations in host memory"),
      flag("/activation_checkpointing/contiguous_memory_optimization", "false", inert,
           "keep partitioned activations in one buffer; memory is planned here"),
      integer("/activation_checkpointing/number_checkpoints", "null", 1, inert,
              "activations in that buffer"),
      sets<&Config::synchronize_checkpoint_boundary>(
          "/activation_checkpointing/synchronize_checkpoint_boundary",
          "wait for the device at each"),
      flag("/activation_checkpointing/profile", "false", inert, "logging"),

      at(stage_3,
         optional(section("/aio", measured, "asynchronous disk access, for offload to NVMe"))),
      at(stage_3, from(1, sets<&Config::disk, &DiskUse::block_bytes>(
                              "/aio/block_size",
                              "bytes of a request; smaller tensors stay in memory, as do those "
                              "below 1 MiB"))),
      at(stage_3, from(1, sets<&Config::disk, &DiskUse::queue_depth>("/aio/queue_depth",
                                                                     "requests in flight"))),
      at(stage_3,
         from(1, sets<&Config::disk, &DiskUse::threads>("/aio/intra_op_parallelism", "threads"))),
      at(stage_3, flag("/aio/single_submit", "false", not_built, "submit requests one by one")),
      at(stage_3, flag("/aio/overlap_events", "true", not_built, "submit and wait at once")),
      at(stage_3, flag("/aio/use_gds", "false", not_built, "GPUDirect Storage")),
  };
}

std::string_view default_betas() {
  static const std::string betas =
      fmt::format("[{}, {}]", default_of<Config, &Config::optimizer, &OptimizerConfig::beta1>(),
                  default_of<Config, &Config::optimizer, &OptimizerConfig::beta2>());
  return betas;
}

std::vector<Knob> optimizer_rows() {
  return {
      section("/optimizer", measured, "the optimizer and its parameters"),
      // The kind follows from type and adam_w_mode together.
      not_null(not_auto(text("/optimizer/type", "\"AdamW\"", "", measured,
                             "Adam, AdamW, Lion, Adagrad in any case, or SGD"))),
      flag("/optimizer/legacy_fusion", "false", inert, "fuse the optimizer with the fp16 wrapper"),
      optional(closed(section("/optimizer/params", measured, "arguments of the optimizer"))),
      not_null(from(0, sets<&Config::optimizer, &OptimizerConfig::learning_rate>(
                           "/optimizer/params/lr", "learning rate; Adagrad 0.01 where unset"))),
      not_null(
          list("/optimizer/params/betas", default_betas(), measured, "decay of the two moments")),
      not_null(
          not_auto(up_to(1, from(0, sets<&Config::optimizer, &OptimizerConfig::beta1>(
                                        "/optimizer/params/betas/0", "of the first, below 1"))))),
      not_null(
          not_auto(up_to(1, from(0, sets<&Config::optimizer, &OptimizerConfig::beta2>(
                                        "/optimizer/params/betas/1", "of the second, below 1"))))),
      not_null(from(0, sets<&Config::optimizer, &OptimizerConfig::epsilon>(
                           "/optimizer/params/eps",
                           "Adam, Adagrad: added to the root; Adagrad 1e-10 where unset"))),
      not_null(from(0, sets<&Config::optimizer, &OptimizerConfig::weight_decay>(
                           "/optimizer/params/weight_decay",
                           "weight decay; with torch_adam and AdamW 0.01 where unset"))),
      flag("/optimizer/params/adam_w_mode", "true", measured,
           "decoupled weight decay, also for type Adam"),
      sets<&Config::optimizer, &OptimizerConfig::torch_adam>("/optimizer/params/torch_adam",
                                                             "PyTorch's own implementation"),
      not_null(from(0, sets<&Config::optimizer, &OptimizerConfig::momentum>(
                           "/optimizer/params/momentum",
                           "SGD: decay of the sum of gradients; 0 keeps none"))),
      not_null(sets<&Config::optimizer, &OptimizerConfig::dampening>(
          "/optimizer/params/dampening", "SGD: 1 minus the gradient's share in that sum")),
      not_null(sets<&Config::optimizer, &OptimizerConfig::nesterov>("/optimizer/params/nesterov",
                                                                    "SGD: Nesterov momentum")),
      not_null(from(0, sets<&Config::optimizer, &OptimizerConfig::learning_rate_decay>(
                           "/optimizer/params/lr_decay",
                           "Adagrad, not offloaded: fall of the learning rate"))),
      not_null(from(0, sets<&Config::optimizer, &OptimizerConfig::initial_accumulator>(
                           "/optimizer/params/initial_accumulator_value",
                           "Adagrad, not offloaded: first sum of squares"))),
      flag("/optimizer/params/bias_correction", "true", refused, "correct the moments' start"),
      flag("/optimizer/params/amsgrad", "false", refused, "the AMSGrad variant"),
      flag("/optimizer/params/maximize", "false", refused, "ascend instead of descend"),
      flag("/optimizer/params/fp32_optimizer_states", "true", measured,
           "of the optimizer on the host; false takes the master weights' type"),
      flag("/optimizer/params/set_grad_none", "true", inert, "free gradients instead of zeroing"),
      flag("/optimizer/params/foreach", "null", inert, "PyTorch: loops over lists"),
      flag("/optimizer/params/fused", "null", inert, "PyTorch: one kernel"),
      flag("/optimizer/params/capturable", "false", inert, "PyTorch: inside CUDA graphs"),
      instead("write false: DeepSpeed updates parameters in place",
              not_null(flag("/optimizer/params/differentiable", "false", refused,
                            "PyTorch: gradients of the update"))),
      instead("write gradient_clipping at the top level instead",
              not_null(not_auto(number("/optimizer/params/max_grad_norm", "null", 0, unbounded,
                                       refused, "refused by DeepSpeed")))),
  };
}

// A schedule changes the learning rate, not the time or the memory of a step.
constexpr std::array scheduler_rows = {
    section("/scheduler", inert, "the learning rate's course"),
    text("/scheduler/type", "null",
         "LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR|LRScheduler|LambdaLR|"
         "MultiplicativeLR|StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|SequentialLR|"
         "CosineAnnealingLR|ChainedScheduler|ReduceLROnPlateau|CyclicLR|"
         "CosineAnnealingWarmRestarts|OneCycleLR|PolynomialLR",
         inert, "DeepSpeed's or PyTorch's name of it"),
    closed_beside("type=LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR",
                  section("/scheduler/params", inert, "arguments of the scheduler")),
    not_null(number("/scheduler/params/lr_range_test_min_lr", "0.001", -unbounded, unbounded, inert,
                    "LRRangeTest")),
    not_null(whole(
        integer("/scheduler/params/lr_range_test_step_size", "2000", 1, inert, "LRRangeTest"))),
    not_null(number("/scheduler/params/lr_range_test_step_rate", "1.0", -unbounded, unbounded,
                    inert, "LRRangeTest")),
    flag("/scheduler/params/lr_range_test_staircase", "false", inert, "LRRangeTest"),
    not_null(number("/scheduler/params/cycle_min_lr", "null", -unbounded, unbounded, inert,
                    "OneCycle, needed")),
    not_null(number("/scheduler/params/cycle_max_lr", "null", -unbounded, unbounded, inert,
                    "OneCycle, needed")),
    not_null(integer("/scheduler/params/cycle_first_step_size", "2000", 1, inert, "OneCycle")),
    integer("/scheduler/params/cycle_second_step_size", "null", 0, inert,
            "OneCycle; as the first where unset"),
    not_null(
        integer("/scheduler/params/cycle_first_stair_count", "0", -unbounded, inert, "OneCycle")),
    integer("/scheduler/params/cycle_second_stair_count", "null", -unbounded, inert,
            "OneCycle; as the first where unset"),
    not_null(integer("/scheduler/params/decay_step_size", "0", -unbounded, inert, "OneCycle")),
    not_null(
        number("/scheduler/params/decay_lr_rate", "0", -unbounded, unbounded, inert, "OneCycle")),
    not_null(
        number("/scheduler/params/decay_mom_rate", "0", -unbounded, unbounded, inert, "OneCycle")),
    flag("/scheduler/params/cycle_momentum", "true", inert, "OneCycle"),
    not_null(
        number("/scheduler/params/cycle_min_mom", "0.8", -unbounded, unbounded, inert, "OneCycle")),
    not_null(
        number("/scheduler/params/cycle_max_mom", "0.9", -unbounded, unbounded, inert, "OneCycle")),
    not_null(number("/scheduler/params/warmup_min_lr", "0", -unbounded, unbounded, inert,
                    "WarmupLR, WarmupDecayLR")),
    number("/scheduler/params/warmup_max_lr", "null", -unbounded, unbounded, inert,
           "WarmupLR: the optimizer's rate where unset; WarmupDecayLR: 0.001"),
    not_null(whole(
        integer("/scheduler/params/warmup_num_steps", "1000", 1, inert, "the Warmup family"))),
    text("/scheduler/params/warmup_type", "\"log\"", "", inert,
         "the Warmup family: log or linear; log where it is neither"),
    not_null(integer("/scheduler/params/total_num_steps", "null", -unbounded, inert,
                     "WarmupDecayLR, WarmupCosineLR: needed")),
    not_null(number("/scheduler/params/warmup_min_ratio", "0", -unbounded, unbounded, inert,
                    "WarmupCosineLR")),
    not_null(number("/scheduler/params/cos_min_ratio", "0.0001", -unbounded, unbounded, inert,
                    "WarmupCosineLR")),
};

// Types of states follow from several keys together; training_config() reads them.
std::vector<Knob> precision_rows() {
  return {
      also("bfloat16", with_all_names(model(optional(section(
                           "/bf16", measured, "training in bfloat16 with fp32 master weights"))))),
      acting(flag("/bf16/enabled", "false", measured, "on or off"), set_precision<Precision::bf16>),
      at(stage_1,
         flag("/bf16/immediate_grad_update", "false", measured,
              "with grad_accum_dtype fp32: add up each gradient at once, not behind backward")),
      flag("/bf16/check_grad_overflow", "true", inert,
           "look for infinities in gradients, in a pass of its own: here their norm finds them"),
      flag("/bf16/bf16_master_weights_and_grads", "false", measured,
           "master weights in bfloat16: offloaded, or with bf16_optimizer_states"),
      flag("/bf16/bf16_optimizer_states", "false", measured, "moments in bfloat16, too"),

      model(section("/fp16", measured,
                    "training in half precision with a loss scale and fp32 master weights")),
      acting(flag("/fp16/enabled", "false", measured, "on or off"), set_precision<Precision::fp16>),
      flag("/fp16/auto_cast", "false", inert, "cast the model's inputs"),
      not_from_flag(up_to(
          std::numeric_limits<double>::max(),
          from(0, sets<&Config::loss_scale, &LossScale::fixed>("/fp16/loss_scale", "0: dynamic")))),
      sets<&Config::loss_scale, &LossScale::initial_power>("/fp16/initial_scale_power",
                                                           "first dynamic scale, power of two"),
      not_from_flag(sets<&Config::loss_scale, &LossScale::window>(
          "/fp16/loss_scale_window", "steps without overflow before the scale is raised")),
      // Stage 0 has a scaler of its own, without them.
      at(stages_1_2_3, sets<&Config::loss_scale, &LossScale::hysteresis>(
                           "/fp16/hysteresis", "overflows before the scale falls")),
      at(stages_1_2_3, sets<&Config::loss_scale, &LossScale::consecutive_hysteresis>(
                           "/fp16/consecutive_hysteresis", "count only overflows in a row")),
      not_from_flag(as_integer(sets<&Config::loss_scale, &LossScale::minimum>(
          "/fp16/min_loss_scale", "lowest dynamic scale"))),
      flag("/fp16/fp16_master_weights_and_grads", "false", measured,
           "master weights in fp16: offloaded"),

      needing("enabled", section("/amp", inert, "NVIDIA Apex mixed precision")),
      flag("/amp/enabled", "false", refused, "on or off"),
      section("/torch_autocast", inert, "PyTorch's automatic mixed precision"),
      flag("/torch_autocast/enabled", "false", refused, "on or off"),
      not_null(not_auto(
          text("/torch_autocast/dtype", "null", element_types, inert, "type of the casts"))),
      not_null(list("/torch_autocast/lower_precision_safe_modules", "null", inert,
                    "modules that are cast")),
      section("/data_types", measured, "types beside those of the mode"),
      at(stages_1_3, text("/data_types/grad_accum_dtype", "null", element_types, measured,
                          "sums of gradients: the mode's type, or fp32")),
      text("/data_types/param_dtype", "null", element_types, inert,
           "parameters; must equal the mode's"),
      text("/data_types/buffer_dtype", "null", element_types, inert, "the module's buffers"),
  };
}

}  // namespace

std::vector<Knob> training() {
  std::vector<Knob> all = engine_rows();
  const std::vector<Knob> scheduler(scheduler_rows.begin(), scheduler_rows.end());
  for (const std::vector<Knob>& part : {optimizer_rows(), scheduler, precision_rows()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace dstune::rows
