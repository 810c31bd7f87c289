#include "option_table.hpp"

#include <algorithm>
#include <array>
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
             "devices that experiments run on; auto is cuda if every rank has a GPU that answers, "
             "else cpu; default auto",
             of_configs),
      with_value("hostfile", "FILE", ValueKind::file,
                 "MPI or DeepSpeed hostfile: train on these hosts and slots only; for a plan it is "
                 "the cluster",
                 of_configs),
      with_value("include", "SPEC", ValueKind::text,
                 "train on these hosts and slots only: HOST:SLOT,SLOT@HOST", of_configs),
      with_value("exclude", "SPEC", ValueKind::text,
                 "train on all hosts and slots except these: HOST:SLOT,SLOT@HOST", of_configs),
  };
}

std::vector<OptionRow> search_options() {
  const std::vector<std::string_view> tuners = choices_of("autotuning", "/autotuning/tuner_type");
  const Strings metrics{"throughput", "throughput_per_gpu", "latency", "flops"};
  return {
      with_word(
          "tuner", "NAME", tuners,
          fmt::format("how members are chosen: {}; overrides autotuning.tuner_type; default {}",
                      either(tuners), default_tuner_type),
          of_jobs),
      with_word("metric", "NAME", metrics,
                fmt::format("metric that is compared: {}; overrides autotuning.metric; default {}",
                            either(metrics), metrics.front()),
                of_jobs),
      with_value("num-trials", "N", ValueKind::number,
                 "run at most N experiments; overrides autotuning.tuner_num_trials", of_jobs),
      with_value("early-stopping", "N", ValueKind::number,
                 "stop after N experiments without a better one; 0 is never; overrides "
                 "autotuning.tuner_early_stopping",
                 of_jobs),
      with_value("seed", "N", ValueKind::number, "seed of the tuner; default 0", of_jobs),
      one_of("precision", {"fp32", "bf16", "fp16"},
             "precision if the config says \"auto\"; overrides dstune.precision; default: the "
             "model's torch_dtype",
             of_jobs),
      with_value("deepspeed-version", "V", ValueKind::text,
                 "DeepSpeed release that will train; overrides dstune.deepspeed_version; default: "
                 "the installed one",
                 of_configs),
      without_value("full",
                    "search DeepSpeed's default grid, too, for knobs that the config does not "
                    "mention; the same as autotuning.fast=false",
                    of_jobs),
  };
}

std::vector<OptionRow> result_options() {
  return {
      with_value("results-dir", "DIR", ValueKind::folder,
                 "folder of the results; default autotuning_results", of_jobs),
      with_value("exps-dir", "DIR", ValueKind::folder,
                 "folder of the experiments' files; default autotuning_exps", of_jobs),
      without_value("overwrite",
                    "start anew: delete what dstune-mpi wrote there, as soon as the input is "
                    "checked; default: resume",
                    of_jobs),
      without_value("retry-failed",
                    "run again what failed or timed out in earlier jobs; default: their results "
                    "count",
                    of_jobs),
      repeated(with_value(
          "experiments", "FILE", ValueKind::file,
          "run exactly this experiment file, with name, ds_config, num_gpus and num_nodes",
          of_jobs)),
      repeated(with_value("calibrate", "FILE", ValueKind::file,
                          "fit predicted times to your own DeepSpeed run: its metrics.json or its "
                          "log",
                          of_jobs)),
      with_value(
          "import", "DIR", ValueKind::folder,
          "verify the answer with the results of verification jobs; DIR is the folder verify in "
          "their results folder",
          of_jobs),
      with_value("verify", "[=SCRIPT]", ValueKind::file,
                 "let your training decide in the same job; the script is this one, else that of "
                 "dstune.training_command; overrides dstune.verify",
                 of_jobs),
  };
}

/// The machine that is planned for, and the plan.
std::vector<OptionRow> plan_options() {
  const Commands of_plans{plan}, of_clusters{plan, check, batch};
  const std::vector<std::string_view> devices = device_names(), networks = network_names();
  return {
      with_word("device", "NAME", devices,
                fmt::format("plan for this GPU; overrides dstune.device; one of {}",
                            fmt::join(devices, ", ")),
                of_plans),
      with_value("profile", "FILE", ValueKind::file,
                 "plan for the machine that --profile-out measured", of_plans),
      with_value("gpus-per-node", "N", ValueKind::number,
                 "GPUs of a node of the planned cluster, or of the batch job", of_clusters),
      with_value("nodes", "N", ValueKind::number,
                 "nodes of the planned cluster (default 1), or of the batch job", of_clusters),
      with_word("network", "NAME", networks,
                fmt::format("network between the nodes of the planned cluster; one of {}",
                            fmt::join(networks, ", ")),
                of_plans),
      with_value("host-memory", "SIZE", ValueKind::text,
                 "memory of a node's host in the planned cluster, such as 1TiB", of_plans),
      without_value("dry-run", "the same as the command plan", {job, plan}),
      without_value("all", "add the table of all members to a plan", {job, plan}),
      one_of("format", {"text", "json"},
             "form of a plan, a check, a status and a job's summary; default text",
             {job, plan, check, status, batch}),
  };
}

std::vector<OptionRow> run_options() {
  return {
      with_value("time-limit", "DURATION", ValueKind::text,
                 "longest time that the job may run (90s, 10m, 1:30:00); default: that of the "
                 "batch system; in a batch script 1h, with --then-train 24h",
                 of_jobs),
      with_value("reserve", "DURATION", ValueKind::text,
                 "part of the time limit that is kept for a clean end; default 60s, at most a "
                 "tenth",
                 of_jobs),
      with_value("trial-timeout", "DURATION", ValueKind::text,
                 "stop an experiment after so long; default: many times its prediction", of_jobs),
      with_value("profile-out", "FILE", ValueKind::file,
                 "write the measured speeds of the machine to FILE, for --profile of a plan",
                 {job, batch}),
      one_of("coordinator", {"shared", "dedicated"},
             "work of rank 0: shared trains and schedules, dedicated only schedules; default "
             "shared",
             of_jobs),
  };
}

std::vector<OptionRow> check_options() {
  return {
      with_value("command", "LINE", ValueKind::text,
                 "command of your training, to compare its arguments with the config", {check}),
      without_value("strict", "end with exit code 3 after warnings, too", {check}),
  };
}

std::vector<OptionRow> message_options() {
  const Commands everywhere{job, plan, check, status, batch};
  return {
      without_value("quiet", "print warnings and errors only", of_configs),
      without_value("verbose",
                    "print what was understood, found and formed, too; in a plan the memory of "
                    "each category",
                    of_configs),
      one_of("progress", {"auto", "live", "lines", "none"},
             "how the job tells where it is; live rewrites a block of the terminal, lines adds a "
             "line for each event; auto is live on a terminal, else lines; default auto",
             of_jobs),
      without_value("no-progress", "the same as --progress=none", of_jobs),
      one_of("color", {"auto", "always", "never"}, "colour of messages; default auto", everywhere),
      without_value("version", "print versions of dstune-mpi and its libraries", everywhere),
      without_value("help", "print the options; behind a command, those that it takes; also -h",
                    everywhere),
  };
}

std::vector<OptionRow> all_options() {
  struct Theme {
    const char* title;
    std::vector<OptionRow> (*options)();
  };
  constexpr std::array<Theme, 8> themes{{{"Input and hosts", input_options},
                                         {"Search", search_options},
                                         {"Results", result_options},
                                         {"Plans", plan_options},
                                         {"Time and ranks", run_options},
                                         {"Checks of files", check_options},
                                         {"Batch scripts", batch_option_rows},
                                         {"Messages", message_options}}};
  std::vector<OptionRow> rows;
  for (const Theme& theme : themes)
    for (OptionRow& row : theme.options()) {
      row.theme = theme.title;
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace

const std::vector<CommandRow>& command_table() {
  static const std::vector<CommandRow> rows{
      {job, "", "mpirun -np N dstune-mpi [options] space.json",
       "finds the fastest configuration; resumes a job that was stopped"},
      {plan, "plan", "dstune-mpi plan [options] space.json",
       "says what fits and how fast it is; needs no MPI, trains nothing, writes no file"},
      {check, "check", "mpirun -np N dstune-mpi check [options]",
       "says what each rank has and how fast it is; writes no file"},
      {check, "check", "dstune-mpi check [options] FILE...",
       "says what DeepSpeed refuses or ignores in a config"},
      {status, "status", "dstune-mpi status [options] [DIR]",
       "says how far a job is, from its results folder"},
      {batch, "batch", "dstune-mpi batch slurm|pbs|lsf|flux [options] space.json",
       "prints a batch script for a job"},
      {help, "help", "dstune-mpi help [COMMAND]",
       "all commands and options, as --help; with a command, its own"},
      {help, "help", "dstune-mpi help KEY",
       "describes a key of space.json, such as zero_optimization.stage"}};
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
