#include "config_rules.hpp"

#include <array>
#include <string>

#include "arguments.hpp"

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
/// A section that DeepSpeed takes its `enabled` out of, there or not.
bool lacks(const Settings& settings, std::string_view section, std::string_view key) {
  return settings.is_given(section) && !settings.is_written(key);
}
bool compression_lacks_groups(const Settings& settings, const std::string& kind) {
  if (!settings.is_given("/compression_training")) return false;  // as good as always
  const std::string section = "/compression_training/" + kind;
  return lacks(settings, section, section + "/different_groups");
}
/// Two names of one field, of which DeepSpeed takes one.
bool has_both(const Settings& settings, std::string_view old_name, std::string_view new_name) {
  return settings.is_set(old_name) && settings.is_set(new_name);
}
std::string precision_of(const Settings& settings) {
  if (settings.is_on("/fp16/enabled")) return "fp16";
  const bool is_bf16 = settings.is_on("/bf16/enabled") || settings.is_on("/bfloat16/enabled");
  return is_bf16 ? "bf16" : "fp32";
}
/// Of /data_types: fp16 for "half", and so on.
std::string element_type(const Settings& settings, std::string_view pointer) {
  std::string word = settings.word(pointer);
  if (word.starts_with("torch.")) word = word.substr(6);
  if (word == "half" || word == "float16") return "fp16";
  if (word == "bfloat16") return "bf16";
  if (word == "float" || word == "float32") return "fp32";
  return word;
}
bool differs_from_precision(const Settings& settings, std::string_view pointer) {
  return settings.is_given(pointer) && element_type(settings, pointer) != precision_of(settings);
}

std::string offload_device(const Settings& settings) {
  if (settings.is_on("/zero_optimization/cpu_offload")) return "cpu";
  return settings.word("/zero_optimization/offload_optimizer/device");
}
bool offloads_optimizer(const Settings& settings) {
  return offload_device(settings) != "none";
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
          const int stage = s.zero_stage();
          return (stage == 1 || stage == 2) &&
                 std::get<std::int64_t>(s.value("/zero_optimization/allgather_bucket_size")) % 2 !=
                     0;
        },
        "must be even: DeepSpeed refuses odd sizes"},
    ConfigRule{"/zero_optimization/mics_shard_size",
               [](const Settings& s) { return s.number("/zero_optimization/mics_shard_size") > 0; },
               "MiCS is not built in dstune-mpi yet: remove the key or write -1", true},
    // DeepSpeed reads such a config, and its CPU Adam then refuses the parameters on the device at
    // the first step.
    ConfigRule{"/zero_optimization/offload_optimizer/device",
               [](const Settings& s) {
                 return s.zero_stage() == 0 && offloads_optimizer(s) &&
                        !s.is_on("/optimizer/params/torch_adam");
               },
               "fails in DeepSpeed at stage 0, whose optimizer is not offloaded: write none, or a "
               "stage from 1 on",
               true},
    ConfigRule{"/zero_optimization/offload_optimizer/device",
               [](const Settings& s) { return s.zero_stage() == 3 && offload_device(s) == "nvme"; },
               "nvme is not built in dstune-mpi yet at stage 3: write cpu or none", true},
    ConfigRule{"/zero_optimization/offload_optimizer/ratio",
               [](const Settings& s) {
                 return s.zero_stage() == 3 && offloads_optimizer(s) &&
                        s.number("/zero_optimization/offload_optimizer/ratio") < 1;
               },
               "below 1 is not built in dstune-mpi yet: write 1.0", true},
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
                 return has_both(s, "/zero_optimization/cpu_offload",
                                 "/zero_optimization/offload_optimizer");
               },
               "is the deprecated name of offload_optimizer, which is there too: remove it"},
    ConfigRule{"/zero_optimization/cpu_offload_param",
               [](const Settings& s) {
                 return has_both(s, "/zero_optimization/cpu_offload_param",
                                 "/zero_optimization/offload_param");
               },
               "is the deprecated name of offload_param, which is there too: remove it"},
    ConfigRule{
        "/zero_optimization/stage3_gather_fp16_weights_on_model_save",
        [](const Settings& s) {
          constexpr auto old_name = "/zero_optimization/stage3_gather_fp16_weights_on_model_save";
          return has_both(s, old_name,
                          "/zero_optimization/stage3_gather_16bit_weights_on_model_save") ||
                 has_both(s, old_name, "/zero_optimization/gather_16bit_weights_on_model_save");
        },
        "is the deprecated name of stage3_gather_16bit_weights_on_model_save, which is there too: "
        "remove it"},
    ConfigRule{"/activation_checkpointing/contiguous_memory_optimization",
               [](const Settings& s) {
                 return s.is_on("/activation_checkpointing/contiguous_memory_optimization") &&
                        (!s.is_on("/activation_checkpointing/partition_activations") ||
                         !s.is_there("/activation_checkpointing/number_checkpoints"));
               },
               "needs partition_activations and number_checkpoints: add them or write false"},
    ConfigRule{"/amp", [](const Settings& s) { return lacks(s, "/amp", "/amp/enabled"); },
               "DeepSpeed needs enabled in this section: add it or remove the section"},
    ConfigRule{"/progressive_layer_drop",
               [](const Settings& s) {
                 return lacks(s, "/progressive_layer_drop", "/progressive_layer_drop/enabled");
               },
               "DeepSpeed needs enabled in this section: add it or remove the section"},
    ConfigRule{"/curriculum_learning",
               [](const Settings& s) {
                 return lacks(s, "/curriculum_learning", "/curriculum_learning/enabled");
               },
               "DeepSpeed needs enabled in this section: add it or remove the section"},
    ConfigRule{"/compression_training/weight_quantization",
               [](const Settings& s) { return compression_lacks_groups(s, "weight_quantization"); },
               "DeepSpeed needs different_groups in this section: add it, with {} for none"},
    ConfigRule{
        "/compression_training/activation_quantization",
        [](const Settings& s) { return compression_lacks_groups(s, "activation_quantization"); },
        "DeepSpeed needs different_groups in this section: add it, with {} for none"},
    ConfigRule{"/compression_training/sparse_pruning",
               [](const Settings& s) { return compression_lacks_groups(s, "sparse_pruning"); },
               "DeepSpeed needs different_groups in this section: add it, with {} for none"},
    ConfigRule{"/compression_training/row_pruning",
               [](const Settings& s) { return compression_lacks_groups(s, "row_pruning"); },
               "DeepSpeed needs different_groups in this section: add it, with {} for none"},
    ConfigRule{"/compression_training/head_pruning",
               [](const Settings& s) { return compression_lacks_groups(s, "head_pruning"); },
               "DeepSpeed needs different_groups in this section: add it, with {} for none"},
    ConfigRule{"/compression_training/channel_pruning",
               [](const Settings& s) { return compression_lacks_groups(s, "channel_pruning"); },
               "DeepSpeed needs different_groups in this section: add it, with {} for none"},
    ConfigRule{"/compression_training/weight_quantization",
               [](const Settings& s) {
                 return lacks(s, "/compression_training/weight_quantization",
                              "/compression_training/weight_quantization/shared_parameters");
               },
               "DeepSpeed needs shared_parameters in this section: add it, with {} for none"},
    ConfigRule{
        "/fp16/auto_cast",
        [](const Settings& s) { return s.is_on("/fp16/auto_cast") && precision_of(s) != "fp16"; },
        "casts inputs of a model that is not in fp16: enable fp16 or write false"},
    ConfigRule{"/steps_per_print",
               [](const Settings& s) {
                 return s.is_given("/steps_per_print") && s.number("/steps_per_print") == 0;
               },
               "DeepSpeed divides by it: remove the key to print nothing"},
    ConfigRule{"/gradient_predivide_factor",
               [](const Settings& s) { return s.number("/gradient_predivide_factor") == 0; },
               "DeepSpeed divides by it: write 1.0"},
    ConfigRule{"/allgather_size",
               [](const Settings& s) {
                 return std::get<std::int64_t>(s.value("/allgather_size")) % 2 != 0;
               },
               "must be even: DeepSpeed refuses odd sizes"},
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
    ConfigRule{"/scheduler/type",
               [](const Settings& s) {
                 const auto* const type = std::get_if<std::string>(&s.value("/scheduler/type"));
                 return type != nullptr && !is_deepspeed_scheduler(*type) &&
                        (s.zero_stage() > 0 || precision_of(s) != "fp32");
               },
               "DeepSpeed drives PyTorch's schedulers at stage 0 in fp32 alone: take one of "
               "LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR"},
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
