/// Rules of fp16, bf16 and the types of states.

#include <array>
#include <string>

#include "deepspeed/config_rules.hpp"

namespace dstune {
namespace {

bool has_dynamic_loss_scale(const Settings& settings) {
  return settings.is_on("/fp16/enabled") && settings.number("/fp16/loss_scale") == 0;
}

bool differs_from_precision(const Settings& settings, std::string_view pointer) {
  return settings.is_given(pointer) && element_type(settings, pointer) != precision_of(settings);
}

bool has_fp32_sums(const Settings& settings) {
  return settings.zero_stage() > 0 && settings.zero_stage() != 2 &&
         precision_of(settings) != "fp32" && settings.is_given("/data_types/grad_accum_dtype") &&
         element_type(settings, "/data_types/grad_accum_dtype") == "fp32";
}

/// DeepSpeed's own Adam on the host.
bool has_cpu_adam(const Settings& settings) {
  const std::string type = settings.word("/optimizer/type");
  return offloads_optimizer(settings) && (type == "adam" || type == "adamw") &&
         !settings.is_on("/optimizer/params/torch_adam");
}

bool lacks_zero(const Settings& settings, std::string_view pointer) {
  return settings.is_on(pointer) && settings.zero_stage() == 0;
}

bool lacks_bf16_states(const Settings& settings) {
  if (!settings.is_on("/bf16/bf16_master_weights_and_grads")) return false;
  return settings.zero_stage() > 0 && !has_cpu_adam(settings) &&
         (offloads_optimizer(settings) || !settings.is_on("/bf16/bf16_optimizer_states"));
}

bool has_two_names(const Settings& settings, std::string_view one, std::string_view other) {
  return settings.is_given(knob_table().find(one).value()) &&
         settings.is_given(knob_table().find(other).value());
}

constexpr std::array rules = {
    ConfigRule{
        "/fp16/enabled",
        [](const Settings& s) { return s.is_on("/fp16/enabled") && s.is_on("/bf16/enabled"); },
        "fp16 and bf16 can not both be enabled: keep one of them"},
    ConfigRule{"/bfloat16",
               [](const Settings& s) { return has_two_names(s, "/bf16", "/bfloat16"); },
               "bf16 and bfloat16 are names of the same section: keep one of them"},
    ConfigRule{"/fp16/loss_scale_window",
               [](const Settings& s) {
                 return has_dynamic_loss_scale(s) && s.number("/fp16/loss_scale_window") <= 0;
               },
               "must be above 0 with a dynamic loss scale (loss_scale 0)"},
    ConfigRule{"/fp16/min_loss_scale",
               [](const Settings& s) {
                 return has_dynamic_loss_scale(s) && s.number("/fp16/min_loss_scale") <= 0;
               },
               "must be above 0 with a dynamic loss scale (loss_scale 0)"},
    ConfigRule{"/fp16/initial_scale_power",
               [](const Settings& s) {
                 return has_dynamic_loss_scale(s) && s.number("/fp16/initial_scale_power") > 63;
               },
               "must be at most 63: DeepSpeed's first backward fails with a larger integer"},
    ConfigRule{
        "/fp16/auto_cast",
        [](const Settings& s) { return s.is_on("/fp16/auto_cast") && precision_of(s) != "fp16"; },
        "casts inputs of a model that is not in fp16: enable fp16 or write false"},
    ConfigRule{
        "/data_types/param_dtype",
        [](const Settings& s) { return differs_from_precision(s, "/data_types/param_dtype"); },
        "must be the type of the mode: enable it in fp16 or bf16, or remove the key"},
    ConfigRule{"/data_types/grad_accum_dtype",
               [](const Settings& s) {
                 return s.zero_stage() == 0 &&
                        differs_from_precision(s, "/data_types/grad_accum_dtype");
               },
               "DeepSpeed accumulates in the type of the mode at stage 0: remove the key"},
    ConfigRule{"/data_types/grad_accum_dtype",
               [](const Settings& s) {
                 return s.zero_stage() > 0 && s.zero_stage() != 2 &&
                        differs_from_precision(s, "/data_types/grad_accum_dtype") &&
                        !has_fp32_sums(s);
               },
               "other types than fp32 and the mode's are not built in dstune-mpi yet: write fp32, "
               "or remove the key",
               true},
    ConfigRule{"/data_types/grad_accum_dtype",
               [](const Settings& s) { return has_fp32_sums(s) && has_low_precision_master(s); },
               "fp32 with 16-bit master weights is not built in dstune-mpi yet: remove the key",
               true},
    ConfigRule{
        "/bf16/bf16_master_weights_and_grads",
        [](const Settings& s) { return lacks_zero(s, "/bf16/bf16_master_weights_and_grads"); },
        "needs ZeRO stage 1, 2 or 3"},
    ConfigRule{"/bf16/bf16_master_weights_and_grads", lacks_bf16_states,
               "needs DeepSpeed's Adam, offloaded to the host; or without offload "
               "bf16_optimizer_states"},
    ConfigRule{"/bf16/bf16_master_weights_and_grads",
               [](const Settings& s) {
                 return s.is_on("/bf16/bf16_master_weights_and_grads") && s.zero_stage() > 0 &&
                        precision_of(s) != "bf16";
               },
               "is not built in dstune-mpi yet where bf16 is not enabled: remove the key", true},
    ConfigRule{"/bf16/bf16_optimizer_states",
               [](const Settings& s) {
                 return s.is_on("/bf16/bf16_optimizer_states") &&
                        (s.zero_stage() == 0 || !s.is_on("/bf16/bf16_master_weights_and_grads"));
               },
               "needs bf16_master_weights_and_grads, and ZeRO stage 1, 2 or 3"},
    ConfigRule{
        "/fp16/fp16_master_weights_and_grads",
        [](const Settings& s) { return lacks_zero(s, "/fp16/fp16_master_weights_and_grads"); },
        "needs ZeRO stage 1, 2 or 3"},
    ConfigRule{"/fp16/fp16_master_weights_and_grads",
               [](const Settings& s) {
                 return s.is_on("/fp16/fp16_master_weights_and_grads") && s.zero_stage() > 0 &&
                        !has_cpu_adam(s);
               },
               "needs DeepSpeed's Adam, offloaded to the host"},
    ConfigRule{"/fp16/fp16_master_weights_and_grads",
               [](const Settings& s) {
                 return s.is_on("/fp16/fp16_master_weights_and_grads") &&
                        s.is_on("/bf16/bf16_master_weights_and_grads");
               },
               "and bf16_master_weights_and_grads exclude each other: keep one of them"},
    ConfigRule{"/fp16/fp16_master_weights_and_grads",
               [](const Settings& s) {
                 return s.is_on("/fp16/fp16_master_weights_and_grads") && s.zero_stage() > 0 &&
                        precision_of(s) != "fp16";
               },
               "is not built in dstune-mpi yet where fp16 is not enabled: remove the key", true},
};

}  // namespace

std::span<const ConfigRule> precision_rules() {
  return rules;
}

bool has_low_precision_master(const Settings& settings) {
  return settings.is_on("/bf16/bf16_master_weights_and_grads") ||
         settings.is_on("/fp16/fp16_master_weights_and_grads");
}

}  // namespace dstune
