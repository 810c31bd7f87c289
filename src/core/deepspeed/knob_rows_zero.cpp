/// Rows of zero_optimization.

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

using Config = TrainingConfig;

/// 0 is as good as 1.
void set_hpz(Config& config, const KnobValue& value) {
  config.zero_hpz_partition_size = std::max<std::int64_t>(1, std::get<std::int64_t>(value));
}

void set_mics(Config& config, const KnobValue& value) {
  config.mics_shard_size = mics_ranks(std::get<std::int64_t>(value));
}

template <auto member>
void set_leaves(Config& config, const KnobValue& value) {
  // No module where the value is only to be put aside.
  const auto* const lines = std::get_if<std::string>(&value);
  config.leaf_modules.*member = lines == nullptr ? "" : *lines;
}

/// DeepSpeed's default names classes of models that are not among the families here.
constexpr std::array<std::string_view, 3> default_leaf_classes = {
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock"};

std::string_view default_leaf_classes_text() {
  static const std::string text = fmt::format("[\"{}\"]", fmt::join(default_leaf_classes, "\",\""));
  return text;
}

void set_leaf_classes(Config& config, const KnobValue& value) {
  std::string& classes = config.leaf_modules.classes;
  set_leaves<&LeafModules::classes>(config, value);
  if (classes == fmt::format("{}\n", fmt::join(default_leaf_classes, "\n"))) classes.clear();
}

Knob sets_leaves(std::string_view pointer, std::string_view fallback, Knob::Apply apply,
                 std::string_view help) {
  return at(stage_3,
            acting(or_one_text(list_of_texts(pointer, fallback, "", measured, help)), apply));
}

template <auto device>
void set_device(Config& config, const KnobValue& value) {
  if (const auto word = from_text<OffloadDevice>(std::get<std::string>(value)))
    config.*device = *word;
}
template <auto device>
Knob sets_device() {
  return one_of("none|cpu|nvme", sets<device>("device", set_device<device>, "none, cpu or nvme"));
}

/// The rows of the devices come before these. A rule refuses two folders.
template <auto device>
void set_folder(Config& config, const KnobValue& value) {
  if (config.*device == OffloadDevice::nvme) config.disk.folder = std::get<std::string>(value);
}
template <auto device>
Knob sets_folder() {
  return at(stage_3, acting(text("nvme_path", "null", "", measured, "folder on the disk"),
                            set_folder<device>));
}

template <auto device>
void set_host(Config& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.*device = OffloadDevice::cpu;
}

/// A key that DeepSpeed takes without "stage3_", too.
template <auto member>
Knob sets_stage3(std::string_view pointer, std::string_view help) {
  constexpr std::string_view prefix = "stage3_";
  return also(pointer.substr(prefix.size()), sets<member>(pointer, help));
}

/// How states are partitioned and gradients are reduced, at any stage.
std::vector<Knob> reduction_rows() {
  return {
      as_flag_of("stage", model(section("/zero_optimization", measured,
                                        "partitioning of the model's states"))),
      up_to(3, from(0, sets<&Config::zero_stage>(
                           "stage",
                           "what is partitioned: 1 optimizer states, 2 and gradients, 3 and "
                           "parameters"))),
      at(stages_1_2,
         flag("allgather_partitions", "true", inert, "gather updated parameters by all-gather")),
      at(stages_1_2, integer("allgather_bucket_size", "500000000", 0, inert,
                             "elements of an all-gather; read on a legacy path only; even")),
      at(stages_1_2_3,
         optional(sets<&Config::overlap_comm>(
             "overlap_comm", "reduce gradients beside backward; unset: at stage 3 only"))),
      at(stages_1_2_3,
         sets<&Config::reduce_scatter>("reduce_scatter", "reduce to the owner instead of to all")),
      at(stages_1_2_3,
         was({v0_19_6, {}, 0},
             from(1, sets<&Config::reduce_bucket_size>("reduce_bucket_size",
                                                       "elements of gradients reduced together")))),
      at(stages_1_2,
         sets<&Config::use_multi_rank_bucket_allreduce>(
             "use_multi_rank_bucket_allreduce", "all-reduce buckets of several owners as one")),
      at(stages_1_2_3, sets<&Config::contiguous_gradients>(
                           "contiguous_gradients", "copy gradients into one buffer as they come")),
      since(v0_19_7, at(stages_1_2, sets<&Config::computes_gradient_norm>(
                                        "compute_grad_norm",
                                        "take the gradient's norm; false only at stages 1 and 2, "
                                        "without clipping and offload"))),
      since(v0_19_7, at(stages_1_2, sets<&Config::aligns_parameters>(
                                        "parameter_alignment",
                                        "each parameter from a multiple of 16 bytes on"))),
      at(stages_1_2,
         sets<&Config::round_robin_gradients>("round_robin_gradients",
                                              "deal the parameters out to their owners in turn")),
      at(stage_2,
         flag("ignore_unused_parameters", "true", inert, "allow parameters without a gradient")),
      flag("load_from_fp32_weights", "true", inert, "checkpoints"),
      flag("elastic_checkpoint", "false", inert, "checkpoints, legacy"),
      instead("remove it: DeepSpeed removed this path",
              at(stages_1_2_3, flag("legacy_stage1", "false", refused, "removed by DeepSpeed"))),
  };
}

std::vector<Knob> stage_3_rows() {
  std::vector<Knob> rows = {
      from(0, sets<&Config::sub_group_size>("sub_group_size", "elements updated together")),
      from(0, sets_stage3<&Config::stage3_prefetch_bucket_size>("stage3_prefetch_bucket_size",
                                                                "elements gathered ahead")),
      from(0,
           sets_stage3<&Config::stage3_param_persistence_threshold>(
               "stage3_param_persistence_threshold", "parameters of no more elements stay whole")),
      from(0, sets_stage3<&Config::stage3_model_persistence_threshold>(
                  "stage3_model_persistence_threshold", "elements kept whole in all")),
      from(0, sets_stage3<&Config::stage3_max_live_parameters>(
                  "stage3_max_live_parameters",
                  "gathered elements beyond which nothing is gathered ahead")),
      from(0, sets_stage3<&Config::stage3_max_reuse_distance>(
                  "stage3_max_reuse_distance",
                  "a parameter used again within so many elements is kept")),
      also("gather_16bit_weights_on_model_save",
           once("stage3_gather_fp16_weights_on_model_save",
                flag("stage3_gather_16bit_weights_on_model_save", "false", inert, "checkpoints"))),
      since(v0_16_9, sets_stage3<&Config::stage3_module_granularity_threshold>(
                         "stage3_module_granularity_threshold",
                         "modules with fewer elements a parameter are gathered whole")),
      sets_stage3<&Config::stage3_use_all_reduce_for_fetch_params>(
          "stage3_use_all_reduce_for_fetch_params",
          "gather several parameters at once by all-reduce"),
      since(v0_18_9, sets_stage3<&Config::stage3_allgather_sequential>(
                         "stage3_allgather_sequential", "one all-gather a parameter")),
      sets<&Config::memory_efficient_linear>(
          "memory_efficient_linear",
          "linear layers that hold no gathered weight from forward to backward"),
      flag("override_module_apply", "true", inert, "initialisation"),
      flag("pipeline_loading_checkpoint", "false", inert, "checkpoints"),

      from(0, sets<&Config::zero_hpz_partition_size>(
                  "zero_hpz_partition_size", set_hpz,
                  "ZeRO++: ranks that hold the parameters once more, for all gathers of a step "
                  "but the first")),
      sets<&Config::zero_quantized_weights>("zero_quantized_weights",
                                            "ZeRO++: gather parameters as numbers of 8 bits"),
      flag("zero_quantized_nontrainable_weights", "false", inert,
           "ZeRO++: frozen parameters in 8 bits; here all are trained"),
      sets<&Config::zero_quantized_gradients>(
          "zero_quantized_gradients", "ZeRO++: reduce gradients across nodes as numbers of 4 bits"),
      since(v0_16_9, until(v0_19_8, free_form(optional(section(
                                        "zeropp_loco_param", refused,
                                        "ZeRO++: error feedback of quantized reductions"))))),
      until(v0_19_7,
            acting(integer("mics_shard_size", kept(fmt::to_string(default_mics_shard_size)),
                           -unbounded, measured,
                           "MiCS: ranks that share a copy of the states; 0 and below: all"),
                   set_mics)),
      until(v0_19_7, sets<&Config::mics_hierarchical_params_gather>(
                         "mics_hierarchical_params_gather",
                         "MiCS: gather across the nodes first, then inside each")),
  };
  for (Knob& knob : rows) knob.stages = stage_3;
  return rows;
}

/// What is beside the stages.
std::vector<Knob> module_rows() {
  return {
      since(v0_17_6, free_form(optional(
                         section("zenflow", refused, "ZenFlow: asynchronous offloaded updates")))),
      since(v0_18_9, at(stage_3, nested(optional(
                                     section("/zero_optimization/leaf_module", measured,
                                             "modules whose parameters are gathered with all below "
                                             "them"))))),
      sets_leaves("classes", default_leaf_classes_text(), set_leaf_classes,
                  "by class, with or without its Python module"),
      sets_leaves("names", "[]", set_leaves<&LeafModules::names>, "by name, as in named_modules()"),
      sets_leaves("name_suffixes", "[]", set_leaves<&LeafModules::name_suffixes>, "by end of name"),
      since(v0_16_9,
            flag("/zero_optimization/log_trace_cache_warnings", "false", inert, "logging")),
      since(v0_17_6,
            flag("/zero_optimization/enable_sanity_checks", "false", inert, "checks of gradients")),
      since(v0_18_9, flag("/zero_optimization/save_muon_momentum_buffer_in_memory", "false", inert,
                          "Muon optimizer only")),
  };
}

std::vector<Knob> offload_rows() {
  return {
      at(stage_3, nested(optional(section("/zero_optimization/offload_param", measured,
                                          "where partitioned parameters live")))),
      at(stage_3, sets_device<&Config::offload_param>()),
      sets_folder<&Config::offload_param>(),
      from(0, sets_disk<&DiskUse::parameter_buffers>("buffer_count",
                                                     "buffers for reading from the disk")),
      from(0, sets_disk<&DiskUse::parameter_buffer_size>("buffer_size", "elements of a buffer")),
      from(0, sets_disk<&DiskUse::parameters_in_memory>(
                  "max_in_cpu", "elements kept in host memory beside a disk")),
      at(stage_3, was({v0_19_6, "false", {}},
                      flag("pin_memory", "true", not_built, "page-locked host memory"))),

      at(stages_1_2_3, nested(optional(section("/zero_optimization/offload_optimizer", measured,
                                               "where optimizer states live and are updated")))),
      at(stages_1_2_3, sets_device<&Config::offload_optimizer>()),
      sets_folder<&Config::offload_optimizer>(),
      from(0, sets_disk<&DiskUse::optimizer_buffers>("buffer_count", "buffers for the disk")),
      at(stages_1_2_3, was({v0_19_6, "false", {}},
                           flag("pin_memory", "true", not_built, "page-locked host memory"))),
      sets_disk<&DiskUse::pipeline_read>("pipeline_read", "read ahead from the disk"),
      sets_disk<&DiskUse::pipeline_write>("pipeline_write", "write behind to the disk"),
      at(stages_1_2_3, flag("fast_init", "false", inert, "faster start on a disk")),
      at(stage_3,
         from(0, up_to(1, sets<&Config::offload_ratio>(
                              "ratio", "share of the sub-groups whose states are offloaded")))),
      since(v0_18_9, at(stage_3, flag("super_offload", "false", refused,
                                      "speculative updates on the host"))),
      since(v0_18_9, at(stage_3, number("cpuadam_cores_perc", "0.8", 0, 1, inert,
                                        "share of the cores for the update"))),

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
  return joined(reduction_rows(), stage_3_rows(), module_rows(), offload_rows());
}

}  // namespace dstune::rows
