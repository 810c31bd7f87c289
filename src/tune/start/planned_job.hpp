#pragma once
/// A job whose input is read and whose space is planned. Rank 0's; nothing on disk has changed.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/report/results.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/deepspeed_run.hpp"
#include "dstune/space/job_spec.hpp"
#include "dstune/tune/job.hpp"
#include "dstune/tune/protocol.hpp"
#include "start/rank_devices.hpp"
#include "start/time_budget.hpp"

namespace dstune {

/// The seed of initial weights and tokens (docs/inside/reference-step.md). Not --seed, which is the
/// tuner's: losses must not depend on how the space is searched.
inline constexpr std::int64_t reference_seed = 0;

/// DeepSpeed's own measurement of a member of the space.
struct Import {
  std::size_t index = 0;
  std::string path;
  Measurement measurement;
};

struct PlannedJob {
  TimeBudget time;
  JobSpec job;
  std::shared_ptr<const WorkspaceSizes> workspaces;  ///< of the kernels that run
  PlannerOptions planner;                            ///< that members were planned with
  std::vector<std::vector<int>> allowed_ranks;       ///< of each node, by hostfile and filter
  std::vector<std::vector<int>> training_ranks;      ///< less rank 0 where it only coordinates
  std::int64_t device_memory_bytes = 0;
  /// For what a rank offloads; nothing in a plan for a machine of which nobody says it.
  std::optional<std::int64_t> host_memory_bytes = 0;
  std::int64_t memory_offset_bytes = 0;     ///< what the user's runs add to the target's memory
  std::optional<DeviceProfile> profile{};   ///< that was measured on the machine planned for
  std::optional<TargetConstants> target{};  ///< where members are ranked by the target's time
  PlannedSpace space;
  std::vector<UserRun> user_runs;
  std::vector<Import> imports;
};

// Users bring more than space.json: results of verification jobs, and their own runs in DeepSpeed.

/// --import: returns what verification jobs left, by member of the space. Warns of results that
/// belong to no member of the space. Throws InputError for what can not be read, and if no result
/// belongs to a member. Local.
std::vector<Import> read_imports(const std::string& dir, const JobSpec& job,
                                 const PlannedSpace& space);

/// --calibrate: the user's own runs.
std::vector<DeepSpeedRun> read_user_runs(const std::vector<std::string>& paths, const JobSpec& job);
/// How much more memory they took than is planned for the training: the mean over those that say
/// it, without what only a GPU's driver and allocator know of; 0 where none does.
std::int64_t memory_offset(const std::vector<DeepSpeedRun>& runs, const JobSpec& job);
/// Returns the runs by member of the space. Throws InputError for a run of another configuration.
std::vector<UserRun> match_user_runs(const std::vector<DeepSpeedRun>& runs,
                                     const PlannedSpace& space);

/// Samples of an optimizer step today, by the training command, else by the baseline where the
/// config states its sizes; nothing where neither says it.
[[nodiscard]] std::optional<std::int64_t> todays_batch(const PlannedJob& planned);

/// Throws InputError where `dstune.training_command` does not say where the configuration goes, or
/// can not be told to start the ranks of one of the groups.
void check_training_command(const JobSpec& job);

/// Visits the members of the space that are to be run, one after the other: none stays open.
/// Visitor: false stops.
void visit_members_to_run(const PlannedSpace& space,
                          const std::function<bool(const PlannedExperiment&)>& visitor);
/// The shapes of groups that they run on.
[[nodiscard]] std::map<GroupShape, int> shapes_to_run(const PlannedSpace& space);
/// Counts the ranks of all nodes.
int num_ranks(const std::vector<std::vector<int>>& ranks_of_node);

/// Ranks that train nothing, by hostfile and filter. Throws InputError, UsageError.
std::vector<int> excluded_ranks(const JobOptions& options, const Topology& topology);

/// Reads and plans; touches no file of the results folder. Its time may be over before the end:
/// then the space is cut short, and nothing but what was planned is there. Throws InputError,
/// UsageError, and IoError for a --profile-out that is no file.
PlannedJob plan_of_job(const JobOptions& options, const Topology& topology,
                       const std::vector<RankDevice>& devices, const kernels::Table& kernels);

/// Returns what a rank of an experiment holds over a step; nothing where our own step does not run
/// it.
std::optional<MemoryTimeline> memory_timeline_of(const PlannedJob& planned,
                                                 const Experiment& experiment);

/// The model's profile in the baseline's configuration, else in the first one; nothing where the
/// model is not known, or there is no member.
std::optional<ModelProfile> profile_of_model(const JobSpec& job, const PlannedSpace& space);

/// Returns what every rank needs of it.
JobInput job_input(const PlannedJob& planned);

}  // namespace dstune
