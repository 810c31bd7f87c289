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
bool differs_from_precision(const Settings& settings, std::string_view pointer) {
  return settings.is_given(pointer) && element_type(settings, pointer) != precision_of(settings);
}

std::string offload_device(const Settings& settings) {
  if (settings.is_on("/zero_optimization/cpu_offload")) return "cpu";
  return settings.word("/zero_optimization/offload_optimizer/device");
}
bool has_low_precision_master(const Settings& settings) {
  return is_bf16_on(settings, "bf16_master_weights_and_grads") ||
         settings.is_on("/fp16/fp16_master_weights_and_grads");
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
/// One of DeepSpeed's compiled ones.
bool has_deepspeed_optimizer(const Settings& settings) {
  return settings.word("/optimizer/type") != "sgd" &&
         !settings.is_on("/optimizer/params/torch_adam");
}

bool lacks_zero(const Settings& settings, std::string_view pointer) {
  return settings.is_on(pointer) && settings.zero_stage() == 0;
}
bool lacks_bf16_states(const Settings& settings, const std::string& section) {
  if (!settings.is_on(section + "/bf16_master_weights_and_grads")) return false;
  return settings.zero_stage() > 0 && !has_cpu_adam(settings) &&
         (offloads_optimizer(settings) || !settings.is_on(section + "/bf16_optimizer_states"));
}
bool swaps_optimizer(const Settings& settings) {
  return settings.zero_stage() == 3 && offload_device(settings) == "nvme";
}
bool swaps_parameters(const Settings& settings) {
  return settings.zero_stage() == 3 &&
         settings.word("/zero_optimization/offload_param/device") == "nvme";
}
bool has_adam(const Settings& settings) {
  const std::string type = settings.word("/optimizer/type");
  return type == "adam" || type == "adamw";
}
/// Of a sub-group: master copy, moments and gradients. DeepSpeed's Lion has two moments there.
int fewest_swap_buffers(const Settings& settings) {
  const std::string type = settings.word("/optimizer/type");
  if (type == "adagrad") return 3;
  if (type == "sgd") return settings.number("/optimizer/params/momentum") != 0 ? 3 : 2;
  return 4;
}
/// Twin-Flow: some sub-groups are updated on the device.
bool offloads_in_part(const Settings& settings) {
  return settings.zero_stage() == 3 && offloads_optimizer(settings) &&
         settings.number("/zero_optimization/offload_optimizer/ratio") < 1;
}

bool has_mics(const Settings& settings) {
  return settings.zero_stage() == 3 && settings.number("/zero_optimization/mics_shard_size") > 0;
}
bool has_hpz(const Settings& settings) {
  return settings.zero_stage() == 3 &&
         settings.number("/zero_optimization/zero_hpz_partition_size") > 1;
}
bool offloads_parameters(const Settings& settings) {
  if (settings.is_on("/zero_optimization/cpu_offload_param")) return true;
  const std::string device = settings.word("/zero_optimization/offload_param/device");
  return !device.empty() && device != "none";
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
    // A copy on every rank, which DeepSpeed goes on gathering and reducing alone.
    ConfigRule{"/zero_optimization/mics_shard_size",
               [](const Settings& s) {
                 return has_mics(s) && s.number("/zero_optimization/mics_shard_size") == 1;
               },
               "1 partitions nothing and is not built in dstune-mpi: write -1 and stage 0, or 2 "
               "and more",
               true},
    // DeepSpeed would make the second partition and never gather from it.
    ConfigRule{"/zero_optimization/zero_hpz_partition_size",
               [](const Settings& s) { return has_mics(s) && has_hpz(s); },
               "with mics_shard_size is not built in dstune-mpi: write 1, or mics_shard_size -1",
               true},
    // Its gathers take shards on the device only.
    ConfigRule{"/zero_optimization/mics_shard_size",
               [](const Settings& s) { return has_mics(s) && offloads_parameters(s); },
               "fails in DeepSpeed with offload_param: write -1, or offload_param none", true},
    ConfigRule{"/zero_optimization/zero_hpz_partition_size",
               [](const Settings& s) { return has_hpz(s) && swaps_parameters(s); },
               "fails in DeepSpeed where offload_param.device is nvme: write 1, or cpu or none",
               true},
    // DeepSpeed reads such a config, and its optimizers for the host then refuse the parameters on
    // the device at the first step.
    ConfigRule{"/zero_optimization/offload_optimizer/device",
               [](const Settings& s) {
                 return s.zero_stage() == 0 && offloads_optimizer(s) && has_deepspeed_optimizer(s);
               },
               "fails in DeepSpeed at stage 0, whose optimizer is not offloaded: write none, or a "
               "stage from 1 on",
               true},
    ConfigRule{"/zero_optimization/offload_optimizer/device",
               [](const Settings& s) {
                 return swaps_optimizer(s) &&
                        !s.is_set("/zero_optimization/offload_optimizer/nvme_path");
               },
               "DeepSpeed refuses nvme without nvme_path: name a folder on the disk"},
    ConfigRule{"/zero_optimization/offload_optimizer/buffer_count",
               [](const Settings& s) {
                 return swaps_optimizer(s) &&
                        s.number("/zero_optimization/offload_optimizer/buffer_count") <
                            fewest_swap_buffers(s);
               },
               "fewer fail in DeepSpeed where the device is nvme: one is needed for the master "
               "copy, one for each moment, one for the gradients, 4 do for any optimizer",
               true},
    ConfigRule{"/zero_optimization/offload_optimizer/ratio",
               [](const Settings& s) { return swaps_optimizer(s) && offloads_in_part(s); },
               "below 1 is not built in dstune-mpi where the device is nvme: write 1.0", true},
    ConfigRule{"/zero_optimization/offload_optimizer/device",
               [](const Settings& s) { return swaps_optimizer(s) && has_low_precision_master(s); },
               "nvme fails in DeepSpeed with 16-bit master weights: write cpu", true},
    ConfigRule{"/zero_optimization/offload_optimizer/ratio",
               [](const Settings& s) { return offloads_in_part(s) && !has_adam(s); },
               "DeepSpeed refuses below 1 with other optimizers than Adam and AdamW: write 1.0",
               true},
    ConfigRule{"/zero_optimization/offload_optimizer/ratio",
               [](const Settings& s) { return offloads_in_part(s) && has_low_precision_master(s); },
               "below 1 is not built in dstune-mpi with 16-bit master weights: write 1.0", true},
    ConfigRule{"/zero_optimization/offload_param/device",
               [](const Settings& s) {
                 return swaps_parameters(s) &&
                        !s.is_set("/zero_optimization/offload_param/nvme_path");
               },
               "DeepSpeed refuses nvme without nvme_path: name a folder on the disk"},
    ConfigRule{"/zero_optimization/offload_param/nvme_path",
               [](const Settings& s) {
                 return swaps_parameters(s) && swaps_optimizer(s) &&
                        s.is_set("/zero_optimization/offload_param/nvme_path") &&
                        s.is_set("/zero_optimization/offload_optimizer/nvme_path") &&
                        s.value("/zero_optimization/offload_param/nvme_path") !=
                            s.value("/zero_optimization/offload_optimizer/nvme_path");
               },
               "another folder than offload_optimizer's is not built in dstune-mpi: name the same",
               true},
    ConfigRule{"/zero_optimization/offload_optimizer/ratio",
               [](const Settings& s) {
                 return offloads_in_part(s) && s.is_on("/optimizer/params/torch_adam");
               },
               "below 1 fails in DeepSpeed with torch_adam: write 1.0, or torch_adam false", true},
    // What stays on the device is updated by AdamW there, whatever the optimizer.
    ConfigRule{
        "/zero_optimization/offload_optimizer/ratio",
        [](const Settings& s) {
          return offloads_in_part(s) && s.word("/optimizer/type") == "adam" &&
                 !s.is_on("/optimizer/params/adam_w_mode") &&
                 s.number("/optimizer/params/weight_decay") > 0;
        },
        "below 1 mixes Adam with AdamW in DeepSpeed where adam_w_mode is false, which is not "
        "built in dstune-mpi: write 1.0, or adam_w_mode true",
        true},
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
    ConfigRule{"/gradient_allreduce_op",
               [](const Settings& s) {
                 return s.zero_stage() == 3 && s.word("/gradient_allreduce_op") == "sum";
               },
               "DeepSpeed refuses sum at stage 3: write mean, or a stage below 3"},
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
    ConfigRule{"/bf16/bf16_master_weights_and_grads",
               [](const Settings& s) { return lacks_bf16_states(s, "/bf16"); },
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
        "/bfloat16/bf16_master_weights_and_grads",
        [](const Settings& s) { return lacks_zero(s, "/bfloat16/bf16_master_weights_and_grads"); },
        "needs ZeRO stage 1, 2 or 3"},
    ConfigRule{"/bfloat16/bf16_master_weights_and_grads",
               [](const Settings& s) { return lacks_bf16_states(s, "/bfloat16"); },
               "needs DeepSpeed's Adam, offloaded to the host; or without offload "
               "bf16_optimizer_states"},
    ConfigRule{"/bfloat16/bf16_master_weights_and_grads",
               [](const Settings& s) {
                 return s.is_on("/bfloat16/bf16_master_weights_and_grads") && s.zero_stage() > 0 &&
                        precision_of(s) != "bf16";
               },
               "is not built in dstune-mpi yet where bf16 is not enabled: remove the key", true},
    ConfigRule{"/bfloat16/bf16_optimizer_states",
               [](const Settings& s) {
                 return s.is_on("/bfloat16/bf16_optimizer_states") &&
                        (s.zero_stage() == 0 ||
                         !s.is_on("/bfloat16/bf16_master_weights_and_grads"));
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
                        is_bf16_on(s, "bf16_master_weights_and_grads");
               },
               "and bf16_master_weights_and_grads exclude each other: keep one of them"},
    ConfigRule{"/fp16/fp16_master_weights_and_grads",
               [](const Settings& s) {
                 return s.is_on("/fp16/fp16_master_weights_and_grads") && s.zero_stage() > 0 &&
                        precision_of(s) != "fp16";
               },
               "is not built in dstune-mpi yet where fp16 is not enabled: remove the key", true},
    ConfigRule{"/scheduler/type",
               [](const Settings& s) {
                 const auto* const type = std::get_if<std::string>(&s.value("/scheduler/type"));
                 return type != nullptr && !is_deepspeed_scheduler(*type) &&
                        (s.zero_stage() > 0 || precision_of(s) != "fp32");
               },
               "DeepSpeed drives PyTorch's schedulers at stage 0 in fp32 alone: take one of "
               "LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR"},
    ConfigRule{
        "/optimizer/type",
        [](const Settings& s) {
          return s.zero_stage() > 0 && s.word("/optimizer/type") == "sgd" &&
                 !s.is_on("/zero_allow_untested_optimizer");
        },
        "DeepSpeed has not tested it with ZeRO: add \"zero_allow_untested_optimizer\": true, "
        "or take stage 0"},
    ConfigRule{"/optimizer/params/nesterov",
               [](const Settings& s) {
                 return s.is_on("/optimizer/params/nesterov") &&
                        (s.number("/optimizer/params/momentum") <= 0 ||
                         s.number("/optimizer/params/dampening") != 0);
               },
               "needs momentum above 0 and no dampening"},
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
