/// Rules of zero_optimization, and of how its stages reduce.

#include <string>

#include "deepspeed/config_rules.hpp"

namespace dstune {
namespace {

bool scatters_from_stage_2_on(const Settings& settings) {
  return settings.zero_stage() >= 2 && settings.is_on("/zero_optimization/reduce_scatter");
}

/// Two names of one field, of which DeepSpeed takes one.
bool has_both(const Settings& settings, Pointer old_name, Pointer new_name) {
  const KnobTable& table = settings.table();
  return settings.is_set(table.find(old_name).value()) &&
         settings.is_set(table.find(new_name).value());
}

std::string offload_device(const Settings& settings) {
  if (settings.is_on("/zero_optimization/cpu_offload")) return "cpu";
  return settings.word("/zero_optimization/offload_optimizer/device");
}

/// One of DeepSpeed's compiled ones.
bool has_deepspeed_optimizer(const Settings& settings) {
  return settings.word("/optimizer/type") != "sgd" &&
         !settings.is_on("/optimizer/params/torch_adam");
}

bool swaps_optimizer(const Settings& settings) {
  return settings.zero_stage() == 3 && offload_device(settings) == "nvme";
}

bool swaps_parameters(const Settings& settings) {
  return settings.zero_stage() == 3 &&
         settings.word("/zero_optimization/offload_param/device") == "nvme";
}

/// The states of a sub-group: master copy, moments and gradients. DeepSpeed's Lion has two moments
/// there.
int min_swap_buffers(const Settings& settings) {
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

bool has_no_norm(const Settings& settings, Pointer key) {
  return !settings.is_on(key) && (settings.zero_stage() == 1 || settings.zero_stage() == 2);
}

constexpr ConfigRule rules_of_zero[] = {
    {"/zero_optimization/allgather_bucket_size",
     [](const Settings& s, Pointer key) {
       const int stage = s.zero_stage();
       return (stage == 1 || stage == 2) && std::get<std::int64_t>(s.value(key)) % 2 != 0;
     },
     "must be even: DeepSpeed refuses odd sizes", Weight::fails},
    {"/zero_optimization/reduce_bucket_size",
     [](const Settings& s, Pointer key) { return s.zero_stage() > 0 && s.number(key) == 0; },
     "DeepSpeed divides by it in its first step: write 1 or more", Weight::fails},
    {"/zero_optimization/compute_grad_norm",
     [](const Settings& s, Pointer key) {
       return !s.is_on(key) && s.zero_stage() != 1 && s.zero_stage() != 2;
     },
     "DeepSpeed takes false at stages 1 and 2 alone: write true"},
    {"/zero_optimization/compute_grad_norm",
     [](const Settings& s, Pointer key) {
       return has_no_norm(s, key) && s.number("/gradient_clipping") > 0;
     },
     "DeepSpeed refuses false with clipping: write true, or gradient_clipping 0", Weight::fails},
    {"/zero_optimization/compute_grad_norm",
     [](const Settings& s, Pointer key) { return has_no_norm(s, key) && offloads_optimizer(s); },
     "DeepSpeed refuses false with offload_optimizer: write true", Weight::fails},
    {"/zero_optimization/compute_grad_norm",
     [](const Settings& s, Pointer key) {
       return has_no_norm(s, key) && s.zero_stage() == 1 && precision_of(s) == "bf16" &&
              element_type(s, "/data_types/grad_accum_dtype") == "fp32";
     },
     "DeepSpeed refuses false at stage 1 in bf16 with sums in fp32: write true", Weight::fails},
    // A copy on every rank, which DeepSpeed goes on gathering and reducing alone.
    {"/zero_optimization/mics_shard_size",
     [](const Settings& s, Pointer key) { return has_mics(s) && s.number(key) == 1; },
     "1 partitions nothing and is not built in dstune-mpi: write -1 and stage 0, or 2 and more",
     Weight::unbuilt},
    // DeepSpeed would make the second partition and never gather from it.
    {"/zero_optimization/zero_hpz_partition_size",
     [](const Settings& s, Pointer) { return has_mics(s) && has_hpz(s); },
     "with mics_shard_size is not built in dstune-mpi: write 1, or mics_shard_size -1",
     Weight::unbuilt},
    // Its gathers take shards on the device only.
    {"/zero_optimization/mics_shard_size",
     [](const Settings& s, Pointer) { return has_mics(s) && offloads_parameters(s); },
     "fails in DeepSpeed with offload_param: write -1, or offload_param none", Weight::fails},
    {"/zero_optimization/zero_hpz_partition_size",
     [](const Settings& s, Pointer) { return has_hpz(s) && swaps_parameters(s); },
     "fails in DeepSpeed where offload_param.device is nvme: write 1, or cpu or none",
     Weight::fails},
    {"/zero_optimization/zero_quantized_gradients",
     [](const Settings& s, Pointer key) {
       return s.zero_stage() == 3 && !has_mics(s) && s.is_on(key) &&
              !s.is_on("/zero_optimization/reduce_scatter");
     },
     "fails in DeepSpeed without reduce_scatter: write false, or reduce_scatter true",
     Weight::fails},
    // DeepSpeed reads such a config, and its optimizers for the host then refuse the parameters on
    // the device at the first step.
    {"/zero_optimization/offload_optimizer/device",
     [](const Settings& s, Pointer) {
       return s.zero_stage() == 0 && offloads_optimizer(s) && has_deepspeed_optimizer(s);
     },
     "fails in DeepSpeed at stage 0, whose optimizer is not offloaded: write none, or a "
     "stage from 1 on",
     Weight::fails},
    {"/zero_optimization/offload_optimizer/device",
     [](const Settings& s, Pointer) {
       return swaps_optimizer(s) && !s.is_set("/zero_optimization/offload_optimizer/nvme_path");
     },
     "DeepSpeed refuses nvme without nvme_path: name a folder on the disk", Weight::fails},
    {"/zero_optimization/offload_optimizer/buffer_count",
     [](const Settings& s, Pointer key) {
       return swaps_optimizer(s) && !offloads_in_part(s) && s.number(key) < min_swap_buffers(s);
     },
     "fewer fail in DeepSpeed if the device is nvme: one for the master copy, one for each moment "
     "and one for the gradients are needed; 4 always suffice",
     Weight::fails},
    {"/zero_optimization/offload_optimizer/device",
     [](const Settings& s, Pointer) { return swaps_optimizer(s) && has_low_precision_master(s); },
     "nvme fails in DeepSpeed with 16-bit master weights: write cpu", Weight::fails},
    {"/zero_optimization/offload_optimizer/ratio",
     [](const Settings& s, Pointer) { return offloads_in_part(s) && !has_adam(s); },
     "DeepSpeed refuses below 1 with other optimizers than Adam and AdamW: write 1.0",
     Weight::fails},
    {"/zero_optimization/offload_optimizer/ratio",
     [](const Settings& s, Pointer) { return offloads_in_part(s) && has_low_precision_master(s); },
     "below 1 is not built in dstune-mpi with 16-bit master weights, which PyTorch's "
     "AdamW then updates on the device, rounding after each of its operations: write 1.0",
     Weight::unbuilt},
    {"/zero_optimization/offload_param/device",
     [](const Settings& s, Pointer) {
       return swaps_parameters(s) && !s.is_set("/zero_optimization/offload_param/nvme_path");
     },
     "DeepSpeed refuses nvme without nvme_path: name a folder on the disk", Weight::fails},
    {"/zero_optimization/offload_param/nvme_path",
     [](const Settings& s, Pointer key) {
       return swaps_parameters(s) && swaps_optimizer(s) && s.is_set(key) &&
              s.is_set("/zero_optimization/offload_optimizer/nvme_path") &&
              s.value(key) != s.value("/zero_optimization/offload_optimizer/nvme_path");
     },
     "another folder than offload_optimizer's is not built in dstune-mpi: name the same",
     Weight::unbuilt},
    {"/zero_optimization/offload_optimizer/ratio",
     [](const Settings& s, Pointer) {
       return offloads_in_part(s) && s.is_on("/optimizer/params/torch_adam");
     },
     "below 1 fails in DeepSpeed with torch_adam: write 1.0, or torch_adam false", Weight::fails},
    // AdamW updates there what stays on the device, whatever the optimizer.
    {"/zero_optimization/offload_optimizer/ratio",
     [](const Settings& s, Pointer) {
       return offloads_in_part(s) && s.word("/optimizer/type") == "adam" &&
              !s.is_on("/optimizer/params/adam_w_mode") &&
              s.number("/optimizer/params/weight_decay") > 0;
     },
     "below 1 mixes Adam with AdamW in DeepSpeed where adam_w_mode is false, which is not "
     "built in dstune-mpi: write 1.0, or adam_w_mode true",
     Weight::unbuilt},
    {"/zero_optimization/offload_optimizer/ratio",
     [](const Settings& s, Pointer key) { return s.zero_stage() != 3 && s.number(key) < 1; },
     "below 1 only stage 3 works: write 1.0 or stage 3",
     Weight::refused,
     {0, 15, 0}},
    {"/prescale_gradients",
     [](const Settings& s, Pointer key) { return scatters_from_stage_2_on(s) && s.is_on(key); },
     "DeepSpeed refuses this with reduce_scatter from stage 2 on: write false, or "
     "reduce_scatter false",
     Weight::fails},
    {"/gradient_predivide_factor",
     [](const Settings& s, Pointer key) {
       return scatters_from_stage_2_on(s) && s.number(key) != 1;
     },
     "DeepSpeed refuses other values with reduce_scatter from stage 2 on: write 1.0",
     Weight::fails},
    {"/gradient_allreduce_op",
     [](const Settings& s, Pointer key) { return s.zero_stage() == 3 && s.word(key) == "sum"; },
     "DeepSpeed refuses sum at stage 3: write mean, or a stage below 3"},
    {"/gradient_allreduce_op",
     [](const Settings& s, Pointer key) {
       return s.word(key) == "sum" && s.is_given("/zero_optimization/zenflow");
     },
     "DeepSpeed refuses sum with zenflow: write mean"},
    {"/gradient_allreduce_op",
     [](const Settings& s, Pointer key) {
       return s.word(key) == "sum" && s.is_on("/compile/deepcompile");
     },
     "DeepSpeed refuses sum with deepcompile: write mean"},
    {"/zero_optimization/zenflow/topk_ratio",
     [](const Settings& s, Pointer key) { return s.number(key) <= 0 || s.number(key) >= 1; },
     "must be above 0 and below 1",
     Weight::refused,
     {0, 19, 6}},
    {"/zero_optimization/cpu_offload",
     [](const Settings& s, Pointer key) {
       return has_both(s, key, "/zero_optimization/offload_optimizer");
     },
     "is the deprecated name of offload_optimizer, which is there too: remove it"},
    {"/zero_optimization/cpu_offload_param",
     [](const Settings& s, Pointer key) {
       return has_both(s, key, "/zero_optimization/offload_param");
     },
     "is the deprecated name of offload_param, which is there too: remove it"},
    {"/zero_optimization/stage3_gather_fp16_weights_on_model_save",
     [](const Settings& s, Pointer key) {
       return has_both(s, key, "/zero_optimization/stage3_gather_16bit_weights_on_model_save") ||
              has_both(s, key, "/zero_optimization/gather_16bit_weights_on_model_save");
     },
     "is the deprecated name of stage3_gather_16bit_weights_on_model_save, which is there too: "
     "remove it"},
};

}  // namespace

std::span<const ConfigRule> zero_rules() {
  return rules_of_zero;
}

}  // namespace dstune
