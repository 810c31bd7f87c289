/// Rows of zero_optimization.

#include <algorithm>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

using Config = TrainingConfig;

/// 0 is as good as 1.
void set_hpz(Config& config, const KnobValue& value) {
  config.zero_hpz_partition_size = std::max<std::int64_t>(1, std::get<std::int64_t>(value));
}

void set_mics(Config& config, const KnobValue& value) {
  config.mics_shard_size = std::max<std::int64_t>(0, std::get<std::int64_t>(value));
}

template <auto member>
void set_leaves(Config& config, const KnobValue& value) {
  // No module where the value is only to be put aside.
  const auto* const lines = std::get_if<std::string>(&value);
  config.leaf_modules.*member = lines == nullptr ? "" : *lines;
}

/// DeepSpeed's default names classes of models that are not among the families here.
void set_leaf_classes(Config& config, const KnobValue& value) {
  constexpr std::string_view usual =
      "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock\n"
      "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock\n"
      "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock\n";
  set_leaves<&LeafModules::classes>(config, value);
  if (config.leaf_modules.classes == usual) config.leaf_modules.classes.clear();
}

template <auto member>
void set_device(Config& config, const KnobValue& value) {
  for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme})
    if (std::get<std::string>(value) == to_text(device)) config.*member = device;
}

/// The rows of the devices come before these. A rule refuses two folders.
template <auto device>
void set_folder(Config& config, const KnobValue& value) {
  if (config.*device == OffloadDevice::nvme) config.disk.folder = std::get<std::string>(value);
}

template <auto device>
void set_host(Config& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.*device = OffloadDevice::cpu;
}

std::vector<Knob> stage_rows() {
  return {
      as_flag_of("stage", model(section("/zero_optimization", measured,
                                        "partitioning of the model's states"))),
      up_to(3, from(0, sets<&Config::zero_stage>(
                           "/zero_optimization/stage",
                           "what is partitioned: 1 optimizer states, 2 and gradients, 3 and "
                           "parameters"))),
      at(stages_1_2, flag("/zero_optimization/allgather_partitions", "true", inert,
                          "gather updated parameters by all-gather")),
      at(stages_1_2, integer("/zero_optimization/allgather_bucket_size", "500000000", 0, inert,
                             "elements of an all-gather; read on a legacy path only; even")),
      at(stages_1_2_3, optional(sets<&Config::overlap_comm>(
                           "/zero_optimization/overlap_comm",
                           "reduce gradients beside backward; unset: at stage 3 only"))),
      at(stages_1_2_3, sets<&Config::reduce_scatter>("/zero_optimization/reduce_scatter",
                                                     "reduce to the owner instead of to all")),
      at(stages_1_2_3,
         from(1, sets<&Config::reduce_bucket_size>("/zero_optimization/reduce_bucket_size",
                                                   "elements of gradients reduced together"))),
      at(stages_1_2, sets<&Config::use_multi_rank_bucket_allreduce>(
                         "/zero_optimization/use_multi_rank_bucket_allreduce",
                         "all-reduce buckets of several owners as one")),
      at(stages_1_2_3,
         sets<&Config::contiguous_gradients>("/zero_optimization/contiguous_gradients",
                                             "copy gradients into one buffer as they come")),
      at(stages_1_2,
         sets<&Config::round_robin_gradients>("/zero_optimization/round_robin_gradients",
                                              "deal the parameters out to their owners in turn")),
      at(stage_2, flag("/zero_optimization/ignore_unused_parameters", "true", inert,
                       "allow parameters without a gradient")),
      flag("/zero_optimization/load_from_fp32_weights", "true", inert, "checkpoints"),
      flag("/zero_optimization/elastic_checkpoint", "false", inert, "checkpoints, legacy"),
      instead("remove it: DeepSpeed removed this path",
              at(stages_1_2_3, flag("/zero_optimization/legacy_stage1", "false", refused,
                                    "removed by DeepSpeed"))),

      at(stage_3, from(0, sets<&Config::sub_group_size>("/zero_optimization/sub_group_size",
                                                        "elements updated together"))),
      at(stage_3,
         also("prefetch_bucket_size", from(0, sets<&Config::stage3_prefetch_bucket_size>(
                                                  "/zero_optimization/stage3_prefetch_bucket_size",
                                                  "elements gathered ahead")))),
      at(stage_3, also("param_persistence_threshold",
                       from(0, sets<&Config::stage3_param_persistence_threshold>(
                                   "/zero_optimization/stage3_param_persistence_threshold",
                                   "parameters of no more elements stay whole")))),
      at(stage_3, also("model_persistence_threshold",
                       from(0, sets<&Config::stage3_model_persistence_threshold>(
                                   "/zero_optimization/stage3_model_persistence_threshold",
                                   "elements kept whole in all")))),
      at(stage_3, also("max_live_parameters",
                       from(0, sets<&Config::stage3_max_live_parameters>(
                                   "/zero_optimization/stage3_max_live_parameters",
                                   "gathered elements beyond which nothing is gathered ahead")))),
      at(stage_3, also("max_reuse_distance",
                       from(0, sets<&Config::stage3_max_reuse_distance>(
                                   "/zero_optimization/stage3_max_reuse_distance",
                                   "a parameter used again within so many elements is kept")))),
      at(stage_3, also("gather_16bit_weights_on_model_save",
                       once("stage3_gather_fp16_weights_on_model_save",
                            flag("/zero_optimization/stage3_gather_16bit_weights_on_model_save",
                                 "false", inert, "checkpoints")))),
      at(stage_3, also("module_granularity_threshold",
                       sets<&Config::stage3_module_granularity_threshold>(
                           "/zero_optimization/stage3_module_granularity_threshold",
                           "modules with fewer elements a parameter are gathered whole"))),
      at(stage_3, also("use_all_reduce_for_fetch_params",
                       sets<&Config::stage3_use_all_reduce_for_fetch_params>(
                           "/zero_optimization/stage3_use_all_reduce_for_fetch_params",
                           "gather several parameters at once by all-reduce"))),
      at(stage_3, also("allgather_sequential", sets<&Config::stage3_allgather_sequential>(
                                                   "/zero_optimization/stage3_allgather_sequential",
                                                   "one all-gather a parameter"))),
      at(stage_3, sets<&Config::memory_efficient_linear>(
                      "/zero_optimization/memory_efficient_linear",
                      "linear layers that hold no gathered weight from forward to backward")),
      at(stage_3,
         flag("/zero_optimization/override_module_apply", "true", inert, "initialisation")),
      at(stage_3,
         flag("/zero_optimization/pipeline_loading_checkpoint", "false", inert, "checkpoints")),

      at(stage_3, from(0, sets<&Config::zero_hpz_partition_size>(
                              "/zero_optimization/zero_hpz_partition_size", set_hpz,
                              "ZeRO++: ranks that hold the parameters once more, for all gathers "
                              "of a step but the first"))),
      at(stage_3,
         sets<&Config::zero_quantized_weights>("/zero_optimization/zero_quantized_weights",
                                               "ZeRO++: gather parameters as numbers of 8 bits")),
      at(stage_3, flag("/zero_optimization/zero_quantized_nontrainable_weights", "false", inert,
                       "ZeRO++: frozen parameters in 8 bits; here all are trained")),
      at(stage_3, sets<&Config::zero_quantized_gradients>(
                      "/zero_optimization/zero_quantized_gradients",
                      "ZeRO++: reduce gradients across nodes as numbers of 4 bits")),
      at(stage_3, free_form(optional(section("/zero_optimization/zeropp_loco_param", refused,
                                             "ZeRO++: error feedback of quantized reductions")))),
      at(stage_3, acting(integer("/zero_optimization/mics_shard_size", "-1", -unbounded, measured,
                                 "MiCS: ranks that share a copy of the states; 0 and below: all"),
                         set_mics)),
      at(stage_3, sets<&Config::mics_hierarchical_params_gather>(
                      "/zero_optimization/mics_hierarchical_params_gather",
                      "MiCS: gather across the nodes first, then inside each")),
      free_form(optional(section("/zero_optimization/zenflow", refused,
                                 "ZenFlow: asynchronous offloaded updates"))),
      at(stage_3,
         nested(optional(section("/zero_optimization/leaf_module", measured,
                                 "modules whose parameters are gathered with all below them")))),
      at(stage_3,
         acting(or_one_text(list_of_texts(
                    "/zero_optimization/leaf_module/classes",
                    R"(["transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",)"
                    R"("transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",)"
                    R"("transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock"])",
                    "", measured, "by class, with or without its Python module")),
                set_leaf_classes)),
      at(stage_3, acting(or_one_text(list_of_texts("/zero_optimization/leaf_module/names", "[]", "",
                                                   measured, "by name, as in named_modules()")),
                         set_leaves<&LeafModules::names>)),
      at(stage_3, acting(or_one_text(list_of_texts("/zero_optimization/leaf_module/name_suffixes",
                                                   "[]", "", measured, "by end of name")),
                         set_leaves<&LeafModules::name_suffixes>)),
      flag("/zero_optimization/log_trace_cache_warnings", "false", inert, "logging"),
      flag("/zero_optimization/enable_sanity_checks", "false", inert, "checks of gradients"),
      flag("/zero_optimization/save_muon_momentum_buffer_in_memory", "false", inert,
           "Muon optimizer only"),
  };
}

std::vector<Knob> offload_rows() {
  return {
      at(stage_3, nested(optional(section("/zero_optimization/offload_param", measured,
                                          "where partitioned parameters live")))),
      at(stage_3,
         one_of("none|cpu|nvme", sets<&Config::offload_param>(
                                     "/zero_optimization/offload_param/device",
                                     set_device<&Config::offload_param>, "none, cpu or nvme"))),
      at(stage_3, acting(text("/zero_optimization/offload_param/nvme_path", "null", "", measured,
                              "folder on the disk"),
                         set_folder<&Config::offload_param>)),
      at(stage_3, from(0, sets<&Config::disk, &DiskUse::parameter_buffers>(
                              "/zero_optimization/offload_param/buffer_count",
                              "buffers for reading from the disk"))),
      at(stage_3,
         from(0, sets<&Config::disk, &DiskUse::parameter_buffer_size>(
                     "/zero_optimization/offload_param/buffer_size", "elements of a buffer"))),
      at(stage_3, from(0, sets<&Config::disk, &DiskUse::parameters_in_memory>(
                              "/zero_optimization/offload_param/max_in_cpu",
                              "elements kept in host memory beside a disk"))),
      at(stage_3, flag("/zero_optimization/offload_param/pin_memory", "true", not_built,
                       "page-locked host memory")),

      at(stages_1_2_3, nested(optional(section("/zero_optimization/offload_optimizer", measured,
                                               "where optimizer states live and are updated")))),
      at(stages_1_2_3,
         one_of("none|cpu|nvme", sets<&Config::offload_optimizer>(
                                     "/zero_optimization/offload_optimizer/device",
                                     set_device<&Config::offload_optimizer>, "none, cpu or nvme"))),
      at(stage_3, acting(text("/zero_optimization/offload_optimizer/nvme_path", "null", "",
                              measured, "folder on the disk"),
                         set_folder<&Config::offload_optimizer>)),
      at(stage_3,
         from(0, sets<&Config::disk, &DiskUse::optimizer_buffers>(
                     "/zero_optimization/offload_optimizer/buffer_count", "buffers for the disk"))),
      at(stages_1_2_3, flag("/zero_optimization/offload_optimizer/pin_memory", "true", not_built,
                            "page-locked host memory")),
      at(stage_3,
         sets<&Config::disk, &DiskUse::pipeline_read>(
             "/zero_optimization/offload_optimizer/pipeline_read", "read ahead from the disk")),
      at(stage_3,
         sets<&Config::disk, &DiskUse::pipeline_write>(
             "/zero_optimization/offload_optimizer/pipeline_write", "write behind to the disk")),
      at(stages_1_2_3, flag("/zero_optimization/offload_optimizer/fast_init", "false", inert,
                            "faster start on a disk")),
      at(stage_3, from(0, up_to(1, sets<&Config::offload_ratio>(
                                       "/zero_optimization/offload_optimizer/ratio",
                                       "share of the sub-groups whose states are offloaded")))),
      at(stage_3, flag("/zero_optimization/offload_optimizer/super_offload", "false", refused,
                       "speculative updates on the host")),
      at(stage_3, number("/zero_optimization/offload_optimizer/cpuadam_cores_perc", "0.8", 0, 1,
                         inert, "share of the cores for the update")),

      // Deprecated. DeepSpeed turns true into a section with device "cpu", false into none.
      at(stages_1_2_3, acting(flag("/zero_optimization/cpu_offload", "null", measured,
                                   "deprecated: true is offload_optimizer with device cpu"),
                              set_host<&Config::offload_optimizer>)),
      at(stage_3, acting(flag("/zero_optimization/cpu_offload_param", "null", measured,
                              "deprecated: true is offload_param with device cpu"),
                         set_host<&Config::offload_param>)),
      at(stages_1_2_3, flag("/zero_optimization/cpu_offload_use_pin_memory", "null", inert,
                            "deprecated and no longer read")),
  };
}

}  // namespace

std::vector<Knob> zero() {
  std::vector<Knob> all = stage_rows();
  for (const Knob& knob : offload_rows()) all.push_back(knob);
  return all;
}

}  // namespace dstune::rows
