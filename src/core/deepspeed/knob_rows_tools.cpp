#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

// Logging, profiling, monitoring and checkpoints: beside the step, except where they wait for the
// device.
constexpr std::array table = {

    integer("/steps_per_print", "null", -unbounded, inert, "logging"),
    not_null(not_auto(flag("/wall_clock_breakdown", "false", not_built,
                           "times parts of the step, waiting for each"))),
    flag("/memory_breakdown", "false", not_built, "prints memory at each part of the step"),
    flag("/dump_state", "false", inert, "logging"),
    in_any_case(text("/log_level", "null", "debug|info|warning|error|critical", inert, "logging")),

    section("/flops_profiler", inert, "profiling of one step"),
    not_null(not_auto(flag("/flops_profiler/enabled", "false", inert, "on or off"))),
    number("/flops_profiler/recompute_fwd_factor", "0.0", -unbounded, unbounded, inert,
           "share of forward that is computed again"),
    integer("/flops_profiler/profile_step", "1", -unbounded, inert, "the step that is profiled"),
    integer("/flops_profiler/module_depth", "-1", -unbounded, inert, "levels that are printed"),
    integer("/flops_profiler/top_modules", "1", -unbounded, inert, "modules that are printed"),
    flag("/flops_profiler/detailed", "true", inert, "print each module"),
    text("/flops_profiler/output_file", "null", "", inert, "where to; unset: standard output"),

    model(section("/comms_logger", inert, "logging of collectives")),
    flag("/comms_logger/enabled", "false", not_built, "times each collective, waiting for it"),
    flag("/comms_logger/prof_all", "true", inert, "all of them"),
    list("/comms_logger/prof_ops", "[]", inert, "or these"),
    flag("/comms_logger/verbose", "false", inert, "log each at once"),
    flag("/comms_logger/debug", "false", inert, "log the caller"),

    section("/timers", inert, "timers"),
    model(section("/timers/throughput", inert, "the timer of samples a second")),
    flag("/timers/throughput/enabled", "true", inert, "on or off"),
    flag("/timers/throughput/synchronized", "true", not_built, "wait for the device"),

    nested(section("/tensorboard", inert, "monitoring")),
    flag("/tensorboard/enabled", "false", inert, "on or off"),
    text("/tensorboard/output_path", "\"\"", "", inert, "folder"),
    text("/tensorboard/job_name", "\"DeepSpeedJobName\"", "", inert, "folder in it"),
    nested(section("/csv_monitor", inert, "monitoring")),
    flag("/csv_monitor/enabled", "false", inert, "on or off"),
    text("/csv_monitor/output_path", "\"\"", "", inert, "folder"),
    text("/csv_monitor/job_name", "\"DeepSpeedJobName\"", "", inert, "folder in it"),
    nested(section("/wandb", inert, "monitoring by Weights & Biases")),
    flag("/wandb/enabled", "false", inert, "on or off"),
    text("/wandb/group", "null", "", inert, "group of runs"),
    text("/wandb/team", "null", "", inert, "team"),
    text("/wandb/project", "\"deepspeed\"", "", inert, "project"),
    nested(section("/comet", inert, "monitoring by Comet")),
    flag("/comet/enabled", "false", inert, "on or off"),
    integer("/comet/samples_log_interval", "100", -unbounded, inert, "samples between entries"),
    text("/comet/project", "null", "", inert, "project"),
    text("/comet/workspace", "null", "", inert, "workspace"),
    text("/comet/api_key", "null", "", inert, "key of the account"),
    text("/comet/experiment_name", "null", "", inert, "name of the run"),
    text("/comet/experiment_key", "null", "", inert, "key of the run"),
    flag("/comet/online", "null", inert, "send at once"),
    text("/comet/mode", "null", "", inert, "get, create or get_or_create"),

    section("/checkpoint", inert, "checkpoints"),
    not_null(not_auto(in_any_case(text("/checkpoint/tag_validation", "\"WARN\"", "WARN|IGNORE|FAIL",
                                       inert, "when ranks disagree on the tag")))),
    flag("/checkpoint/checkpoint_serialization", "true", inert, "PyTorch's zip format"),
    flag("/checkpoint/load_universal", "false", inert, "load universal checkpoints"),
    flag("/checkpoint/use_node_local_storage", "false", inert, "each node has its own disk"),
    section("/checkpoint/parallel_write", inert, "writing by several ranks"),
    not_null(not_auto(flag("/checkpoint/parallel_write/pipeline_stage", "false", inert,
                           "of a pipeline's stages"))),
    optional(section("/checkpoint/writer", inert, "how files are written")),
    not_auto(in_any_case(
        text("/checkpoint/writer/type", "\"FAST\"", "MOCK|PYTHON|FAST", inert, "kind"))),
    integer("/checkpoint/writer/io_buffer_size", "67108864", -unbounded, inert, "bytes"),
    flag("/checkpoint/writer/io_buffer_double", "true", inert, "two buffers"),
    flag("/checkpoint/writer/show_statistics", "false", inert, "logging"),
    not_auto(in_any_case(text("/checkpoint/writer/data_parallel", "null", "REPLICA|SOCKET|MACHINE",
                              inert, "ranks that write"))),
    flag("/checkpoint/writer/decoupled", "false", inert, "write beside training"),
    integer("/checkpoint/writer/io_multiplier", "1", -unbounded, inert, "writers a device"),
    optional(section("/datastates_ckpt", inert, "checkpoints by DataStates")),
    section("/nebula", inert, "checkpoints by Nebula"),
    flag("/nebula/enabled", "false", inert, "on or off"),
    text("/nebula/nebula_load_path", "null", "", inert, "folder to load from"),
    flag("/nebula/enable_nebula_load", "true", inert, "load by Nebula too"),
    text("/nebula/persistent_storage_path", "null", "", inert, "folder to write to"),
    integer("/nebula/persistent_time_interval", "100", -unbounded, inert, "seconds"),
    integer("/nebula/num_of_version_in_retention", "2", -unbounded, inert, "kept versions"),
};

}  // namespace

std::span<const Knob> tools() {
  return table;
}

}  // namespace dstune::rows
