#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Readings = std::vector<Reading>;

const std::string& text_of(const Readings& readings) {
  return std::get<std::string>(readings.front().value);
}
void keep_model(SectionTarget& target, const Readings& readings) {
  target.model = readings.front().node;
}
void keep_sequence_length(SectionTarget& target, const Readings& readings) {
  target.sequence_length = readings.front();
}
void set_deepspeed_version(SectionTarget& target, const Readings& readings) {
  const auto version = parse_version(text_of(readings));
  if (!version) {
    target.problems->add(readings.front().node.problem("expected a version such as \"0.19.8\""));
  } else if (target.job->deepspeed_source.empty()) {  // the command line comes first
    target.job->deepspeed_version = *version;
    target.job->deepspeed_source = "dstune.deepspeed_version";
  }
}
void set_precision(SectionTarget& target, const Readings& readings) {
  target.job->precision = from_text<Precision>(lower_case(text_of(readings)));
}
void set_training_command(SectionTarget& target, const Readings& readings) {
  target.job->training_command.emplace();
  target.job->training_command->text = text_of(readings);
}
void set_global_batch(SectionTarget& target, const Readings& readings) {
  target.job->keeps_global_batch = lower_case(text_of(readings)) == "keep";
}
void keep_gpus(SectionTarget& target, const Readings& readings) {
  target.num_gpus = readings;
}
void keep_nodes(SectionTarget& target, const Readings& readings) {
  target.num_nodes = readings;
}

void set_recompute(SectionTarget& target, const Readings& readings) {
  target.job->recompute.clear();
  for (const Reading& reading : readings)
    target.job->recompute.push_back(
        from_text<Recompute>(std::get<std::string>(reading.value)).value());
}

/// Words of a key and what they stand for.
template <class Enum>
struct Word {
  std::string_view word;
  Enum value;
};
/// clang 16 deduces no aggregate's arguments without it.
template <class Enum>
Word(std::string_view, Enum) -> Word<Enum>;
constexpr std::array frameworks = {Word{"huggingface", TargetFramework::huggingface},
                                   Word{"self", TargetFramework::self}};
constexpr std::array attentions = {Word{"eager", TargetAttention::eager},
                                   Word{"sdpa", TargetAttention::sdpa},
                                   Word{"flash", TargetAttention::flash}};
constexpr std::array checkpointings = {Word{"torch", TargetCheckpointing::torch},
                                       Word{"deepspeed", TargetCheckpointing::deepspeed}};
constexpr std::array workloads = {
    Word{"transformer", WorkloadKind::transformer}, Word{"synthetic", WorkloadKind::synthetic},
    Word{"replay", WorkloadKind::replay}, Word{"plugin", WorkloadKind::plugin},
    Word{"deepspeed", WorkloadKind::deepspeed}};

template <const auto& words, auto... path>
void set_word(SectionTarget& target, const Readings& readings) {
  for (const auto& [word, value] : words)
    if (text_of(readings) == word) rows::of<path...>(*target.job) = value;
}

/// The word of the job's default, as JSON text.
template <const auto& words, auto... path>
std::string_view default_word() {
  static const std::string text = [] {
    const JobSpec usual;
    for (const auto& [word, value] : words)
      if (rows::of<path...>(usual) == value) return rows::default_text(word);
    return std::string("null");
  }();
  return text;
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

/// Every member of the object is the plug-in's to read. What Python reads is kept by the rows.
void keep_plugin_options(SectionTarget& target, const Readings& readings) {
  if (target.job->workload.kind == WorkloadKind::plugin)
    target.job->workload.options = readings.front().node.value();
}
/// Of the object that the node is a member of: the workload, or an engine beside it.
WorkloadSpec& engine_of(SectionTarget& target, const json::Node& node) {
  const bool measures = node.pointer().starts_with("/dstune/target");
  if (!measures && !node.pointer().starts_with("/dstune/verify")) return target.job->workload;
  std::optional<WorkloadSpec>& beside = measures ? target.job->measuring : target.job->verify;
  return beside ? *beside : beside.emplace();
}
void keep_engine_option(SectionTarget& target, const Readings& readings) {
  const json::Node& node = readings.front().node;
  engine_of(target, node).options[std::string(last_key(node.pointer()))] = node.value();
}
void begin_verify(SectionTarget& target, const Readings& readings) {
  engine_of(target, readings.front().node).kind = WorkloadKind::deepspeed;
}
/// The user's script, by a path that holds wherever Python works.
void set_script(SectionTarget& target, const Readings& readings) {
  const std::string path =
      std::filesystem::absolute(path_from(target.job->folder, text_of(readings)))
          .lexically_normal();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    target.problems->add(readings.front().node.problem(
        fmt::format("the script {} does not exist: name a file that does", path)));
  engine_of(target, readings.front().node).options["script"] = path;
}
/// The library of a plug-in: its file is looked at, and nothing of it runs.
void set_library(SectionTarget& target, const Readings& readings) {
  WorkloadSpec& workload = target.job->workload;
  // With a slash in it, so that the loader searches nowhere else.
  workload.library_path =
      std::filesystem::absolute(path_from(target.job->folder, text_of(readings)))
          .lexically_normal();
  try {
    check_plugin_library(workload.library_path);
  } catch (const Error& error) {
    target.problems->add(readings.front().node.problem(error.what()));
  }
}

void check_row(const json::Node& row, json::Problems& problems) {
  if (!row.expect_object(problems)) return;
  row.refuse_unknown_keys(problems, {"step_time_s", "step_times_s", "peak_memory_bytes", "status"});
  const auto one = row.find("step_time_s");
  const auto series = row.find("step_times_s");
  if (one) one->number(problems, 0.0);
  if (series && !series->is_array()) {
    problems.add(series->problem("expected a list of step times in seconds"));
  } else if (series) {
    for (const auto& time : series->elements()) time.number(problems, 0.0);
    if (series->elements().empty()) {
      problems.add(series->problem("an empty series can not be replayed: give one time at least"));
    }
  }
  if (const auto bytes = given(row, "peak_memory_bytes")) bytes->integer(problems, 0);
  bool is_ok = true;
  const auto status_node = given(row, "status");
  const auto status = status_node ? status_node->string(problems) : std::nullopt;
  if (status) {
    const auto known = from_text<Status>(*status);
    is_ok = known == Status::ok;
    if (!known) {
      problems.add(status_node->problem(
          "\"" + *status +
          "\" is no status: take ok, raced_out, out_of_memory, timed_out or failed"));
    }
  }
  if (one && series) {
    problems.add(row.problem("step_time_s and step_times_s exclude each other: keep one"));
  } else if (is_ok && !one && !series) {
    problems.add(row.problem("a row with status ok needs step_time_s or step_times_s"));
  }
}

/// The file of a replay, checked row by row.
void set_table(SectionTarget& target, const Readings& readings) {
  WorkloadSpec& workload = target.job->workload;
  workload.table_path = path_from(target.job->folder, text_of(readings));
  try {
    const auto document = json::Document::read(workload.table_path, json::no_limits);
    const auto table = document.node();
    if (!table.expect_object(*target.problems)) return;
    for (const auto& name : table.keys()) check_row(*table.find(name), *target.problems);
    workload.table = document.root();
  } catch (const InputError& error) {
    add_all(error, *target.problems);
  }
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

void find_templates(SectionTarget& target, const Readings& readings) {
  const std::string folder = path_from(target.job->folder, text_of(readings));
  for (int stage = 0; stage < 4; ++stage) {
    const std::string path = path_from(folder, fmt::format("template_zero{}.json", stage));
    if (is_file(path)) target.job->templates[stage] = path;
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
  if (is_file(path)) {
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

Key model_size(std::string_view pointer, std::string_view help) {
  return rows::up_to(largest_model_size, rows::integer(pointer, "null", 1, rows::inert, help));
}

}  // namespace

std::span<const SectionRow> dstune_rows() {
  using namespace rows;
  static const std::vector<SectionRow> all = {
      object("/dstune", "what DeepSpeed has no key for"),

      applied(keep_model,
              any_text("/dstune/model",
                       "the model: the name of a preset or of a Hugging Face config.json; needed "
                       "here or as `--model`, unless nothing is trained")),
      applied(keep_model, object("/dstune/model", "a file, or the model written out")),
      alone(any_text("/dstune/model/hf_config", "a Hugging Face config.json")),
      required(word("/dstune/model/family", "gpt2|llama|mistral|qwen2|phi3|opt|gpt_neox|qwen3|bert",
                    "written out: its kind")),
      required(model_size("/dstune/model/hidden_size", "width of a layer")),
      required(model_size("/dstune/model/num_layers", "blocks")),
      required(model_size("/dstune/model/num_heads", "heads of attention")),
      model_size("/dstune/model/num_kv_heads",
                 "heads of keys and values; absent: as many as heads"),
      model_size("/dstune/model/intermediate_size",
                 "width inside a block; gpt2: 4 x hidden_size where absent"),
      required(model_size("/dstune/model/vocab_size", "tokens")),
      model_size("/dstune/model/max_positions",
                 "longest sequence; absent: 1024 (gpt2), 2048 (llama)"),
      flag("/dstune/model/tie_embeddings", "null", inert,
           "one table for input and output; absent: gpt2 yes, llama no"),

      applied(keep_sequence_length,
              up_to(longest_sequence,
                    integer("/dstune/sequence_length", "null", 1, inert,
                            "tokens of a sample; absent: the smaller of the model's positions and "
                            "1024"))),
      applied(set_deepspeed_version,
              matching("^[0-9]+\\.[0-9]+",
                       any_text("/dstune/deepspeed_version",
                                "the DeepSpeed that will train, such as `\"0.19.8\"`; absent: the "
                                "one that is installed, else the newest that is known here; "
                                "`--deepspeed-version` overrides it"))),
      applied(set_precision,
              word("/dstune/precision", "fp32|bf16|fp16",
                   "what `\"auto\"` of `bf16` and `fp16` stands for; absent: the model's "
                   "torch_dtype; `--precision` overrides it")),
      object("/dstune/resources",
             "the groups of ranks that train; absent: every rank. Where nodes have different "
             "numbers of ranks, the smallest counts"),
      listable(applied(keep_gpus, up_to(largest_group, integer("/dstune/resources/num_gpus", "null",
                                                               1, inert, "ranks on each node")))),
      listable(applied(keep_nodes,
                       up_to(largest_group, integer("/dstune/resources/num_nodes", "null", 1, inert,
                                                    "nodes; 1 where only num_gpus is given")))),
      listable(applied(set_recompute, text("/dstune/activation_recompute",
                                           default_of<TrainingConfig, &TrainingConfig::recompute>(),
                                           "none|selective|block", inert,
                                           "what backward computes again; selective: norms and "
                                           "activations alone"))),
      within(
          1, unbounded,
          sets<&JobSpec::device_memory_bytes>(
              "/dstune/device_memory", "bytes that a rank may use; absent: what the device says")),
      applied(
          parse_memory<&JobSpec::device_memory_bytes>,
          matching(bytes_pattern, any_text("/dstune/device_memory", "the same as `\"64GiB\"`"))),
      within(1, unbounded,
             sets<&JobSpec::host_memory_bytes>(
                 "/dstune/host_memory",
                 "bytes for what a rank offloads; absent: on CPUs its part of 95 % of the "
                 "host, less device_memory")),
      applied(parse_memory<&JobSpec::host_memory_bytes>,
              matching(bytes_pattern, any_text("/dstune/host_memory", "the same as `\"64GiB\"`"))),
      applied(set_word<frameworks, &JobSpec::target, &TargetSpec::framework>,
              word("/dstune/target", "self",
                   "whose memory an answer must fit and whose time ranks it; `self`: ours alone")),
      object("/dstune/target", "the training that the answer is for"),
      applied(set_word<frameworks, &JobSpec::target, &TargetSpec::framework>,
              text("/dstune/target/framework",
                   default_word<frameworks, &JobSpec::target, &TargetSpec::framework>(),
                   "huggingface|self", inert, "what it is written with")),
      applied(set_word<attentions, &JobSpec::target, &TargetSpec::attention>,
              text("/dstune/target/attention",
                   default_word<attentions, &JobSpec::target, &TargetSpec::attention>(),
                   "eager|sdpa|flash", inert, "how it computes attention")),
      applied(set_word<checkpointings, &JobSpec::target, &TargetSpec::checkpointing>,
              text("/dstune/target/checkpointing",
                   default_word<checkpointings, &JobSpec::target, &TargetSpec::checkpointing>(),
                   "torch|deepspeed", inert,
                   "whose checkpointing computes activations again; `deepspeed`: the training "
                   "calls deepspeed.checkpointing, and `activation_checkpointing` acts")),
      sets<&JobSpec::target, &TargetSpec::measure>(
          "/dstune/target/measure",
          "whether tiny engines of DeepSpeed measure first what its work costs on this machine "
          "(docs/trust.md); absent: where there is `verify`"),
      applied(keep_engine_option,
              any_text("/dstune/target/python",
                       "with `measure` and without `verify`: as `verify.python`")),
      within(0.001, 1e9,
             sets<&JobSpec::tuning, &TuningOptions::measure, &MeasureOptions::trial_budget_s>(
                 "/dstune/trial_budget_s",
                 "seconds of timed steps of one experiment: a run is a fifth of them")),
      matching("^[A-Za-z0-9_]+$",
               map("/dstune/variables", "name to the value that `\"$NAME\"` stands for")),
      applied(set_training_command,
              any_text("/dstune/training_command",
                       "the line that starts your training today: its flags are read, and "
                       "cmd_optimal.txt is made of it; `$CONFIG` is the config")),
      applied(set_global_batch,
              word("/dstune/global_batch", "keep|vary",
                   "`keep`: the global batch of the training command stays, and accumulation "
                   "follows from it; absent: it varies with the micro-batch, as with DeepSpeed's "
                   "autotuner")),

      applied(find_templates,
              any_text("/dstune/templates",
                       "with `fast` false: a folder with `template_zero0.json` to "
                       "`template_zero3.json`, DeepSpeed configs that the document is laid over; "
                       "stages without one have the built-in template")),
      object("/dstune/templates", "the same, by stage"),
      applied(set_template, any_text("/dstune/templates/0", "file for stage 0")),
      applied(set_template, any_text("/dstune/templates/1", "file for stage 1")),
      applied(set_template, any_text("/dstune/templates/2", "file for stage 2")),
      applied(set_template, any_text("/dstune/templates/3", "file for stage 3")),

      applied(
          set_word<workloads, &JobSpec::workload, &WorkloadSpec::kind>,
          text("/dstune/workload",
               default_word<workloads, &JobSpec::workload, &WorkloadSpec::kind>(),
               "transformer|synthetic|deepspeed", inert,
               "what a step is; `transformer` trains the model, `deepspeed` runs your training")),
      open_with("type=plugin", applied(keep_plugin_options,
                                       object("/dstune/workload", "the same with its settings"))),
      required(
          applied(set_word<workloads, &JobSpec::workload, &WorkloadSpec::kind>,
                  word("/dstune/workload/type", "transformer|synthetic|replay|plugin|deepspeed",
                       "`synthetic`: a step takes so long and trains nothing; `replay`: a "
                       "recorded table answers; `plugin`: a library of yours, with the other "
                       "members as its options; `deepspeed`: DeepSpeed's own engine runs your "
                       "training (docs/engine.md)"))),
      only_with("type=synthetic", within(0, unbounded,
                                         sets<&JobSpec::workload, &WorkloadSpec::step_time_s>(
                                             "/dstune/workload/step_time_s", "seconds of a step"))),
      required(only_with("type=replay",
                         applied(set_table, any_text("/dstune/workload/table",
                                                     "file: name to {`step_time_s` or "
                                                     "`step_times_s`, `peak_memory_bytes`, "
                                                     "`status`}")))),
      only_with("type=replay", within(0, unbounded,
                                      sets<&JobSpec::workload, &WorkloadSpec::time_scale>(
                                          "/dstune/workload/time_scale",
                                          "1 waits as long as a step took, 0 not at all"))),
      required(only_with("type=plugin",
                         applied(set_library, any_text("/dstune/workload/library",
                                                       "file of a plugin (dstune/workload.h)")))),
      only_with("type=deepspeed",
                applied(set_script, any_text("/dstune/workload/script",
                                             "your training script; absent: that of "
                                             "training_command, else random tokens train the "
                                             "model"))),
      only_with("type=deepspeed",
                applied(keep_engine_option,
                        list_of_texts("/dstune/workload/args", "null", "", inert,
                                      "its arguments; `$CONFIG` is the config's file"))),
      only_with("type=deepspeed",
                applied(keep_engine_option,
                        any_text("/dstune/workload/function",
                                 "the script's function that makes model and batches, instead of "
                                 "running the script"))),
      only_with("type=deepspeed",
                applied(keep_engine_option,
                        any_text("/dstune/workload/python",
                                 "the folder of a virtual environment, or an interpreter; absent: "
                                 "the environment that is active"))),
      only_with("type=deepspeed",
                applied(keep_engine_option,
                        flag("/dstune/workload/scratch", "false", inert,
                             "each rank and run works in an empty folder of its own"))),

      applied(begin_verify,
              object("/dstune/verify",
                     "DeepSpeed's own engine decides in the same job (docs/trust.md); `--verify`")),
      applied(set_script, any_text("/dstune/verify/script",
                                   "your training script; absent: that of training_command, else "
                                   "random tokens train the model")),
      applied(keep_engine_option, list_of_texts("/dstune/verify/args", "null", "", inert,
                                                "its arguments; `$CONFIG` is the config's file")),
      applied(keep_engine_option,
              any_text("/dstune/verify/function",
                       "the script's function that makes model and batches, instead of running "
                       "the script")),
      applied(keep_engine_option,
              any_text("/dstune/verify/python",
                       "the folder of a virtual environment, or an interpreter; absent: the "
                       "environment that is active")),
      applied(keep_engine_option, flag("/dstune/verify/scratch", "false", inert,
                                       "each rank and run works in an empty folder of its own")),
  };
  return all;
}

}  // namespace dstune
