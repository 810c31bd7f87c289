#include "option_table.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "batch_options.hpp"
#include "dstune/core/devices.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/keys.hpp"

namespace dstune {
namespace {

using Strings = std::vector<std::string>;
using Commands = std::vector<Command>;

using enum Command;

/// A batch script hands a job's options on; a plan takes them, so that `plan` may be added to a
/// job's line.
const Commands of_jobs{job, plan, batch};
/// Options that also say for which DeepSpeed and which ranks a config is checked.
const Commands of_configs{job, plan, check, batch};

OptionRow without_value(std::string name, std::string words, Commands commands) {
  OptionRow row;
  row.name = std::move(name);
  row.help = std::move(words);
  row.commands = std::move(commands);
  return row;
}

OptionRow with_value(std::string name, std::string form, ValueKind kind, std::string words,
                     Commands commands) {
  OptionRow row = without_value(std::move(name), std::move(words), std::move(commands));
  row.form = std::move(form);
  row.kind = kind;
  return row;
}

OptionRow repeated(OptionRow row) {
  row.repeats = true;
  row.help += "; may repeat";
  return row;
}

template <class Words>
OptionRow with_word(std::string name, std::string form, const Words& choices, std::string words,
                    Commands commands) {
  OptionRow row = with_value(std::move(name), std::move(form), ValueKind::word, std::move(words),
                             std::move(commands));
  row.words.assign(choices.begin(), choices.end());
  return row;
}

/// The form lists the words: "auto|cpu|cuda".
OptionRow one_of(std::string name, const Strings& choices, std::string words, Commands commands) {
  return with_word(std::move(name), fmt::format("{}", fmt::join(choices, "|")), choices,
                   std::move(words), std::move(commands));
}

/// "a, b or c"
template <class Words>
std::string either(Words words) {
  const auto last = words.back();
  words.pop_back();
  return fmt::format("{} or {}", fmt::join(words, ", "), last);
}

std::vector<OptionRow> input_options() {
  return {
      with_value("model", "FILE|NAME", ValueKind::file,
                 "Hugging Face config.json or its folder, or a preset (gpt2, gpt2-medium, "
                 "llama-7b, ...); overrides dstune.model",
                 of_jobs),
      one_of("backend", {"auto", "cpu", "cuda"},
             "what experiments run on (default auto: cuda where every rank has a GPU that "
             "answers, else cpu)",
             of_configs),
      with_value("hostfile", "FILE", ValueKind::file,
                 "MPI or DeepSpeed hostfile: train on these hosts and slots only; with --dry-run "
                 "it is the cluster",
                 of_configs),
      with_value("include", "SPEC", ValueKind::text,
                 "train on these hosts and slots only: HOST:SLOT,SLOT@HOST", of_configs),
      with_value("exclude", "SPEC", ValueKind::text,
                 "train on all hosts and slots but these: HOST:SLOT,SLOT@HOST", of_configs),
  };
}

std::vector<OptionRow> search_options() {
  const std::vector<std::string_view> tuners = choices_of("autotuning", "/autotuning/tuner_type");
  const Strings metrics{"throughput", "throughput_per_gpu", "latency", "flops"};
  return {
      with_word(
          "tuner", "NAME", tuners,
          fmt::format("how members are chosen: {}; overrides autotuning.tuner_type (default {})",
                      either(tuners), default_tuner_type),
          of_jobs),
      with_word("metric", "NAME", metrics,
                "what is compared: " + either(metrics) + "; overrides autotuning.metric", of_jobs),
      with_value("num-trials", "N", ValueKind::number, "run at most N experiments", of_jobs),
      with_value("early-stopping", "N", ValueKind::number,
                 "stop after N experiments past the best (0: off)", of_jobs),
      with_value("seed", "N", ValueKind::number, "seed of the tuner (default 0)", of_jobs),
      one_of("precision", {"fp32", "bf16", "fp16"},
             "precision where the config says \"auto\"; overrides dstune.precision (default: the "
             "model's "
             "torch_dtype)",
             of_jobs),
      with_value("deepspeed-version", "V", ValueKind::text,
                 "the DeepSpeed that will train; overrides dstune.deepspeed_version (default: the "
                 "one that is installed)",
                 of_configs),
      without_value("full", "as autotuning.fast = false", of_jobs),
  };
}

std::vector<OptionRow> result_options() {
  return {
      with_value("results-dir", "DIR", ValueKind::folder,
                 "where results go (default autotuning_results)", of_jobs),
      with_value("exps-dir", "DIR", ValueKind::folder,
                 "where experiment files go (default autotuning_exps)", of_jobs),
      without_value("overwrite",
                    "once the input has passed, delete what dstune-mpi wrote there before "
                    "(default: resume)",
                    of_jobs),
      without_value("retry-failed",
                    "run again what failed or timed out before (default: its result counts)",
                    of_jobs),
      repeated(with_value("experiments", "FILE", ValueKind::file,
                          "run exactly this experiment file {name, ds_config, num_gpus, num_nodes}",
                          of_jobs)),
      repeated(with_value("calibrate", "FILE", ValueKind::file,
                          "what your own DeepSpeed run wrote (metrics.json, or its log): times are "
                          "fitted to it",
                          of_jobs)),
      with_value("import", "DIR", ValueKind::folder,
                 "what the verification jobs left (<results-dir>/verify): the answer is verified "
                 "with it",
                 of_jobs),
      with_value("verify", "[=SCRIPT]", ValueKind::file,
                 "your training decides in the same job (this script, else that of "
                 "dstune.training_command); overrides dstune.verify",
                 of_jobs),
  };
}

/// The machine that is planned for, and the plan.
std::vector<OptionRow> plan_options() {
  const Commands of_plans{plan}, of_clusters{plan, check, batch};
  const std::vector<std::string_view> devices = device_names(), networks = network_names();
  return {
      with_word(
          "device", "NAME", devices,
          fmt::format("plan for this GPU: {}; overrides dstune.device", fmt::join(devices, ", ")),
          of_plans),
      with_value("profile", "FILE", ValueKind::file,
                 "plan for the machine that --profile-out measured", of_plans),
      with_value("gpus-per-node", "N", ValueKind::number,
                 "GPUs of a node of the cluster that is planned for, or of the batch job",
                 of_clusters),
      with_value("nodes", "N", ValueKind::number,
                 "nodes of the cluster that is planned for (default 1), or of the batch job",
                 of_clusters),
      with_word("network", "NAME", networks,
                fmt::format("network between its nodes: {}", fmt::join(networks, ", ")), of_plans),
      with_value("host-memory", "SIZE", ValueKind::text,
                 "memory of a node of the cluster that is planned for, such as 1TiB", of_plans),
      without_value("dry-run",
                    "print the plan and write no file; groups may be larger than the job",
                    {job, plan}),
      without_value("all", "the table of all members of a plan, too, not the answer alone",
                    {job, plan}),
      one_of("format", {"text", "json"},
             "how a plan, a check, status and the closing summary are printed (default text)",
             {job, plan, check, status, batch}),
  };
}

std::vector<OptionRow> run_options() {
  return {
      with_value("time-limit", "DURATION", ValueKind::text,
                 "how long it may run (90s, 10m, 1:30:00; default: what the batch system's "
                 "environment says; of a batch job 1h, with --then-train 24h)",
                 of_jobs),
      with_value("reserve", "DURATION", ValueKind::text,
                 "time that is kept of the limit for a clean end (default 60s, at most a tenth)",
                 of_jobs),
      with_value("trial-timeout", "DURATION", ValueKind::text,
                 "give an experiment up after so long (default: many times its prediction)",
                 of_jobs),
      with_value("profile-out", "FILE", ValueKind::file,
                 "write what the machine was measured to take (docs/files.md)", {job, batch}),
      one_of("coordinator", {"shared", "dedicated"}, "does rank 0 train too (default shared)",
             of_jobs),
      with_value("command", "LINE", ValueKind::text,
                 "the training's command, compared with the config (check FILE)", {check}),
      without_value("strict", "warnings end with exit code 3, too (check FILE)", {check}),
  };
}

std::vector<OptionRow> message_options() {
  const Commands everywhere{job, plan, check, status, batch};
  return {
      without_value("quiet", "warnings and errors only", of_configs),
      without_value("verbose",
                    "also what was understood, found and formed; with --dry-run the memory of "
                    "each category",
                    of_configs),
      one_of("progress", {"auto", "live", "lines", "none"},
             "how the job tells where it is: live rewrites a block of the terminal, lines adds a "
             "line for each event (default auto: live on a terminal, lines under mpirun and into "
             "files)",
             of_jobs),
      without_value("no-progress", "as --progress none", of_jobs),
      one_of("color", {"auto", "always", "never"}, "colour of messages (default auto)", everywhere),
      without_value("version", "versions of dstune-mpi and its libraries", everywhere),
      without_value("help", "this text; behind a command, that command's; -h, too", everywhere),
  };
}

std::vector<OptionRow> all_options() {
  std::vector<OptionRow> rows;
  for (auto* const group : {input_options, search_options, result_options, plan_options,
                            run_options, batch_option_rows, message_options})
    for (OptionRow& row : group()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace

const std::vector<CommandRow>& command_table() {
  static const std::vector<CommandRow> rows{
      {job, "", "mpirun -np N dstune-mpi [options] space.json",
       "the search: finds the fastest configuration, and resumes one that was stopped"},
      {plan, "plan", "dstune-mpi plan [options] space.json",
       "what fits and how fast it is, as --dry-run: no MPI, no training, no file"},
      {check, "check", "mpirun -np N dstune-mpi check [options]",
       "what each rank has and how fast it is: no file"},
      {check, "check", "dstune-mpi check [options] FILE...",
       "what DeepSpeed refuses and drops of a config"},
      {status, "status", "dstune-mpi status [options] [DIR]",
       "where a job is, by its results folder"},
      {batch, "batch", "dstune-mpi batch slurm|pbs|lsf|flux [options] space.json",
       "prints a batch script for a job"},
      {help, "help", "dstune-mpi help [COMMAND]",
       "all commands and options, as --help; with a command, its own"},
      {help, "help", "dstune-mpi help KEY",
       "what a key of space.json means, such as zero_optimization.stage"}};
  return rows;
}

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> rows = all_options();
  return rows;
}

std::vector<std::string_view> command_names() {
  std::vector<std::string_view> names;
  for (const CommandRow& row : command_table())
    if (!row.name.empty() && (names.empty() || names.back() != row.name))
      names.emplace_back(row.name);
  return names;
}

const OptionRow* find_option(std::string_view name) {
  const auto row = std::ranges::find(option_table(), name, &OptionRow::name);
  return row == option_table().end() ? nullptr : &*row;
}

bool takes(Command command, const OptionRow& option) {
  return std::ranges::find(option.commands, command) != option.commands.end();
}

bool is_value_optional(const OptionRow& option) {
  return option.form.starts_with('[');
}

}  // namespace dstune
