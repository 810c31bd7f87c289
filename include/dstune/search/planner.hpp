#pragma once
/// Plans every member before anything runs: its memory, here and in the target, and therefore
/// whether it is run. Local.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/packed_list.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/policy.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/space/search_space.hpp"

namespace dstune {

class MemoryPredictor;

struct PlannedMember {
  PlannedExperiment planned;
  std::optional<std::uint64_t> micro_batch_chain;  ///< as Member's
  /// Smaller than the micro-batch that the config asks for: it runs where that one does not.
  bool is_below_lowest = false;
};

/// How far a plan speaks for the runs of a space; by default for those of the built-in step.
struct Forecasts {
  bool judges_here = true;      ///< what does not fit this machine can not run here
  bool judges_target = true;    ///< what does not fit the target's memory is not to be recommended
  bool only_runs_tell = false;  ///< what fits: a recorded table is nothing that was planned
  /// The memory of this machine's runs counts; not in a plan for another one.
  bool judges_memory_here = true;
};

struct PlannerOptions {
  Forecasts forecasts{};
  std::int64_t device_memory_bytes = 0;  ///< of one rank
  /// Beside it, for one rank: for what is offloaded. Nothing: nobody knows, and nothing follows.
  std::optional<std::int64_t> host_memory_bytes = 0;
  /// … where it is a node's, whose ranks share it: instead of that for one rank.
  std::optional<std::int64_t> node_host_memory_bytes{};
  [[nodiscard]] std::optional<std::int64_t> host_memory_for(const GroupShape& shape) const {
    return node_host_memory_bytes ? *node_host_memory_bytes / shape.num_gpus : host_memory_bytes;
  }
  /// Free bytes of the disk that a folder is on, for all ranks of a host; none: any number is.
  std::function<std::int64_t(const std::string& folder)> free_disk_bytes;
  /// Bytes that CUDA's context and libraries have beside device_memory_bytes: the target's
  /// memory counts its own.
  std::int64_t context_bytes = 0;
  std::int64_t target_offset_bytes = 0;  ///< on the target's memory, as the user's own runs say
  /// Above so many members not every one is listed.
  std::uint64_t max_members = default_policy().planning.max_members;
  /// At most so many of a larger space are listed: those that may run first in the space's order,
  /// or drawn from the seed. A plan that is only shown lists those of the largest depth (Member) at
  /// which they are not more, and as many pruned ones.
  std::uint64_t listed = default_policy().planning.listed;
  bool lists_pruned = true;
  /// A plan that is only shown: of the time, so much goes into selecting members.
  double share_of_selecting = default_policy().planning.share_of_selecting;
  /// The share of the time for planning that is gone; 1 and more: all of it. Empty: no limit.
  std::function<double()> used_time{};
};

struct PlannedSpace {
  [[nodiscard]] const Experiment& experiment(std::size_t member) const {
    return members[member].planned.experiment;
  }
  // Single facts of a member; it stays packed.
  [[nodiscard]] GroupShape shape(std::size_t member) const;
  [[nodiscard]] int zero_stage(std::size_t member) const;
  [[nodiscard]] std::int64_t micro_batch(std::size_t member) const;
  [[nodiscard]] std::optional<std::uint64_t> micro_batch_chain(std::size_t member) const;
  [[nodiscard]] PlanStatus status(std::size_t member) const;
  [[nodiscard]] PruneKind prune_kind(std::size_t member) const;
  [[nodiscard]] bool is_below_lowest(std::size_t member) const;
  [[nodiscard]] std::string_view reason(std::size_t member) const;
  /// The throughput that it is ranked by before it runs.
  [[nodiscard]] std::optional<double> predicted_throughput(std::size_t member) const;
  void decide(std::size_t member, PlanStatus status, PruneKind kind, std::string_view reason);

  /// In the order they would run. A look by place keeps a member open; a walk does not.
  PackedList<PlannedMember> members;
  std::vector<std::string> searched;                      ///< as SearchSpace's; empty: not known
  std::uint64_t total = 0;                                ///< members of the product
  std::uint64_t planned = 0, infeasible = 0, pruned = 0;  ///< over the whole product
  PruneCounts prune_counts;                               ///< add up to `pruned`
  std::vector<std::string> warnings;                      ///< for the user, in words
  bool is_cut_short = false;  ///< time was over: the counts are of the members looked at, only
  /// The configuration that the user came with. It is the one with the first candidate of every
  /// list, or the next in the space's order that can run and is listed (a warning says so). A
  /// micro-batch that is searched is the integer that the document gives, else what the training
  /// command states, else the smallest size. Always planned, whatever the cap of trials.
  std::optional<std::size_t> baseline;
  /// The baseline's micro-batch is the largest that has run, once any has.
  bool baseline_grows = false;
  /// Nobody here knows what members need before they run (is_planned() of the job)
  bool is_unplanned = false;
  bool only_runs_tell = false;  ///< … or only runs say what fits
  /// The memory of one rank's device; 0: nobody says.
  std::int64_t device_memory_bytes = 0;
  /// Members that another search has run, such as one by another metric. Their results teach; a
  /// limit on what this search may cost does not count them.
  std::set<std::size_t> run_before{};
};

/// Plans every member: pruned ones keep their reason; the others get their predicted memory. They
/// are `infeasible`, with the numbers in the reason, if they do not fit the device, the host, its
/// disk or the target's memory. So they are if DeepSpeed's swapping to a disk would fail. For
/// synthetic and replay workloads nothing is infeasible. The order is the space's; for the tuner
/// `random` it is drawn from the seed, sizes of a micro-batch chain staying in order. `num_trials`
/// of the job, where given, prunes what lies past the cap. Above `max_members` every member is
/// still named and checked, but only `listed` ones get a prediction; of the others, those that are
/// not pruned count as planned. Planning ends when its time is over, with what there is then.
PlannedSpace plan_space(const JobSpec& job, const SearchSpace& space,
                        const WorkspaceSizes& workspaces, const PlannerOptions& options);

/// Plans configurations one by one that need not be members of a space, by their `config` and
/// `shape` alone. The job, the workspaces and the options outlive it.
class SinglePlanner {
 public:
  SinglePlanner(const JobSpec& job, const WorkspaceSizes& workspaces,
                const PlannerOptions& options);
  ~SinglePlanner();
  SinglePlanner(const SinglePlanner&) = delete;
  SinglePlanner& operator=(const SinglePlanner&) = delete;

  /// Planned, or infeasible with the reason.
  [[nodiscard]] PlannedExperiment plan(Experiment experiment);

 private:
  const JobSpec* job_;
  const PlannerOptions* options_;
  std::unique_ptr<MemoryPredictor> predictor_;
};

/// Tells whether a micro-batch that is an integer may have to give way to smaller ones, as with
/// DeepSpeed's autotuner. So it is if only runs tell what fits, or no size from it on fits at a
/// stage on groups of a shape. Then `has_smaller_sizes` is set, and the space planned anew.
[[nodiscard]] bool needs_smaller_sizes(const JobSpec& job, const PlannedSpace& space);

/// Experiments given by --experiments files instead of the space: {name, ds_config, num_gpus,
/// num_nodes}, other keys are not looked at. Without num_gpus and num_nodes: the job's first shape.
/// Throws InputError.
PlannedSpace plan_experiments(const JobSpec& job, const WorkspaceSizes& workspaces,
                              const PlannerOptions& options);

}  // namespace dstune
