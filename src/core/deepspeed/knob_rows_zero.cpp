#include <algorithm>
#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

template <auto member>
void set(TrainingConfig& config, const KnobValue& value) {
  auto& target = config.*member;
  target = std::get<std::remove_reference_t<decltype(target)>>(value);
}

void set_stage(TrainingConfig& config, const KnobValue& value) {
  config.zero_stage = static_cast<int>(std::get<std::int64_t>(value));
}

/// 0 is as good as 1.
void set_hpz(TrainingConfig& config, const KnobValue& value) {
  config.zero_hpz_partition_size = std::max<std::int64_t>(1, std::get<std::int64_t>(value));
}

template <auto member>
void set_leaves(TrainingConfig& config, const KnobValue& value) {
  // No module where the value is only to be put aside.
  const auto* const lines = std::get_if<std::string>(&value);
  config.leaf_modules.*member = lines == nullptr ? "" : *lines;
}

/// DeepSpeed's default names classes of models that are not among the families here.
void set_leaf_classes(TrainingConfig& config, const KnobValue& value) {
  constexpr std::string_view usual =
      "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock\n"
      "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock\n"
      "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock\n";
  set_leaves<&LeafModules::classes>(config, value);
  if (config.leaf_modules.classes == usual) config.leaf_modules.classes.clear();
}

void set_mics(TrainingConfig& config, const KnobValue& value) {
  config.mics_shard_size = std::max<std::int64_t>(0, std::get<std::int64_t>(value));
}

constexpr std::array table = {
    model(section("/zero_optimization", measured, "partitioning of the model's states")),
    up_to(3, acting(integer("/zero_optimization/stage", "0", 0, measured,
                            "what is partitioned: 1 optimizer states, 2 and gradients, 3 and "
                            "parameters"),
                    set_stage)),
    at(stages_1_2, flag("/zero_optimization/allgather_partitions", "true", inert,
                        "gather updated parameters by all-gather")),
    at(stages_1_2, integer("/zero_optimization/allgather_bucket_size", "500000000", 0, inert,
                           "elements of an all-gather; read on a legacy path only; even")),
    at(stages_1_2_3, acting(flag("/zero_optimization/overlap_comm", "null", measured,
                                 "reduce gradients beside backward; unset: at stage 3 only"),
                            set<&TrainingConfig::overlap_comm>)),
    at(stages_1_2_3, acting(flag("/zero_optimization/reduce_scatter", "true", measured,
                                 "reduce to the owner instead of to all"),
                            set<&TrainingConfig::reduce_scatter>)),
    at(stages_1_2_3, acting(integer("/zero_optimization/reduce_bucket_size", "500000000", 1,
                                    measured, "elements of gradients reduced together"),
                            set<&TrainingConfig::reduce_bucket_size>)),
    at(stages_1_2, acting(flag("/zero_optimization/use_multi_rank_bucket_allreduce", "true",
                               measured, "all-reduce buckets of several owners as one"),
                          set<&TrainingConfig::use_multi_rank_bucket_allreduce>)),
    at(stages_1_2_3, acting(flag("/zero_optimization/contiguous_gradients", "true", measured,
                                 "copy gradients into one buffer as they come"),
                            set<&TrainingConfig::contiguous_gradients>)),
    at(stages_1_2, acting(flag("/zero_optimization/round_robin_gradients", "false", measured,
                               "deal the parameters out to their owners in turn"),
                          set<&TrainingConfig::round_robin_gradients>)),
    at(stage_2, flag("/zero_optimization/ignore_unused_parameters", "true", inert,
                     "allow parameters without a gradient")),
    flag("/zero_optimization/load_from_fp32_weights", "true", inert, "checkpoints"),
    flag("/zero_optimization/elastic_checkpoint", "false", inert, "checkpoints, legacy"),
    instead("remove it: DeepSpeed removed this path",
            at(stages_1_2_3,
               flag("/zero_optimization/legacy_stage1", "false", refused, "removed by DeepSpeed"))),

    at(stage_3, acting(integer("/zero_optimization/sub_group_size", "1000000000", 0, measured,
                               "elements updated together"),
                       set<&TrainingConfig::sub_group_size>)),
    at(stage_3, acting(integer("/zero_optimization/stage3_prefetch_bucket_size", "50000000", 0,
                               measured, "elements gathered ahead"),
                       set<&TrainingConfig::stage3_prefetch_bucket_size>)),
    at(stage_3, acting(integer("/zero_optimization/prefetch_bucket_size", "50000000", 0, measured,
                               "another name of stage3_prefetch_bucket_size"),
                       set<&TrainingConfig::stage3_prefetch_bucket_size>)),
    at(stage_3, acting(integer("/zero_optimization/stage3_param_persistence_threshold", "100000", 0,
                               measured, "parameters of no more elements stay whole"),
                       set<&TrainingConfig::stage3_param_persistence_threshold>)),
    at(stage_3, acting(integer("/zero_optimization/param_persistence_threshold", "100000", 0,
                               measured, "another name of stage3_param_persistence_threshold"),
                       set<&TrainingConfig::stage3_param_persistence_threshold>)),
    at(stage_3, acting(integer("/zero_optimization/stage3_model_persistence_threshold",
                               "9223372036854775807", 0, measured, "elements kept whole in all"),
                       set<&TrainingConfig::stage3_model_persistence_threshold>)),
    at(stage_3,
       acting(integer("/zero_optimization/model_persistence_threshold", "9223372036854775807", 0,
                      measured, "another name of stage3_model_persistence_threshold"),
              set<&TrainingConfig::stage3_model_persistence_threshold>)),
    at(stage_3,
       acting(integer("/zero_optimization/stage3_max_live_parameters", "1000000000", 0, measured,
                      "gathered elements beyond which nothing is gathered ahead"),
              set<&TrainingConfig::stage3_max_live_parameters>)),
    at(stage_3, acting(integer("/zero_optimization/max_live_parameters", "1000000000", 0, measured,
                               "another name of stage3_max_live_parameters"),
                       set<&TrainingConfig::stage3_max_live_parameters>)),
    at(stage_3, acting(integer("/zero_optimization/stage3_max_reuse_distance", "1000000000", 0,
                               measured, "a parameter used again within so many elements is kept"),
                       set<&TrainingConfig::stage3_max_reuse_distance>)),
    at(stage_3, acting(integer("/zero_optimization/max_reuse_distance", "1000000000", 0, measured,
                               "another name of stage3_max_reuse_distance"),
                       set<&TrainingConfig::stage3_max_reuse_distance>)),
    at(stage_3, flag("/zero_optimization/stage3_gather_16bit_weights_on_model_save", "false", inert,
                     "checkpoints")),
    at(stage_3, flag("/zero_optimization/gather_16bit_weights_on_model_save", "false", inert,
                     "another name of stage3_gather_16bit_weights_on_model_save")),
    at(stage_3, flag("/zero_optimization/stage3_gather_fp16_weights_on_model_save", "false", inert,
                     "deprecated name of stage3_gather_16bit_weights_on_model_save")),
    at(stage_3,
       acting(integer("/zero_optimization/stage3_module_granularity_threshold", "0", -unbounded,
                      measured, "modules with fewer elements a parameter are gathered whole"),
              set<&TrainingConfig::stage3_module_granularity_threshold>)),
    at(stage_3, acting(integer("/zero_optimization/module_granularity_threshold", "0", -unbounded,
                               measured, "another name of stage3_module_granularity_threshold"),
                       set<&TrainingConfig::stage3_module_granularity_threshold>)),
    at(stage_3, acting(flag("/zero_optimization/stage3_use_all_reduce_for_fetch_params", "false",
                            measured, "gather several parameters at once by all-reduce"),
                       set<&TrainingConfig::stage3_use_all_reduce_for_fetch_params>)),
    at(stage_3, acting(flag("/zero_optimization/use_all_reduce_for_fetch_params", "false", measured,
                            "another name of stage3_use_all_reduce_for_fetch_params"),
                       set<&TrainingConfig::stage3_use_all_reduce_for_fetch_params>)),
    at(stage_3, acting(flag("/zero_optimization/stage3_allgather_sequential", "false", measured,
                            "one all-gather a parameter"),
                       set<&TrainingConfig::stage3_allgather_sequential>)),
    at(stage_3, acting(flag("/zero_optimization/allgather_sequential", "false", measured,
                            "another name of stage3_allgather_sequential"),
                       set<&TrainingConfig::stage3_allgather_sequential>)),
    at(stage_3, acting(flag("/zero_optimization/memory_efficient_linear", "true", measured,
                            "linear layers that hold no gathered weight from forward to backward"),
                       set<&TrainingConfig::memory_efficient_linear>)),
    at(stage_3, flag("/zero_optimization/override_module_apply", "true", inert, "initialisation")),
    at(stage_3,
       flag("/zero_optimization/pipeline_loading_checkpoint", "false", inert, "checkpoints")),

    at(stage_3, acting(integer("/zero_optimization/zero_hpz_partition_size", "1", 0, measured,
                               "ZeRO++: ranks that hold the parameters once more, for all gathers "
                               "of a step but the first"),
                       set_hpz)),
    at(stage_3, acting(flag("/zero_optimization/zero_quantized_weights", "false", measured,
                            "ZeRO++: gather parameters as numbers of 8 bits"),
                       set<&TrainingConfig::zero_quantized_weights>)),
    at(stage_3, flag("/zero_optimization/zero_quantized_nontrainable_weights", "false", inert,
                     "ZeRO++: frozen parameters in 8 bits; here all are trained")),
    at(stage_3, acting(flag("/zero_optimization/zero_quantized_gradients", "false", measured,
                            "ZeRO++: reduce gradients across nodes as numbers of 4 bits"),
                       set<&TrainingConfig::zero_quantized_gradients>)),
    at(stage_3, free_form(optional(section("/zero_optimization/zeropp_loco_param", refused,
                                           "ZeRO++: error feedback of quantized reductions")))),
    at(stage_3, acting(integer("/zero_optimization/mics_shard_size", "-1", -unbounded, measured,
                               "MiCS: ranks that share a copy of the states; 0 and below: all"),
                       set_mics)),
    at(stage_3, acting(flag("/zero_optimization/mics_hierarchical_params_gather", "false", measured,
                            "MiCS: gather across the nodes first, then inside each"),
                       set<&TrainingConfig::mics_hierarchical_params_gather>)),
    free_form(optional(
        section("/zero_optimization/zenflow", refused, "ZenFlow: asynchronous offloaded updates"))),
    at(stage_3,
       nested(optional(section("/zero_optimization/leaf_module", measured,
                               "modules whose parameters are gathered with all below them")))),
    at(stage_3,
       acting(list_of_texts(
                  "/zero_optimization/leaf_module/classes",
                  R"(["transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",)"
                  R"("transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",)"
                  R"("transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock"])",
                  "", measured, "by class, with or without its Python module"),
              set_leaf_classes)),
    at(stage_3, acting(list_of_texts("/zero_optimization/leaf_module/names", "[]", "", measured,
                                     "by name, as in named_modules()"),
                       set_leaves<&LeafModules::names>)),
    at(stage_3, acting(list_of_texts("/zero_optimization/leaf_module/name_suffixes", "[]", "",
                                     measured, "by end of name"),
                       set_leaves<&LeafModules::name_suffixes>)),
    flag("/zero_optimization/log_trace_cache_warnings", "false", inert, "logging"),
    flag("/zero_optimization/enable_sanity_checks", "false", inert, "checks of gradients"),
    flag("/zero_optimization/save_muon_momentum_buffer_in_memory", "false", inert,
         "Muon optimizer only"),
};

}  // namespace

std::span<const Knob> zero_stage() {
  return table;
}

}  // namespace dstune::rows
