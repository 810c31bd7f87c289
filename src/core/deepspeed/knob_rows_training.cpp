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

/// A number of any size without an effect.
constexpr Key any_number(std::string_view pointer, std::string_view fallback,
                         std::string_view help) {
  return not_null(number(pointer, fallback, -unbounded, unbounded, inert, help));
}

/// An integer, though the member is a number.
Knob as_integer(Knob knob) {
  knob.type = KnobType::integer;
  knob.fallback = knob.fallback.substr(0, knob.fallback.find('.'));
  return knob;
}

void set_reduction(Config& config, const KnobValue& value) {
  config.sums_gradients = std::get<std::string>(value) == "sum";
}

/// The word that stands for the member's default.
std::string_view default_reduction() {
  return Config().sums_gradients ? R"("sum")" : R"("mean")";
}

void set_communication_type(Config& config, const KnobValue& value) {
  if (const auto type = from_text<CommunicationType>(std::get<std::string>(value)))
    config.communication_data_type = *type;
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

      was({v0_19_6, "0.0", {}},
          not_null(from(0, sets<&Config::gradient_clipping>(
                               "/gradient_clipping",
                               "largest global norm of the gradient; 0: no clipping")))),
      at(stages_0_1_2, since(v0_19_6, acting(not_null(not_auto(in_any_case(text(
                                                 "/gradient_allreduce_op", default_reduction(),
                                                 "mean|sum", measured, "mean or sum over ranks")))),
                                             set_reduction))),
      flag("/prescale_gradients", "false", inert,
           "divide before reducing: rounding only, sums are in fp32 here"),
      any_number("/gradient_predivide_factor", "1.0",
                 "divide by so much before reducing: rounding only"),
      integer("/allgather_size", "500000000", 0, inert,
              "allgather_bucket_size beside zero_optimization true"),
      acting(not_auto(in_any_case(text("/communication_data_type", "null", "fp32|fp16|bf16",
                                       measured, "type in which gradients are reduced"))),
             set_communication_type),
      since(v0_16_9, not_auto(in_any_case(
                         text("/seq_parallel_communication_data_type", "\"fp32\"", "fp32|fp16|bf16",
                              inert, "type of reductions over sequence-parallel ranks")))),
      until(v0_19_8, flag("/graph_harvesting", "false", not_built, "CUDA graphs of the update")),
      until(v0_19_8, flag("/sparse_gradients", "false", refused, "sparse gradients of embeddings")),
      since(v0_19_6, flag("/managed_gradient_accumulation", "true", refused,
                          "DeepSpeed finds the accumulation boundary")),
      since(v0_19_8, flag("/disable_python_gc", "false", not_built,
                          "no garbage collection of Python while training")),
      flag("/disable_allgather", "false", inert, "legacy"),
      flag("/zero_allow_untested_optimizer", "false", inert, "allow other optimizers with ZeRO"),
      flag("/zero_force_ds_cpu_optimizer", "true", inert, "insist on DeepSpeed's CPU optimizer"),

      section("/activation_checkpointing", measured,
              "for trainings that call deepspeed.checkpointing, with activation_recompute block"),
      flag("partition_activations", "false", inert,
           "split kept activations over model-parallel ranks: there is one"),
      sets<&Config::cpu_checkpointing>("cpu_checkpointing", "keep activations in host memory"),
      flag("contiguous_memory_optimization", "false", inert,
           "keep partitioned activations in one buffer; memory is planned here"),
      integer("number_checkpoints", "null", 1, inert, "activations in that buffer"),
      sets<&Config::synchronize_checkpoint_boundary>("synchronize_checkpoint_boundary",
                                                     "wait for the device at each"),
      flag("profile", "false", inert, "logging"),

      at(stage_3,
         optional(section("/aio", measured, "asynchronous disk access, for offload to NVMe"))),
      from(1, sets_disk<&DiskUse::block_bytes>(
                  "block_size",
                  "bytes of a request; smaller tensors stay in memory, as do those below "
                  "1 MiB")),
      from(1, sets_disk<&DiskUse::queue_depth>("queue_depth", "requests in flight")),
      until(v0_16_9, from(1, sets_disk<&DiskUse::threads>("thread_count", "threads"))),
      since(v0_16_9, from(1, sets_disk<&DiskUse::threads>("intra_op_parallelism", "threads"))),
      at(stage_3, flag("single_submit", "false", not_built, "submit requests one by one")),
      at(stage_3, flag("overlap_events", "true", not_built, "submit and wait at once")),
      since(v0_15_4, at(stage_3, flag("use_gds", "false", not_built, "GPUDirect Storage"))),
  };
}

std::string_view default_betas() {
  static const std::string betas =
      fmt::format("[{}, {}]", default_of<Config, &Config::optimizer, &OptimizerConfig::beta1>(),
                  default_of<Config, &Config::optimizer, &OptimizerConfig::beta2>());
  return betas;
}

/// The member's default as DeepSpeed spells it.
std::string_view default_optimizer_type() {
  switch (OptimizerConfig().kind) {
    case OptimizerKind::adam:
      return R"("Adam")";
    case OptimizerKind::adamw:
      return R"("AdamW")";
    case OptimizerKind::lion:
      return R"("Lion")";
    case OptimizerKind::sgd:
      return R"("SGD")";
    case OptimizerKind::adagrad:
      return R"("Adagrad")";
  }
  throw LogicError("an optimizer without a name");
}

/// A number from 0 on of the optimizer.
template <auto member>
Knob amount(std::string_view pointer, std::string_view help) {
  return not_null(from(0, sets<&Config::optimizer, member>(pointer, help)));
}

std::vector<Knob> optimizer_rows() {
  return {
      section("/optimizer", measured, "the optimizer and its parameters"),
      // The kind follows from type and adam_w_mode together.
      not_null(not_auto(text("type", default_optimizer_type(), "", measured,
                             "Adam, AdamW, Lion, Adagrad in any case, or SGD"))),
      flag("legacy_fusion", "false", inert, "fuse the optimizer with the fp16 wrapper"),
      optional(closed(section("/optimizer/params", measured, "arguments of the optimizer"))),
      amount<&OptimizerConfig::learning_rate>("lr", "learning rate; Adagrad 0.01 where unset"),
      not_null(list("betas", default_betas(), measured, "decay of the two moments")),
      not_auto(up_to(1, amount<&OptimizerConfig::beta1>("betas/0", "of the first, below 1"))),
      not_auto(up_to(1, amount<&OptimizerConfig::beta2>("betas/1", "of the second, below 1"))),
      amount<&OptimizerConfig::epsilon>(
          "eps", "Adam, Adagrad: added to the root; Adagrad 1e-10 where unset"),
      amount<&OptimizerConfig::weight_decay>(
          "weight_decay", "weight decay; with torch_adam and AdamW 0.01 where unset"),
      flag("adam_w_mode", "true", measured, "decoupled weight decay, also for type Adam"),
      sets<&Config::optimizer, &OptimizerConfig::torch_adam>("torch_adam",
                                                             "PyTorch's own implementation"),
      amount<&OptimizerConfig::momentum>("momentum",
                                         "SGD: decay of the sum of gradients; 0 keeps none"),
      not_null(sets<&Config::optimizer, &OptimizerConfig::dampening>(
          "dampening", "SGD: 1 minus the gradient's share in that sum")),
      not_null(sets<&Config::optimizer, &OptimizerConfig::nesterov>("nesterov",
                                                                    "SGD: Nesterov momentum")),
      amount<&OptimizerConfig::learning_rate_decay>(
          "lr_decay", "Adagrad, not offloaded: fall of the learning rate"),
      amount<&OptimizerConfig::initial_accumulator>("initial_accumulator_value",
                                                    "Adagrad, not offloaded: first sum of squares"),
      flag("bias_correction", "true", refused, "correct the moments' start"),
      flag("amsgrad", "false", refused, "the AMSGrad variant"),
      flag("maximize", "false", refused, "ascend instead of descend"),
      flag("fp32_optimizer_states", "true", measured,
           "of the optimizer on the host; false takes the master weights' type"),
      flag("set_grad_none", "true", inert, "free gradients instead of zeroing"),
      flag("foreach", "null", inert, "PyTorch: loops over lists"),
      flag("fused", "null", inert, "PyTorch: one kernel"),
      flag("capturable", "false", inert, "PyTorch: inside CUDA graphs"),
      instead(
          "write false: DeepSpeed updates parameters in place",
          not_null(flag("differentiable", "false", refused, "PyTorch: gradients of the update"))),
      instead("write gradient_clipping at the top level instead",
              not_null(not_auto(
                  number("max_grad_norm", "null", 0, unbounded, refused, "refused by DeepSpeed")))),
  };
}

// A schedule changes the learning rate, not the time or the memory of a step.
constexpr std::array scheduler_rows = {
    section("/scheduler", inert, "the learning rate's course"),
    text("type", "null",
         "LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR|LRScheduler|LambdaLR|"
         "MultiplicativeLR|StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|SequentialLR|"
         "CosineAnnealingLR|ChainedScheduler|ReduceLROnPlateau|CyclicLR|"
         "CosineAnnealingWarmRestarts|OneCycleLR|PolynomialLR",
         inert, "DeepSpeed's or PyTorch's name of it"),
    closed_beside("type=LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR",
                  section("/scheduler/params", inert, "arguments of the scheduler")),
    any_number("lr_range_test_min_lr", "0.001", "LRRangeTest"),
    not_null(whole(integer("lr_range_test_step_size", "2000", 1, inert, "LRRangeTest"))),
    any_number("lr_range_test_step_rate", "1.0", "LRRangeTest"),
    flag("lr_range_test_staircase", "false", inert, "LRRangeTest"),
    any_number("cycle_min_lr", "null", "OneCycle, needed"),
    any_number("cycle_max_lr", "null", "OneCycle, needed"),
    not_null(integer("cycle_first_step_size", "2000", 1, inert, "OneCycle")),
    integer("cycle_second_step_size", "null", 0, inert, "OneCycle; as the first where unset"),
    not_null(any_integer("cycle_first_stair_count", "0", "OneCycle")),
    any_integer("cycle_second_stair_count", "null", "OneCycle; as the first where unset"),
    not_null(any_integer("decay_step_size", "0", "OneCycle")),
    any_number("decay_lr_rate", "0", "OneCycle"),
    any_number("decay_mom_rate", "0", "OneCycle"),
    flag("cycle_momentum", "true", inert, "OneCycle"),
    any_number("cycle_min_mom", "0.8", "OneCycle"),
    any_number("cycle_max_mom", "0.9", "OneCycle"),
    any_number("warmup_min_lr", "0", "WarmupLR, WarmupDecayLR"),
    until(v0_18_9, any_number("warmup_max_lr", "0.001", "WarmupLR, WarmupDecayLR")),
    since(v0_18_9, number("warmup_max_lr", "null", -unbounded, unbounded, inert,
                          "WarmupLR: the optimizer's rate where unset; WarmupDecayLR: 0.001")),
    until(v0_19_6, not_null(integer("warmup_num_steps", "1000", 1, inert, "the Warmup family"))),
    since(v0_19_6,
          not_null(whole(integer("warmup_num_steps", "1000", 1, inert, "the Warmup family")))),
    text("warmup_type", "\"log\"", "", inert,
         "the Warmup family: log or linear; log where it is neither"),
    not_null(any_integer("total_num_steps", "null", "WarmupDecayLR, WarmupCosineLR: needed")),
    any_number("warmup_min_ratio", "0", "WarmupCosineLR"),
    any_number("cos_min_ratio", "0.0001", "WarmupCosineLR"),
};

// Types of states follow from several keys together; training_config() reads them.
std::vector<Knob> precision_rows() {
  constexpr std::string_view bf16_help = "training in bfloat16 with fp32 master weights";
  constexpr std::string_view sums_help = "sums of gradients: the mode's type, or fp32";
  constexpr std::string_view fp16_help =
      "training in half precision with a loss scale and fp32 master weights";
  return {
      until(v0_17_6, also("bfloat16", with_all_names(section("/bf16", measured, bf16_help)))),
      since(v0_17_6, also("bfloat16",
                          with_all_names(model(optional(section("/bf16", measured, bf16_help)))))),
      acting(flag("enabled", "false", measured, "on or off"), set_precision<Precision::bf16>),
      at(stage_1,
         was({v0_16_9, "false", {}},
             was({v0_17_6, "true", {}},
                 flag("immediate_grad_update", "false", measured,
                      "with grad_accum_dtype fp32: add up each gradient at once, not behind "
                      "backward")))),
      since(v0_17_6,
            at(stages_1_2, was({v0_19_6, "false", {}},
                               sets<&Config::checks_overflow>(
                                   "check_grad_overflow",
                                   "look for infinities in gradients, in a pass of its own: here "
                                   "their norm finds them, where it is taken")))),
      since(v0_18_9, flag("bf16_master_weights_and_grads", "false", measured,
                          "master weights in bfloat16: offloaded, or with bf16_optimizer_states")),
      since(v0_18_9, flag("bf16_optimizer_states", "false", measured, "moments in bfloat16, too")),

      until(v0_17_6, section("/fp16", measured, fp16_help)),
      since(v0_17_6, model(section("/fp16", measured, fp16_help))),
      acting(flag("enabled", "false", measured, "on or off"), set_precision<Precision::fp16>),
      flag("auto_cast", "false", inert, "cast the model's inputs"),
      not_from_flag(
          up_to(std::numeric_limits<double>::max(),
                from(0, sets<&Config::loss_scale, &LossScale::fixed>("loss_scale", "0: dynamic")))),
      sets<&Config::loss_scale, &LossScale::initial_power>("initial_scale_power",
                                                           "first dynamic scale, power of two"),
      not_from_flag(sets<&Config::loss_scale, &LossScale::window>(
          "loss_scale_window", "steps without overflow before the scale is raised")),
      // Stage 0 has a scaler of its own, without them.
      at(stages_1_2_3, sets<&Config::loss_scale, &LossScale::hysteresis>(
                           "hysteresis", "overflows before the scale falls")),
      at(stages_1_2_3, sets<&Config::loss_scale, &LossScale::consecutive_hysteresis>(
                           "consecutive_hysteresis", "count only overflows in a row")),
      not_from_flag(as_integer(sets<&Config::loss_scale, &LossScale::minimum>(
          "min_loss_scale", "lowest dynamic scale"))),
      flag("fp16_master_weights_and_grads", "false", measured, "master weights in fp16: offloaded"),

      until(v0_19_8, needing("enabled", section("/amp", inert, "NVIDIA Apex mixed precision"))),
      flag("enabled", "false", refused, "on or off"),
      since(v0_17_6, section("/torch_autocast", inert, "PyTorch's automatic mixed precision")),
      flag("enabled", "false", refused, "on or off"),
      not_null(not_auto(text("dtype", "null", element_types, inert, "type of the casts"))),
      not_null(list("lower_precision_safe_modules", "null", inert, "modules that are cast")),
      section("/data_types", measured, "types beside those of the mode"),
      until(v0_18_9,
            at(stages_0_1_3, text("grad_accum_dtype", "null", element_types, measured, sums_help))),
      since(v0_18_9, until(v0_19_8, at(stages_1_3, text("grad_accum_dtype", "null", element_types,
                                                        measured, sums_help)))),
      since(v0_19_8,
            at(stages_1_2_3, text("grad_accum_dtype", "null", element_types, measured, sums_help))),
      since(v0_19_6,
            text("param_dtype", "null", element_types, inert, "parameters; must equal the mode's")),
      since(v0_19_6, text("buffer_dtype", "null", element_types, inert, "the module's buffers")),
      since(v0_19_8, not_null(list_of_texts("keep_in_fp32_modules", "null", "", inert,
                                            "buffers that stay in fp32, by pattern; [] names none, "
                                            "\"auto\" those that the model names"))),
  };
}

}  // namespace

std::vector<Knob> training() {
  return joined(engine_rows(), optimizer_rows(), scheduler_rows, precision_rows());
}

}  // namespace dstune::rows
