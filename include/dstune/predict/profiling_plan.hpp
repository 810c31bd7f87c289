#pragma once
/// Plans the runs at the start of a job from which the times of its whole space follow. They are
/// few short steps of real plans that have, between them, the operations of the members' steps.
/// Local.

#include <cstdint>
#include <span>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/core/policy.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {

/// A few steps of this configuration of the model with so many layers.
struct ProfilingRun {
  std::int64_t num_layers = 0;
  TrainingConfig config;
  double cost = 0;  ///< of a step, beside other runs'
};

/// Transfers of these sizes to and from a disk, timed on their own.
struct DiskTiming {
  DiskUse use;
  std::vector<std::int64_t> bytes;  ///< rising, whole blocks; none where no member has a disk
  bool operator==(const DiskTiming&) const = default;
};

/// For every group of the shape, all at once; of the groups on a node one alone uses its disk.
struct ProfilingTask {
  GroupShape shape;
  std::vector<ProfilingRun> runs;  ///< the most telling first; as many as the budget allows
  std::vector<Work> collectives;   ///< timed on their own: sizes between those of the runs
  DiskTiming disk;
  double budget_s = 0;
};

struct ProfilingOptions {
  const Policy::Profiling* policy = &default_policy().profiling;
  double budget_s = policy->budget_s;          ///< for all tasks together
  std::int64_t max_bytes = policy->max_bytes;  ///< of a run's arenas
  /// A model is cut down to whole layers with this many parameters or more.
  std::int64_t min_parameters = policy->min_parameters;
  std::size_t max_members = policy->max_members;  ///< so many of a shape are looked at
  std::size_t max_runs = policy->max_runs;        ///< of a task
  bool times_disks = true;
};

/// Returns tasks by rising group size. Shapes of which nothing fits `max_bytes` have no task. The
/// runs have on the host what members have on a disk.
std::vector<ProfilingTask> plan_profiling(const ModelSpec& model,
                                          std::span<const Experiment* const> members,
                                          const WorkspaceSizes& workspaces,
                                          const ProfilingOptions& options);

/// The share of the members' work of which the profile has a curve, by a guess of its time. 0
/// without members.
[[nodiscard]] double known_share(const ModelSpec& model, std::span<const Experiment* const> members,
                                 const WorkspaceSizes& workspaces, const DeviceProfile& profile,
                                 const Policy::Profiling& policy = default_policy().profiling);

/// The model of a run.
ModelSpec profiling_model(const ModelSpec& model, const ProfilingRun& run);

}  // namespace dstune
