#pragma once
/// The user's input, read and checked: space.json (or what it refers to) and the command line's
/// overrides. Rank 0 alone reads. All functions: Local. Errors: InputError with every problem
/// found.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/command_reading.hpp"
#include "dstune/core/devices.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/core/settings.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/space/config_findings.hpp"
#include "dstune/space/deepspeed_installation.hpp"
#include "dstune/space/workload_spec.hpp"

namespace dstune {

/// The machine that a plan is for, as --device and its like or `dstune.device` say it.
struct MachineChoice {
  std::optional<std::string> device, network;  ///< names of core/devices.json
  std::optional<std::string> profile;          ///< a file of --profile-out
  std::optional<int> gpus_per_node, num_nodes;
  std::optional<std::int64_t> host_memory_bytes;  ///< of a node
  bool operator==(const MachineChoice&) const = default;
  [[nodiscard]] bool is_made() const { return *this != MachineChoice(); }
};

/// The machine of a measured profile, and whether its devices are the hosts' processors.
struct ProfiledMachine {
  Cluster cluster{};
  bool is_of_processors = false;
};

/// The command line's values, which override the document's; absent: the document, then the
/// default.
struct Overrides {
  std::optional<std::string> model;  ///< a file or a preset
  std::optional<std::string> tuner_type;
  std::optional<Metric> metric;
  std::optional<int> num_trials;
  std::optional<int> early_stopping;
  std::optional<std::int64_t> seed;
  std::optional<Precision> precision;
  std::optional<std::string> results_dir;
  std::optional<std::string> exps_dir;
  bool overwrite = false;
  bool retry_failed = false;  ///< --retry-failed
  bool full = false;
  bool verify = false;                        ///< --verify
  std::optional<std::string> verify_script;   ///< --verify=SCRIPT
  std::vector<std::string> experiment_files;  ///< --experiments
  std::optional<Version> deepspeed_version;
  MachineChoice machine;
  bool is_plan = false;          ///< nothing is run
  bool has_hostfile = false;     ///< --hostfile: a plan is for its hosts
  bool is_on_cpus = false;       ///< --backend cpu
  bool is_here_on_gpus = false;  ///< this machine's ranks train on GPUs
  /// Reads the machine that a profile was measured on. Throws InputError.
  std::function<ProfiledMachine(const std::string& path)> machine_of_profile{};
  /// The environment in which the user's DeepSpeed is looked for, if it is.
  std::optional<PythonEnvironment> python;
};

/// The machine of the job, known before the input is checked against it.
struct Machine {
  /// Why it has no more ranks than these.
  enum class Limit {
    job,         ///< its launcher started no more
    filter,      ///< --hostfile, --include or --exclude leaves them
    plan,        ///< --gpus-per-node and --nodes say so
    coordinator  ///< its launcher started one more, which only coordinates
  };
  std::vector<int> ranks_of_node;  ///< how many ranks each node has; at least one node and rank
  Limit limit = Limit::job;
  [[nodiscard]] int num_ranks() const;
  /// Tells whether enough nodes have enough ranks for a group.
  [[nodiscard]] bool holds(const GroupShape& shape) const;
  /// Returns the message for a group that it does not hold, with a hint.
  [[nodiscard]] std::string refusal(const GroupShape& shape) const;
};

/// The batch of one optimizer step of the user's training today.
struct TodaysBatch {
  std::int64_t micro_batch = 1;
  std::int64_t accumulation_steps = 1;
  int ranks = 1;
  std::int64_t samples = 1;  ///< the global batch
};

struct JobSpec {
  std::shared_ptr<const json::Document> document;  ///< space.json
  std::string folder;                              ///< its folder: relative paths start here
  json::Value ds_config;  ///< DeepSpeed's part of it with its lists, $VARIABLES replaced
  Version deepspeed_version = newest_release;  ///< the one that will train
  std::string deepspeed_source;                ///< who says so
  ModelSpec model;
  /// The user names the model, and it is one that is planned here.
  bool is_model_known = false;
  bool is_script_named = false;  ///< of the engine: itself, and not by training_command
  TuningOptions tuning;
  std::string verify_option;  ///< "--verify=train.py" where only the command line asks for it
  TargetSpec target;
  MachineChoice machine_choice;    ///< of the document and the command line
  std::optional<Cluster> cluster;  ///< that is planned for; nothing: this machine
  std::int64_t sequence_length = 1024;
  /// The precision that "auto" of bf16 and fp16 stands for; nothing: their defaults.
  std::optional<Precision> precision;
  AutoValues auto_values;                           ///< what "auto" stands for in the config
  std::optional<Machine> machine;                   ///< what groups were checked against
  std::vector<GroupShape> shapes;                   ///< from `resources`, in its order
  std::vector<Recompute> recompute;                 ///< modes to try
  std::optional<std::int64_t> device_memory_bytes;  ///< of one rank
  std::optional<std::int64_t> host_memory_bytes;    ///< for what one rank offloads
  std::optional<UserCommand> training_command;
  CommandReading command;                 ///< what it says; nothing where there is none
  std::vector<std::string> from_command;  ///< what of it was taken, in words
  /// The command says it, else the first candidates of the config; nothing where neither does.
  std::optional<TodaysBatch> todays_batch;
  bool keeps_global_batch = false;  ///< `dstune.global_batch` is "keep"
  /// The micro-batch is an integer, from which sizes are searched: smaller ones are members,
  /// too, for where it does not run.
  bool has_smaller_sizes = false;
  /// `dstune.templates`: ZeRO stage → DeepSpeed config that fast = false lays the document over; a
  /// file that exists. Stages without one have the built-in template.
  std::map<int, std::string> templates;
  std::vector<std::string> experiment_files;
  bool allows_unknown = false;        ///< `dstune.allow_unknown`
  KeyUse key_use;                     ///< what of the training decides whether keys have an effect
  std::vector<std::string> warnings;  ///< for the user, already in words
  /// Facts that the document leaves open and the program assumes, likewise.
  std::vector<std::string> assumptions;

  /// In their order: the last one decides, the others help to forecast it. Never empty.
  std::vector<WorkloadSpec> instruments{{}};

  /// DeepSpeed's engine among the instruments; null: there is none.
  [[nodiscard]] const WorkloadSpec* engine() const;
  [[nodiscard]] WorkloadSpec* engine();
  /// Tells whether DeepSpeed's engine decides.
  [[nodiscard]] bool is_by_engine() const;
  /// Tells whether the built-in step is among the instruments.
  [[nodiscard]] bool has_own_step() const;
  /// Tells whether somebody else's code alone runs configurations: every key of them may act.
  [[nodiscard]] bool takes_any_key() const;
  /// Tells whether tiny engines measure the costs of the target's time (docs/trust.md). Once it is
  /// read.
  [[nodiscard]] bool measures_target() const { return target.measure.value_or(false); }

  /// The keys of that version.
  [[nodiscard]] const KnobTable& knobs() const { return knob_table(deepspeed_version); }
};

/// "For DeepSpeed 0.19.8 (--deepspeed-version)"
[[nodiscard]] std::string deepspeed_text(const JobSpec& job);

/// A problem of DeepSpeed's engine, at the place where the user asks for it: `dstune.workload`,
/// `dstune.verify`, or `--verify` on the command line.
[[nodiscard]] Problem engine_problem(const JobSpec& job, const std::string& message);

/// Completes a configuration that a DeepSpeed config's knobs have decided. It gets the job's
/// sequence length and this mode of recompute. Checkpoints are in host memory only if blocks are
/// computed again by what reads that knob.
void complete_config(const JobSpec& job, Recompute recompute, TrainingConfig& config);

/// The micro-batch that is an integer, from which sizes are searched; nothing where it is none.
[[nodiscard]] std::optional<std::int64_t> lowest_micro_batch(const JobSpec& job);

/// Returns the violations of a configuration's settings. Those of the built-in step alone are left
/// out if somebody else's code alone runs it.
[[nodiscard]] std::vector<Violation> violations_for(const JobSpec& job, const Settings& settings);

/// Returns the problems of a config's keys and values, without the keys that somebody else's code
/// may know.
[[nodiscard]] std::vector<Problem> problems_for(const JobSpec& job, const json::Problems& found);

/// The findings with which the job can not be run, and all others as warnings.
[[nodiscard]] json::Problems problems_in(const JobSpec& job, const ConfigFindings& findings);
[[nodiscard]] std::vector<std::string> warnings_in(const JobSpec& job,
                                                   const ConfigFindings& findings);

/// Tells whether anything is planned of the job's steps: memory, and what follows from it.
[[nodiscard]] bool is_planned(const JobSpec& job);
/// Says why not, for a job that is not.
[[nodiscard]] std::string why_not_planned(const JobSpec& job);

/// Tells why the target can not train so; empty if it can.
[[nodiscard]] std::string target_refusal(const JobSpec& job, const TrainingConfig& config);

/// Checks a config that has "auto" as its precision. Adds a problem, with what to write, if nothing
/// says its meaning and the training would be told, or if the config has no section for it.
void check_automatic_precision(const JobSpec& job, const json::Node& config,
                               json::Problems& problems);
/// Tells whether the config has "auto" as its precision.
[[nodiscard]] bool has_automatic_precision(const json::Value& config);

/// Reads the document and everything it refers to. `machine`: groups larger than it are bad input;
/// absent (--dry-run): groups may be larger, and "every rank" is `default_ranks` on one node.
JobSpec read_job(const std::string& path, const Overrides& overrides,
                 const std::optional<Machine>& machine, int default_ranks);

}  // namespace dstune
