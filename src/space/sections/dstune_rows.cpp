#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Readings = std::vector<Reading>;

const std::string& text_of(const Readings& readings) {
  return std::get<std::string>(readings.front().value);
}
double number_of(const Readings& readings) {
  return std::get<double>(readings.front().value);
}

void keep_model(SectionTarget& target, const Readings& readings) {
  target.model = readings.front().node;
}
void keep_sequence_length(SectionTarget& target, const Readings& readings) {
  target.sequence_length = readings.front();
}
void keep_gpus(SectionTarget& target, const Readings& readings) {
  target.num_gpus = readings;
}
void keep_nodes(SectionTarget& target, const Readings& readings) {
  target.num_nodes = readings;
}

void set_recompute(SectionTarget& target, const Readings& readings) {
  target.job->recompute.clear();
  for (const Reading& reading : readings) {
    for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::block})
      if (std::get<std::string>(reading.value) == to_text(mode))
        target.job->recompute.push_back(mode);
  }
}

void set_checkpointing(SectionTarget& target, const Readings& readings) {
  target.job->target.checkpointing = text_of(readings) == "deepspeed"
                                         ? TargetCheckpointing::deepspeed
                                         : TargetCheckpointing::torch;
}

template <std::optional<std::int64_t> JobSpec::*memory_bytes>
void set_memory(SectionTarget& target, const Readings& readings) {
  target.job->*memory_bytes = std::get<std::int64_t>(readings.front().value);
}
template <std::optional<std::int64_t> JobSpec::*memory_bytes>
void parse_memory(SectionTarget& target, const Readings& readings) {
  const auto bytes = parse_bytes(text_of(readings));
  if (bytes && *bytes > 0) {
    target.job->*memory_bytes = *bytes;
  } else {
    target.problems->add(readings.front().node.problem(fmt::format(
        "expected an amount of memory such as \"64GiB\", got \"{}\"", text_of(readings))));
  }
}

void set_framework(SectionTarget& target, const Readings& readings) {
  target.job->target.framework =
      text_of(readings) == "self" ? TargetFramework::self : TargetFramework::huggingface;
}
void set_attention(SectionTarget& target, const Readings& readings) {
  const std::string& word = text_of(readings);
  target.job->target.attention = word == "eager"   ? TargetAttention::eager
                                 : word == "flash" ? TargetAttention::flash
                                                   : TargetAttention::sdpa;
}

void set_trial_budget(SectionTarget& target, const Readings& readings) {
  target.job->tuning.measure.trial_budget_s = number_of(readings);
}
void set_training_command(SectionTarget& target, const Readings& readings) {
  target.job->training_command = text_of(readings);
}

void set_workload(SectionTarget& target, const Readings& readings) {
  const std::string& word = text_of(readings);
  target.job->workload.kind = word == "synthetic" ? WorkloadKind::synthetic
                              : word == "replay"  ? WorkloadKind::replay
                              : word == "plugin"  ? WorkloadKind::plugin
                                                  : WorkloadKind::transformer;
}
/// Every member of the object is the plug-in's to read.
void keep_plugin_options(SectionTarget& target, const Readings& readings) {
  if (target.job->workload.kind == WorkloadKind::plugin)
    target.job->workload.options = readings.front().node.value();
}
void set_library(SectionTarget& target, const Readings& readings) {
  set_plugin_library(readings.front().node, path_from(target.job->folder, text_of(readings)),
                     target.job->workload, *target.problems);
}
void set_step_time(SectionTarget& target, const Readings& readings) {
  target.job->workload.step_time_s = number_of(readings);
}
void set_time_scale(SectionTarget& target, const Readings& readings) {
  target.job->workload.time_scale = number_of(readings);
}
void set_table(SectionTarget& target, const Readings& readings) {
  read_replay_table(path_from(target.job->folder, text_of(readings)), target.job->workload,
                    *target.problems);
}

bool is_regular_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

void find_templates(SectionTarget& target, const Readings& readings) {
  const std::string folder = path_from(target.job->folder, text_of(readings));
  for (int stage = 0; stage < 4; ++stage) {
    const std::string path = path_from(folder, fmt::format("template_zero{}.json", stage));
    if (is_regular_file(path)) target.job->templates[stage] = path;
  }
  if (target.job->templates.empty())
    target.problems->add(readings.front().node.problem(fmt::format(
        "{} holds no template_zero0.json to template_zero3.json: name a folder that does",
        folder)));
}

void set_template(SectionTarget& target, const Readings& readings) {
  const json::Node& node = readings.front().node;
  const std::string path = path_from(target.job->folder, text_of(readings));
  const int stage = node.pointer().back() - '0';
  if (is_regular_file(path)) {
    target.job->templates[stage] = path;
  } else {
    target.problems->add(
        node.problem(fmt::format("the template {} does not exist: name a file that does", path)));
  }
}

/// What parse_bytes() takes, above 0.
constexpr std::string_view bytes_pattern =
    R"(^(?=[0-9.]*[1-9])([0-9]+( ?[kKmMgGtTpPeE]([iI]?[bB])?| ?[bB])?)"
    R"(|[0-9]+\.[0-9]+ ?[kKmMgGtTpPeE]([iI]?[bB])?)$)";
constexpr double largest_model_size = 1'000'000;
constexpr double largest_group = 1 << 20;
constexpr double longest_sequence = 1 << 30;

constexpr SectionRow model_size(std::string_view pointer, std::string_view fallback,
                                std::string_view help) {
  return integer_row(pointer, fallback, 1, largest_model_size, help);
}

constexpr std::array dstune_keys = {
    object_row("/dstune", "what DeepSpeed has no key for"),

    applied(keep_model,
            text_row("/dstune/model", "null",
                     "the model: the name of a preset or of a Hugging Face config.json; needed "
                     "here or as `--model`, unless nothing is trained")),
    applied(keep_model, object_row("/dstune/model", "a file, or the model written out")),
    alone(text_row("/dstune/model/hf_config", "null", "a Hugging Face config.json")),
    required(word_row("/dstune/model/family", "null",
                      "gpt2|llama|mistral|qwen2|phi3|opt|gpt_neox|qwen3|bert",
                      "written out: its kind")),
    required(model_size("/dstune/model/hidden_size", "null", "width of a layer")),
    required(model_size("/dstune/model/num_layers", "null", "blocks")),
    required(model_size("/dstune/model/num_heads", "null", "heads of attention")),
    model_size("/dstune/model/num_kv_heads", "null",
               "heads of keys and values; absent: as many as heads"),
    model_size("/dstune/model/intermediate_size", "null",
               "width inside a block; gpt2: 4 x hidden_size where absent"),
    required(model_size("/dstune/model/vocab_size", "null", "tokens")),
    model_size("/dstune/model/max_positions", "null",
               "longest sequence; absent: 1024 (gpt2), 2048 (llama)"),
    flag_row("/dstune/model/tie_embeddings", "null",
             "one table for input and output; absent: gpt2 yes, llama no"),

    applied(keep_sequence_length,
            integer_row("/dstune/sequence_length", "null", 1, longest_sequence,
                        "tokens of a sample; absent: the smaller of the model's positions and "
                        "1024")),
    object_row("/dstune/resources",
               "the groups of ranks that train; absent: every rank. Where nodes have different "
               "numbers of ranks, the smallest counts"),
    listable(applied(keep_gpus, integer_row("/dstune/resources/num_gpus", "null", 1, largest_group,
                                            "ranks on each node"))),
    listable(
        applied(keep_nodes, integer_row("/dstune/resources/num_nodes", "null", 1, largest_group,
                                        "nodes; 1 where only num_gpus is given"))),
    listable(applied(set_recompute,
                     word_row("/dstune/activation_recompute", "\"none\"", "none|selective|block",
                              "what backward computes again; selective: norms and "
                              "activations alone"))),
    applied(set_memory<&JobSpec::device_memory_bytes>,
            integer_row("/dstune/device_memory", "null", 1, no_limit,
                        "bytes that a rank may use; absent: what the device says")),
    applied(parse_memory<&JobSpec::device_memory_bytes>,
            matching(bytes_pattern,
                     text_row("/dstune/device_memory", "null", "the same as `\"64GiB\"`"))),
    applied(set_memory<&JobSpec::host_memory_bytes>,
            integer_row("/dstune/host_memory", "null", 1, no_limit,
                        "bytes for what a rank offloads; absent: on CPUs its part of 95 % of the "
                        "host, less device_memory")),
    applied(parse_memory<&JobSpec::host_memory_bytes>,
            matching(bytes_pattern,
                     text_row("/dstune/host_memory", "null", "the same as `\"64GiB\"`"))),
    applied(set_framework, word_row("/dstune/target", "null", "self",
                                    "whose memory an answer must fit, too; `self`: ours alone")),
    object_row("/dstune/target", "the training that the answer is for"),
    applied(set_framework, word_row("/dstune/target/framework", "\"huggingface\"",
                                    "huggingface|self", "what it is written with")),
    applied(set_attention, word_row("/dstune/target/attention", "\"sdpa\"", "eager|sdpa|flash",
                                    "how it computes attention")),
    applied(set_checkpointing,
            word_row("/dstune/target/checkpointing", "\"torch\"", "torch|deepspeed",
                     "whose checkpointing computes activations again; `deepspeed`: the training "
                     "calls deepspeed.checkpointing, and `activation_checkpointing` acts")),
    applied(set_trial_budget, number_row("/dstune/trial_budget_s", "10", 0.001, 1e9,
                                         "seconds of timed steps of one experiment")),
    matching("^[A-Za-z0-9_]+$",
             map_row("/dstune/variables", "name to the value that `\"$NAME\"` stands for")),
    applied(set_training_command,
            text_row("/dstune/training_command", "null",
                     "the user's launch line, for cmd_optimal.txt; `$CONFIG` is the config")),

    applied(find_templates,
            text_row("/dstune/templates", "null",
                     "with `fast` false: a folder with `template_zero0.json` to "
                     "`template_zero3.json`, DeepSpeed configs that the document is laid over; "
                     "stages without one have the built-in template")),
    object_row("/dstune/templates", "the same, by stage"),
    applied(set_template, text_row("/dstune/templates/0", "null", "file for stage 0")),
    applied(set_template, text_row("/dstune/templates/1", "null", "file for stage 1")),
    applied(set_template, text_row("/dstune/templates/2", "null", "file for stage 2")),
    applied(set_template, text_row("/dstune/templates/3", "null", "file for stage 3")),

    applied(set_workload, word_row("/dstune/workload", "\"transformer\"", "transformer|synthetic",
                                   "what a step is; `transformer` trains the model")),
    open_with("type=plugin", applied(keep_plugin_options,
                                     object_row("/dstune/workload", "the same with its settings"))),
    required(
        applied(set_workload,
                word_row("/dstune/workload/type", "null", "transformer|synthetic|replay|plugin",
                         "`synthetic`: a step takes so long and trains nothing; `replay`: a "
                         "recorded table answers; `plugin`: a library of yours, with the other "
                         "members as its options"))),
    only_with("type=synthetic",
              applied(set_step_time, number_row("/dstune/workload/step_time_s", "0", 0, no_limit,
                                                "seconds of a step"))),
    required(
        only_with("type=replay", applied(set_table, text_row("/dstune/workload/table", "null",
                                                             "file: name to {`step_time_s` or "
                                                             "`step_times_s`, `peak_memory_bytes`, "
                                                             "`status`}")))),
    only_with("type=replay",
              applied(set_time_scale, number_row("/dstune/workload/time_scale", "0", 0, no_limit,
                                                 "1 waits as long as a step took, 0 not at all"))),
    required(only_with("type=plugin",
                       applied(set_library, text_row("/dstune/workload/library", "null",
                                                     "file of a plugin (dstune/workload.h)")))),
};

}  // namespace

std::string path_from(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

std::span<const SectionRow> dstune_rows() {
  return dstune_keys;
}

void read_dstune(const json::Node& section, SectionTarget& target) {
  read_section(section, dstune_rows(), target);
}

}  // namespace dstune
