#pragma once
/// Rank 0's work before the first experiment: the input read, the space planned, the past
/// understood.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/device/device.hpp"
#include "dstune/engine/engine.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/report/folder_lock.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/deepspeed_run.hpp"
#include "dstune/space/job_spec.hpp"
#include "dstune/train/workload.hpp"
#include "dstune/tune/job.hpp"
#include "dstune/tune/protocol.hpp"
#include "start/rank_devices.hpp"
#include "start/time_budget.hpp"

namespace dstune {

/// The seed of initial weights and tokens (docs/reference-step.md). Not --seed, which is the
/// tuner's: losses must not depend on how the space is searched.
inline constexpr std::int64_t reference_seed = 0;

/// What DeepSpeed itself made of a member of the space.
struct Import {
  std::size_t index = 0;
  std::string path;
  Measurement measurement;
};

struct Preparation {
  TimeBudget time;
  JobSpec job;
  const kernels::Table* kernels = nullptr;       ///< whose workspaces are planned
  std::vector<std::vector<int>> allowed_ranks;   ///< of each node, by hostfile and filter
  std::vector<std::vector<int>> training_ranks;  ///< less rank 0 where it only coordinates
  PlannedSpace space;
  std::vector<std::string> keys;         ///< of each member
  std::vector<std::string> verify_keys;  ///< of each in the engine beside; empty: there is none
  History history;
  bool is_search_complete = false;  ///< an earlier job has ended the very same one
  /// Of the search with our own step alone, where the engine decides: its name in the journal, and
  /// whether an earlier job has ended it.
  std::string screening_key;
  bool is_screening_complete = false;
  json::Value fingerprint;  ///< of the machine; once the results are open
  std::vector<Import> imports;
  std::vector<UserRun> user_runs;
  std::int64_t memory_offset_bytes = 0;  ///< what they add to the target's memory
  /// Where members are ranked by the target's time.
  std::optional<TargetConstants> target{};
  std::string target_key;            ///< of what measures them here; empty: nothing does
  InputFiles inputs;                 ///< what the user named, which is never written
  std::unique_ptr<FolderLock> lock;  ///< from before anything is written to the end of all writing
  std::unique_ptr<ResultsFolder> results;
  kernels::CudaChoices choices;  ///< of libraries' candidates; once the results are open
  std::unique_ptr<Journal> journal;
  engine::Loaded engine;  ///< on rank 0, where there is an engine
  std::string energy;     ///< what is counted where rank 0 is, or why nothing is
  std::int64_t device_memory_bytes = 0;
  std::int64_t host_memory_bytes = 0;
};

// What users bring beside space.json: results of verification jobs, their own runs in DeepSpeed,
// and a plug-in library.

/// --import: what verification jobs left, by member of the space. Local.
/// Warns of results that belong to no member of the space. Throws InputError: what can not be read,
/// and where none belongs to one.
std::vector<Import> read_imports(const std::string& dir, const JobSpec& job,
                                 const PlannedSpace& space);

/// --calibrate: the user's own runs.
std::vector<DeepSpeedRun> read_user_runs(const std::vector<std::string>& paths, const JobSpec& job);
/// How much more memory they took than is planned for the training: the mean over those that say
/// it, without what only a GPU's driver and allocator know of; 0 where none does.
std::int64_t memory_offset(const std::vector<DeepSpeedRun>& runs, const JobSpec& job);
/// By member of the space. Throws InputError for a run of another configuration.
std::vector<UserRun> match_user_runs(const std::vector<DeepSpeedRun>& runs,
                                     const PlannedSpace& space);

/// What the work throws on the lowest rank on which it throws; empty where it does on none.
/// Collective over the world.
std::string first_violation(const Communicator& world, const std::function<void()>& work);

/// A plug-in library by its content. Throws Error. Local.
std::string plugin_hash(const WorkloadSpec& workload);

/// What came of loading a library, the same on every rank.
struct LoadedPlugin {
  std::string violation;  ///< what is in the way, the lowest rank's words; or nothing
  bool hangs = false;     ///< a constructor did not return: no rank can finalize MPI
};
/// Loads the library on every rank once its file has passed the check on all of them and is the one
/// that rank 0 has seen; other workloads have none. Collective over the world.
LoadedPlugin load_plugin_everywhere(const Communicator& world, const WorkloadSpec& workload,
                                    const PluginLoading& loading);

/// The place in space.json that names the library. Local.
Problem plugin_problem(const json::Document& document, const std::string& violation);

/// Finds the user's script for DeepSpeed's engine, in `dstune.training_command` where the engine's
/// object names none. Throws InputError where there is none in it, or it does not exist.
void complete_engine_workload(JobSpec& job);
/// What the script is given for an experiment: the workload's args, or the command's, with
/// `autotuning.arg_mappings`; `$CONFIG` where the configuration's file goes.
std::vector<std::string> script_arguments(const JobSpec& job, const Experiment& experiment);

/// What came of loading DeepSpeed's engine, the same violation on every rank.
struct LoadedEngine {
  std::unique_ptr<engine::Engine> engine;  ///< null: the job needs none
  std::string violation;                   ///< what is in the way, the lowest rank's words
};
/// Loads what the workload needs into every rank's Python, and agrees that it is the same; rank 0
/// says how far it is. Other workloads have none. Collective over the world.
LoadedEngine load_engine_everywhere(const Communicator& world, const WorkloadSpec& workload,
                                    const engine::RankPlace& place, const std::string& refusal);

/// Why what Python loaded is not the DeepSpeed that the job is for; empty: it is. Local.
[[nodiscard]] std::string engine_release_violation(const JobSpec& job,
                                                   const engine::Loaded& loaded);

/// Looks before anything runs at the operators of DeepSpeed that members need. Those whose
/// operators are not built are pruned, with that reason. Throws InputError where all are, with the
/// commands that build them; where the engine only verifies, nothing else happens. Rank 0's. Local.
void prune_for_operators(Preparation& preparation, engine::Engine& engine);

/// Samples of an optimizer step today, by the training command, else by the baseline where the
/// config states its sizes; nothing where neither says it.
[[nodiscard]] std::optional<std::int64_t> todays_batch(const Preparation& ready);

/// Throws InputError where `dstune.training_command` does not say where the configuration goes, or
/// can not be told to start the ranks of one of the groups.
void check_training_command(const JobSpec& job);

/// Members of the space that are to be run.
std::vector<const PlannedExperiment*> members_to_run(const PlannedSpace& space);
/// Of all nodes.
int num_ranks(const std::vector<std::vector<int>>& ranks_of_node);

/// Ranks that train nothing, by hostfile and filter. Throws InputError, UsageError.
std::vector<int> excluded_ranks(const JobOptions& options, const Topology& topology);

/// Reads and plans; touches no file of the results folder. Where its time is over the space is cut
/// short, and nothing but what was planned is there. Throws InputError, UsageError, and IoError for
/// a --profile-out that is no file.
Preparation prepare_plan(const JobOptions& options, const Topology& topology,
                         const std::vector<RankDevice>& devices, const kernels::Table& kernels);

/// Which folders the job takes: the job's options say so then. Throws InputError that names what is
/// in the way. Changes nothing on disk.
void take_folders(Preparation& preparation, const JobOptions& options);

/// Locks and opens the results folder and the journal, and writes what is known before the first
/// experiment. Throws InputError (damaged journal), IoError (another job holds the folder, too).
/// `on_held`: called with the path of exit_status.json as soon as nobody else may write it.
void open_results(Preparation& preparation, const JobOptions& options, const Topology& topology,
                  const std::vector<RankDevice>& devices,
                  const std::function<void(const std::string&)>& on_held);

/// Where the time for planning was over: says so in exit_status.json alone. Throws IoError.
ExitCode end_while_planning(Preparation& preparation);

/// What a rank of an experiment holds over a step; none where nothing is planned.
std::optional<MemoryTimeline> memory_timeline_of(const Preparation& preparation,
                                                 const Experiment& experiment);

/// What every rank needs of it.
JobInput job_input(const Preparation& preparation);

}  // namespace dstune
