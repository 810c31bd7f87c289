/// Rules of types of numbers and of all sections but zero_optimization.

#include "deepspeed/config_rules.hpp"

#include <string>

namespace dstune {
namespace {

constexpr Version v0_17_6{0, 17, 6}, v0_18_9{0, 18, 9}, v0_19_6{0, 19, 6};

bool has_dynamic_loss_scale(const Settings& settings) {
  return settings.is_on("/fp16/enabled") && settings.number("/fp16/loss_scale") == 0;
}

bool is_no_scale(const Settings& settings, Pointer key) {
  return has_dynamic_loss_scale(settings) && settings.number(key) <= 0;
}

bool differs_from_precision(const Settings& settings, Pointer pointer) {
  return settings.is_given(pointer) && element_type(settings, pointer) != precision_of(settings);
}

/// At stage 2 the key has no effect before 0.19.8.
bool asks_for_sums(const Settings& settings) {
  const auto row = settings.row_of("/data_types/grad_accum_dtype");
  return settings.zero_stage() > 0 && settings.is_given("/data_types/grad_accum_dtype") &&
         settings.table().knobs()[*row].acts_at(settings.zero_stage());
}

bool has_fp32_sums(const Settings& settings) {
  return asks_for_sums(settings) && precision_of(settings) != "fp32" &&
         element_type(settings, "/data_types/grad_accum_dtype") == "fp32";
}

/// Sums in fp32 in bf16, which it takes before 0.18.9.
bool is_bf16_optimizer_at_0(const Settings& settings) {
  return settings.table().release() < v0_18_9 && precision_of(settings) == "bf16" &&
         element_type(settings, "/data_types/grad_accum_dtype") == "fp32";
}

/// DeepSpeed's own Adam on the host.
bool has_cpu_adam(const Settings& settings) {
  return offloads_optimizer(settings) && has_adam(settings) &&
         !settings.is_on("/optimizer/params/torch_adam");
}

bool lacks_zero(const Settings& settings, Pointer pointer) {
  return settings.is_on(pointer) && settings.zero_stage() == 0;
}

bool lacks_bf16_states(const Settings& settings, Pointer) {
  if (!settings.is_on("/bf16/bf16_master_weights_and_grads")) return false;
  return settings.zero_stage() > 0 && !has_cpu_adam(settings) &&
         (offloads_optimizer(settings) || !settings.is_on("/bf16/bf16_optimizer_states"));
}

bool has_fp16_master_at_2_alone(const Settings& settings, Pointer key) {
  const bool is_read = settings.table().release() >= v0_17_6 || settings.is_on("/fp16/enabled");
  return settings.is_on(key) && is_read && settings.zero_stage() != 2;
}

constexpr ConfigRule rules_of_precision[] = {
    {"/fp16/enabled",
     [](const Settings& s, Pointer key) { return s.is_on(key) && s.is_on("/bf16/enabled"); },
     "fp16 and bf16 can not both be enabled: keep one of them"},
    {"/fp16/loss_scale_window",
     is_no_scale,
     "must be above 0 with a dynamic loss scale (loss_scale 0)",
     Weight::fails,
     {},
     v0_19_6},
    {"/fp16/loss_scale_window", is_no_scale,
     "must be above 0 with a dynamic loss scale (loss_scale 0)", Weight::refused, v0_19_6},
    {"/fp16/min_loss_scale", is_no_scale,
     "must be above 0 with a dynamic loss scale (loss_scale 0)", Weight::refused, v0_19_6},
    {"/fp16/initial_scale_power",
     [](const Settings& s, Pointer key) { return has_dynamic_loss_scale(s) && s.number(key) > 63; },
     "must be at most 63: DeepSpeed's first backward fails with a larger integer", Weight::fails},
    {"/data_types/param_dtype", differs_from_precision,
     "must be the type of the mode: enable it in fp16 or bf16, or remove the key", Weight::fails},
    {"/data_types/grad_accum_dtype",
     [](const Settings& s, Pointer key) {
       return s.zero_stage() == 0 && differs_from_precision(s, key) && !is_bf16_optimizer_at_0(s);
     },
     "DeepSpeed accumulates in the type of the mode at stage 0: remove the key", Weight::fails},
    {"/data_types/grad_accum_dtype",
     [](const Settings& s, Pointer key) {
       return s.zero_stage() == 0 && precision_of(s) == "bf16" && element_type(s, key) == "bf16";
     },
     "DeepSpeed accumulates in fp32 at stage 0 in bf16: remove the key",
     Weight::fails,
     {},
     v0_17_6},
    {"/data_types/grad_accum_dtype",
     [](const Settings& s, Pointer key) {
       return asks_for_sums(s) && differs_from_precision(s, key) && !has_fp32_sums(s);
     },
     "other types than fp32 and the mode's are not built in dstune-mpi yet: write fp32, "
     "or remove the key",
     Weight::unbuilt},
    {"/data_types/grad_accum_dtype",
     [](const Settings& s, Pointer) { return has_fp32_sums(s) && has_low_precision_master(s); },
     "fp32 with 16-bit master weights is not built in dstune-mpi yet: remove the key",
     Weight::unbuilt},
    {"/bf16/bf16_master_weights_and_grads", lacks_zero, "needs ZeRO stage 1, 2 or 3"},
    {"/bf16/bf16_master_weights_and_grads", lacks_bf16_states,
     "needs DeepSpeed's Adam, offloaded to the host; or without offload "
     "bf16_optimizer_states",
     Weight::fails},
    {"/bf16/bf16_master_weights_and_grads",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) && s.zero_stage() > 0 && precision_of(s) != "bf16";
     },
     "is not built in dstune-mpi yet where bf16 is not enabled: remove the key", Weight::unbuilt},
    {"/bf16/bf16_optimizer_states",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) &&
              (s.zero_stage() == 0 || !s.is_on("/bf16/bf16_master_weights_and_grads"));
     },
     "needs bf16_master_weights_and_grads, and ZeRO stage 1, 2 or 3"},
    {"/fp16/fp16_master_weights_and_grads",
     has_fp16_master_at_2_alone,
     "needs ZeRO stage 2",
     Weight::refused,
     {},
     v0_18_9},
    {"/fp16/fp16_master_weights_and_grads", lacks_zero, "needs ZeRO stage 1, 2 or 3",
     Weight::refused, v0_18_9},
    {"/fp16/fp16_master_weights_and_grads",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) && s.zero_stage() > 0 && !has_cpu_adam(s);
     },
     "needs DeepSpeed's Adam, offloaded to the host", Weight::fails},
    {"/fp16/fp16_master_weights_and_grads",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) && s.is_on("/bf16/bf16_master_weights_and_grads");
     },
     "and bf16_master_weights_and_grads exclude each other: keep one of them", Weight::fails},
    {"/fp16/fp16_master_weights_and_grads",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) && s.zero_stage() > 0 && precision_of(s) != "fp16";
     },
     "is not built in dstune-mpi yet where fp16 is not enabled: remove the key", Weight::unbuilt},
};

bool is_one(const Settings& settings, Pointer pointer) {
  return settings.is_given(pointer) && settings.number(pointer) == 1;
}

constexpr ConfigRule rules_of_sections[] = {
    {"/activation_checkpointing/contiguous_memory_optimization",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) && (!s.is_on("/activation_checkpointing/partition_activations") ||
                               !s.is_there("/activation_checkpointing/number_checkpoints"));
     },
     "needs partition_activations and number_checkpoints: add them or write false", Weight::fails},
    {"/steps_per_print",
     [](const Settings& s, Pointer key) { return s.is_given(key) && s.number(key) == 0; },
     "DeepSpeed divides by it: remove the key to print nothing", Weight::fails},
    {"/gradient_predivide_factor",
     [](const Settings& s, Pointer key) { return s.number(key) == 0; },
     "DeepSpeed divides by it: write 1.0", Weight::fails},
    {"/allgather_size",
     [](const Settings& s, Pointer key) { return std::get<std::int64_t>(s.value(key)) % 2 != 0; },
     "must be even: DeepSpeed refuses odd sizes", Weight::fails},
    {"/scheduler/type",
     [](const Settings& s, Pointer key) {
       const auto* const type = std::get_if<std::string>(&s.value(key));
       return type != nullptr && !is_deepspeed_scheduler(*type) &&
              (s.zero_stage() > 0 || precision_of(s) != "fp32");
     },
     "DeepSpeed drives PyTorch's schedulers at stage 0 in fp32 alone: take one of "
     "LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR",
     Weight::fails},
    {"/optimizer/type",
     [](const Settings& s, Pointer key) {
       return s.zero_stage() > 0 && s.word(key) == "sgd" &&
              !s.is_on("/zero_allow_untested_optimizer");
     },
     "DeepSpeed has not tested it with ZeRO: add \"zero_allow_untested_optimizer\": true, "
     "or take stage 0",
     Weight::fails},
    {"/optimizer/params/nesterov",
     [](const Settings& s, Pointer key) {
       return s.is_on(key) && (s.number("/optimizer/params/momentum") <= 0 ||
                               s.number("/optimizer/params/dampening") != 0);
     },
     "needs momentum above 0 and no dampening", Weight::fails},
    {"/optimizer/params/betas/0", is_one, "must be below 1: the mean would never move",
     Weight::fails},
    {"/optimizer/params/betas/1", is_one, "must be below 1: the mean would never move",
     Weight::fails},
};

}  // namespace

std::span<const ConfigRule> precision_rules() {
  return rules_of_precision;
}

std::span<const ConfigRule> section_rules() {
  return rules_of_sections;
}

bool has_low_precision_master(const Settings& settings) {
  return settings.is_on("/bf16/bf16_master_weights_and_grads") ||
         settings.is_on("/fp16/fp16_master_weights_and_grads");
}

}  // namespace dstune
