#include "config_rules.hpp"

#include <array>

namespace dstune {

namespace {

bool scatters_from_stage_2_on(const Settings& settings) {
  return settings.zero_stage() >= 2 && settings.is_on("/zero_optimization/reduce_scatter");
}
bool has_dynamic_loss_scale(const Settings& settings) {
  return settings.is_on("/fp16/enabled") && settings.number("/fp16/loss_scale") == 0;
}
bool is_one(const Settings& settings, std::string_view pointer) {
  return settings.is_given(pointer) && settings.number(pointer) == 1;
}
/// The scheduler that is asked for needs a key that is not there. ("auto" is filled in by the
/// user's training.)
bool lacks(const Settings& settings, std::string_view type, std::string_view key) {
  return settings.word("/scheduler/type") == type && !settings.is_there(key);
}

constexpr std::array rules = {
    ConfigRule{"/fp16/enabled",
               [](const Settings& s) {
                 return s.is_on("/fp16/enabled") &&
                        (s.is_on("/bf16/enabled") || s.is_on("/bfloat16/enabled"));
               },
               "fp16 and bf16 can not both be enabled: keep one of them"},
    ConfigRule{"/bfloat16",
               [](const Settings& s) { return s.is_given("/bf16") && s.is_given("/bfloat16"); },
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
        "/zero_optimization/allgather_bucket_size",
        [](const Settings& s) {
          return std::get<std::int64_t>(s.value("/zero_optimization/allgather_bucket_size")) % 2 !=
                 0;
        },
        "must be even: DeepSpeed refuses odd sizes"},
    ConfigRule{"/zero_optimization/mics_shard_size",
               [](const Settings& s) { return s.number("/zero_optimization/mics_shard_size") > 0; },
               "MiCS is not built in dstune-mpi yet: remove the key or write -1", true},
    ConfigRule{"/zero_optimization/offload_optimizer/ratio",
               [](const Settings& s) {
                 return s.zero_stage() != 3 &&
                        s.number("/zero_optimization/offload_optimizer/ratio") < 1;
               },
               "below 1 only stage 3 works: write 1.0 or stage 3"},
    ConfigRule{"/prescale_gradients",
               [](const Settings& s) {
                 return scatters_from_stage_2_on(s) && s.is_on("/prescale_gradients");
               },
               "DeepSpeed refuses this with reduce_scatter from stage 2 on: write false, or "
               "reduce_scatter false"},
    ConfigRule{"/gradient_predivide_factor",
               [](const Settings& s) {
                 return scatters_from_stage_2_on(s) && s.number("/gradient_predivide_factor") != 1;
               },
               "DeepSpeed refuses other values than 1.0 with reduce_scatter from stage 2 on"},
    ConfigRule{"/zero_optimization/cpu_offload",
               [](const Settings& s) {
                 return s.is_given("/zero_optimization/cpu_offload") &&
                        s.is_given("/zero_optimization/offload_optimizer");
               },
               "is the deprecated name of offload_optimizer, which is there too: remove it"},
    ConfigRule{"/zero_optimization/cpu_offload_param",
               [](const Settings& s) {
                 return s.is_given("/zero_optimization/cpu_offload_param") &&
                        s.is_given("/zero_optimization/offload_param");
               },
               "is the deprecated name of offload_param, which is there too: remove it"},
    ConfigRule{
        "/zero_optimization/stage3_gather_fp16_weights_on_model_save",
        [](const Settings& s) {
          return s.is_given("/zero_optimization/stage3_gather_fp16_weights_on_model_save") &&
                 s.is_given("/zero_optimization/stage3_gather_16bit_weights_on_model_save");
        },
        "is the deprecated name of stage3_gather_16bit_weights_on_model_save, which is there too: "
        "remove it"},
    ConfigRule{
        "/scheduler/type",
        [](const Settings& s) { return lacks(s, "onecycle", "/scheduler/params/cycle_min_lr"); },
        "OneCycle needs cycle_min_lr in /scheduler/params: add it"},
    ConfigRule{
        "/scheduler/type",
        [](const Settings& s) { return lacks(s, "onecycle", "/scheduler/params/cycle_max_lr"); },
        "OneCycle needs cycle_max_lr in /scheduler/params: add it"},
    ConfigRule{"/scheduler/type",
               [](const Settings& s) {
                 return lacks(s, "warmupdecaylr", "/scheduler/params/total_num_steps");
               },
               "WarmupDecayLR needs total_num_steps in /scheduler/params: add it"},
    ConfigRule{"/scheduler/type",
               [](const Settings& s) {
                 return lacks(s, "warmupcosinelr", "/scheduler/params/total_num_steps");
               },
               "WarmupCosineLR needs total_num_steps in /scheduler/params: add it"},
    ConfigRule{"/activation_checkpointing/contiguous_memory_optimization",
               [](const Settings& s) {
                 return s.is_on("/activation_checkpointing/contiguous_memory_optimization") &&
                        (!s.is_on("/activation_checkpointing/partition_activations") ||
                         !s.is_there("/activation_checkpointing/number_checkpoints"));
               },
               "needs partition_activations and number_checkpoints: add them or write false"},
    ConfigRule{"/optimizer/params/betas/0",
               [](const Settings& s) { return is_one(s, "/optimizer/params/betas/0"); },
               "must be below 1: the mean would never move"},
    ConfigRule{"/optimizer/params/betas/1",
               [](const Settings& s) { return is_one(s, "/optimizer/params/betas/1"); },
               "must be below 1: the mean would never move"},
};

}  // namespace

std::span<const ConfigRule> config_rules() {
  return rules;
}

}  // namespace dstune
