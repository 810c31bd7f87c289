/// Rows of what stands beside training: tools, features of their own, data.

#include <array>

#include <fmt/format.h>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

// Logging, profiling, monitoring and checkpoints: beside the step, except where they wait for the
// device.
constexpr std::array tools_rows = {
    was({v0_15_4, "10", {}}, any_integer("/steps_per_print", "null", "logging")),
    not_null(not_auto(flag("/wall_clock_breakdown", "false", not_built,
                           "times parts of the step, waiting for each"))),
    flag("/memory_breakdown", "false", not_built, "prints memory at each part of the step"),
    flag("/dump_state", "false", inert, "logging"),
    since(v0_19_6, in_any_case(text("/log_level", "null", "debug|info|warning|error|critical",
                                    inert, "logging"))),

    section("/flops_profiler", inert, "profiling of one step"),
    not_null(not_auto(flag("enabled", "false", inert, "on or off"))),
    number("recompute_fwd_factor", "0.0", -unbounded, unbounded, inert,
           "share of forward that is computed again"),
    any_integer("profile_step", "1", "the step that is profiled"),
    any_integer("module_depth", "-1", "levels that are printed"),
    any_integer("top_modules", "1", "modules that are printed"),
    flag("detailed", "true", inert, "print each module"),
    text("output_file", "null", "", inert, "where to; unset: standard output"),

    model(section("/comms_logger", inert, "logging of collectives")),
    flag("enabled", "false", not_built, "times each collective, waiting for it"),
    flag("prof_all", "true", inert, "all of them"),
    list("prof_ops", "[]", inert, "or these"),
    flag("verbose", "false", inert, "log each at once"),
    flag("debug", "false", inert, "log the caller"),

    section("/timers", inert, "timers"),
    model(section("/timers/throughput", inert, "the timer of samples a second")),
    flag("enabled", "true", inert, "on or off"),
    flag("synchronized", "true", not_built, "wait for the device"),

    nested(section("/tensorboard", inert, "monitoring")),
    flag("enabled", "false", inert, "on or off"),
    text("output_path", "\"\"", "", inert, "folder"),
    text("job_name", "\"DeepSpeedJobName\"", "", inert, "folder in it"),
    nested(section("/csv_monitor", inert, "monitoring")),
    flag("enabled", "false", inert, "on or off"),
    text("output_path", "\"\"", "", inert, "folder"),
    text("job_name", "\"DeepSpeedJobName\"", "", inert, "folder in it"),
    nested(section("/wandb", inert, "monitoring by Weights & Biases")),
    flag("enabled", "false", inert, "on or off"),
    text("group", "null", "", inert, "group of runs"),
    text("team", "null", "", inert, "team"),
    text("project", "\"deepspeed\"", "", inert, "project"),
    nested(section("/comet", inert, "monitoring by Comet")),
    flag("enabled", "false", inert, "on or off"),
    any_integer("samples_log_interval", "100", "samples between entries"),
    text("project", "null", "", inert, "project"),
    text("workspace", "null", "", inert, "workspace"),
    text("api_key", "null", "", inert, "key of the account"),
    text("experiment_name", "null", "", inert, "name of the run"),
    text("experiment_key", "null", "", inert, "key of the run"),
    flag("online", "null", inert, "send at once"),
    text("mode", "null", "", inert, "get, create or get_or_create"),

    section("/checkpoint", inert, "checkpoints"),
    not_null(not_auto(in_any_case(text("tag_validation", "\"WARN\"", "WARN|IGNORE|FAIL", inert,
                                       "when ranks disagree on the tag")))),
    since(v0_17_6, flag("checkpoint_serialization", "true", inert, "PyTorch's zip format")),
    flag("load_universal", "false", inert, "load universal checkpoints"),
    flag("use_node_local_storage", "false", inert, "each node has its own disk"),
    section("/checkpoint/parallel_write", inert, "writing by several ranks"),
    not_null(not_auto(flag("pipeline_stage", "false", inert, "of a pipeline's stages"))),
    since(v0_17_6, optional(section("/checkpoint/writer", inert, "how files are written"))),
    not_auto(in_any_case(text("type", "\"FAST\"", "MOCK|PYTHON|FAST", inert, "kind"))),
    any_integer("io_buffer_size", "67108864", "bytes"),
    flag("io_buffer_double", "true", inert, "two buffers"),
    flag("show_statistics", "false", inert, "logging"),
    not_auto(in_any_case(
        text("data_parallel", "null", "REPLICA|SOCKET|MACHINE", inert, "ranks that write"))),
    flag("decoupled", "false", inert, "write beside training"),
    any_integer("io_multiplier", "1", "writers a device"),
    since(v0_18_9, optional(section("/datastates_ckpt", inert, "checkpoints by DataStates"))),
    until(v0_19_7, section("/nebula", inert, "checkpoints by Nebula")),
    flag("enabled", "false", inert, "on or off"),
    text("nebula_load_path", "null", "", inert, "folder to load from"),
    flag("enable_nebula_load", "true", inert, "load by Nebula too"),
    text("persistent_storage_path", "null", "", inert, "folder to write to"),
    any_integer("persistent_time_interval", "100", "seconds"),
    any_integer("num_of_version_in_retention", "2", "kept versions"),
};

// Parts of DeepSpeed that train in another way: their switches are refused by name.
constexpr std::array features_rows = {
    until(v0_19_8, section("/elasticity", inert, "batch sizes for changing numbers of GPUs")),
    not_auto(flag("enabled", "false", refused, "on or off")),

    since(v0_16_9, model(section("/tensor_parallel", inert, "tensor parallelism"))),
    integer("autotp_size", "0", -unbounded, refused, "ranks that share a layer"),
    text("dtype", "\"auto\"", "auto", inert, "set by programs alone"),
    flag("tp_overlap_comm", "false", inert, "overlap its collectives"),
    since(v0_19_8, flag("vocab_parallel_lm_head", "null", inert, "the head by vocabulary")),
    since(v0_19_8, text("vocab_parallel_ce_backend", "\"torch\"", "torch|liger", inert,
                        "whose cross-entropy")),
    also("tensor_parallel",
         with_all_names(nested(section("/tensor_parallel/tp", inert, "groups")))),
    integer("tp_size", "1", -unbounded, refused, "ranks of a group"),
    any_integer("tp_grain_size", "1", "grain of a split"),
    optional(section("mpu", inert, "set by programs alone")),
    optional(section("tp_group", inert, "set by programs alone")),
    list("/tensor_parallel/injection_policy_tuple", "null", inert, "layers that are split"),
    since(v0_18_9, free_form(optional(
                       section("/tensor_parallel/partition_config", inert, "how they are split")))),
    since(v0_18_9,
          text("/tensor_parallel/preset_model", "null", "", inert, "a known model's split")),
    flag("/tensor_parallel/keep_module_on_host", "false", inert, "load weights to the host"),
    also("replace_with_kernel_inject", with_all_names(flag("/tensor_parallel/kernel_inject",
                                                           "false", inert, "inference kernels"))),
    since(v0_17_6,
          not_null(integer("/sequence_parallel_size", "1", 1, refused, "sequence parallelism"))),
    section("/pipeline", inert, "pipeline parallelism, for models built of stages"),
    since(v0_19_6, section("/expert_parallel", inert, "expert parallelism")),
    flag("enabled", "false", refused, "on or off"),
    flag("/use_data_before_expert_parallelism", "false", inert, "order of expert-parallel ranks"),

    model(section("/hybrid_engine", inert, "training and generation in turn")),
    flag("enabled", "false", refused, "on or off"),
    was({v0_19_7, {}, -unbounded}, integer("max_out_tokens", "512", 1, inert, "generated tokens")),
    any_integer("inference_tp_size", "1", "ranks that generate"),
    flag("release_inference_cache", "false", inert, "free it after generating"),
    flag("pin_parameters", "true", inert, "keep them gathered"),
    any_integer("tp_gather_partition_size", "8", "gathered at once"),
    since(v0_19_6, flag("enable_cuda_graph", "false", inert, "generation in CUDA graphs")),

    since(v0_16_9,
          model(section("/compile", inert, "DeepCompile, where the program calls compile()"))),
    flag("deepcompile", "false", refused, "on or off"),
    since(v0_19_8, flag("autoep_non_moe", "false", inert, "around layers of experts")),
    flag("free_activation", "false", inert, "free activations early"),
    since(v0_18_9, any_integer("free_activation_threshold", "10485760", "bytes")),
    flag("offload_activation", "false", inert, "activations to the host"),
    since(v0_19_6, flag("offload_activation_pin_memory", "true", inert, "page-locked host memory")),
    flag("offload_opt_states", "false", inert, "optimizer states to the host"),
    flag("double_buffer", "true", inert, "two buffers"),
    flag("symmetric_memory", "false", inert, "symmetric memory"),
    flag("debug_log", "false", inert, "logging"),
    flag("offload_parameters", "false", inert, "parameters to the host"),
    flag("sync_before_reduce", "false", inert, "wait there"),
    flag("sync_after_reduce", "false", inert, "wait there"),
    flag("sync_before_allgather", "false", inert, "wait there"),
    flag("sync_after_allgather", "false", inert, "wait there"),
    since(v0_17_6, flag("keep_int_input_tensors", "true", inert, "for tracing")),
    since(v0_17_6, flag("keep_all_input_tensors", "false", inert, "for tracing")),
    since(v0_18_9, list_of_texts("passes", "null", "z1|z3|autosp|autotp", inert, "its passes")),

    until(v0_19_7, section("/sparse_attention", refused, "sparse attention")),
    until(v0_19_7, section("/quantize_training", inert,
                           "quantization by eigenvalues, taken out of DeepSpeed")),
    until(v0_19_8,
          section("/eigenvalue", inert, "quantization by eigenvalues, taken out of DeepSpeed")),
    model(section("/weight_quantization", inert, "of inference")),
    flag("enabled", "true", inert, "on or off"),
    any_integer("num_bits", "8", "bits of a weight"),
    text("q_type", "\"symmetric\"", "asymmetric|symmetric", inert, "kind"),
    any_integer("q_groups", "1", "groups"),
    free_form(section("quantized_initialization", inert, "while loading")),
    free_form(section("post_init_quant", inert, "after loading")),
};

// What changes the data or the model while training: their switches are refused by name.
constexpr std::array data_rows = {
    flag("/dataloader_drop_last", "false", inert, "leave out the last, smaller batch"),
    not_auto(any_integer("/vocabulary_size", "null", "a warning where it is odd")),
    until(v0_19_8, needing("enabled", section("/curriculum_learning", inert,
                                              "sequences that grow during training"))),
    flag("enabled", "false", refused, "on or off"),
    until(v0_19_8,
          needing("enabled", section("/progressive_layer_drop", inert, "skipping of layers"))),
    flag("enabled", "false", refused, "on or off"),

    section("/data_efficiency", inert, "sampling and dropping of data"),
    flag("enabled", "false", refused, "on or off"),
    any_integer("seed", "1234", "seed"),
    section("/data_efficiency/data_sampling", inert, "sampling"),
    flag("enabled", "false", inert, "on or off"),
    any_integer("num_epochs", "1000", "epochs"),
    any_integer("num_workers", "0", "loaders"),
    since(v0_16_9, flag("pin_memory", "false", inert, "page-locked memory")),
    section("/data_efficiency/data_sampling/curriculum_learning", inert, "easy samples first"),
    not_auto(flag("enabled", "false", refused, "on or off")),
    since(v0_16_9,
          section("/data_efficiency/data_sampling/dynamic_batching", inert, "batches by length")),
    not_auto(flag("enabled", "false", refused, "on or off")),
    text("lr_scaling_method", "\"linear\"", "", inert, "linear, sqrt or none"),
    not_null(not_auto(any_integer("min_batch_size", "1", "samples"))),
    not_null(not_auto(any_integer("max_batch_size", "null", "samples"))),
    text("sequence_picking_order", "\"dataloader\"", "", inert, "random, seqlen or dataloader"),
    flag("verbose", "false", inert, "logging"),
    section("/data_efficiency/data_routing", inert, "dropping of tokens"),
    flag("enabled", "false", inert, "on or off"),
    section("/data_efficiency/data_routing/random_ltd", inert, "random layerwise dropping"),
    flag("enabled", "false", refused, "on or off"),

    until(v0_19_7, section("/compression_training", inert, "quantization and pruning")),
    section("shared_parameters", inert, "of quantization"),
    section("/compression_training/layer_reduction", inert, "a student with fewer layers"),
    flag("enabled", "false", refused, "on or off"),
    needing("different_groups|shared_parameters",
            section("/compression_training/weight_quantization", inert, "weight quantization")),
    section("/compression_training/weight_quantization/shared_parameters", inert, "of all groups"),
    flag("enabled", "false", refused, "on or off"),
    not_null(not_auto(
        text("quantization_type", "\"symmetric\"", "symmetric|asymmetric", inert, "kind"))),
    not_null(not_auto(text("rounding", "\"nearest\"", "nearest|stochastic", inert, "rounding"))),
    flag("quantizer_kernel", "false", inert, "DeepSpeed's kernel"),
    any_integer("schedule_offset", "0", "first step"),
    any_integer("quantize_groups", "1", "groups"),
    flag("quantize_verbose", "false", inert, "logging"),
    flag("quantize_weight_in_forward", "false", inert, "in forward"),
    section("fp16_mixed_quantize", inert, "mixed with fp16"),
    of_sections(section("/compression_training/weight_quantization/different_groups", inert,
                        "groups of modules")),
};

/// A method of compression: what all but weight quantization have in common, and its own rows.
std::vector<Knob> compression_rows(std::string_view method, std::string_view help,
                                   const std::vector<Knob>& own) {
  const std::string pointer = fmt::format("/compression_training/{}", method);
  const std::array before = {
      needing("different_groups", section(kept(pointer), inert, help)),
      section(kept(pointer + "/shared_parameters"), inert, "of all groups"),
      flag("enabled", "false", refused, "on or off"),
  };
  const std::array behind = {
      any_integer("schedule_offset", "1000", "first step"),
      of_sections(section(kept(pointer + "/different_groups"), inert, "groups of modules")),
  };
  return joined(before, own, behind);
}

std::vector<Knob> pruning_rows(std::string_view method, std::string_view help,
                               std::string_view fallback, std::string_view choices) {
  return compression_rows(method, help,
                          {not_null(not_auto(text("method", fallback, choices, inert, "method")))});
}

}  // namespace

std::vector<Knob> beside_training() {
  return joined(tools_rows, features_rows, data_rows,
                compression_rows("activation_quantization", "activation quantization",
                                 {not_null(not_auto(text("quantization_type", "\"symmetric\"",
                                                         "symmetric|asymmetric", inert, "kind"))),
                                  not_null(not_auto(text("range_calibration", "\"dynamic\"",
                                                         "dynamic|static", inert, "range")))}),
                pruning_rows("sparse_pruning", "sparse pruning", "\"l1\"", "l1|topk|snip_momentum"),
                pruning_rows("row_pruning", "row pruning", "\"l1\"", "l1|topk"),
                pruning_rows("head_pruning", "head pruning", "\"topk\"", "l1|topk"),
                pruning_rows("channel_pruning", "channel pruning", "\"l1\"", "l1|topk"));
}

}  // namespace dstune::rows
