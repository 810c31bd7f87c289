#pragma once
/// An experiment: one DeepSpeed configuration to be measured on a group of a certain size.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

/// The groups that an experiment runs on: `num_gpus` ranks on each of `num_nodes` nodes.
struct GroupShape {
  int num_gpus = 1;
  int num_nodes = 1;
  [[nodiscard]] int size() const { return num_gpus * num_nodes; }
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the generated 0 for a pointer.
  auto operator<=>(const GroupShape&) const = default;
};

/// A configuration is told where it runs as far as that makes a difference to its step.
inline void place_on(GroupShape shape, TrainingConfig& config) {
  // On one node DeepSpeed reduces gradients as they are.
  config.zero_quantized_gradients = quantizes_gradients(config) && shape.num_nodes > 1;
  const bool is_hierarchical = is_mics(config) && config.mics_hierarchical_params_gather;
  config.ranks_per_node = is_hierarchical || config.zero_quantized_gradients ? shape.num_gpus : 0;
}

struct Experiment {
  std::string name;       ///< canonical, unique in its space, safe as a folder's name
  json::Value ds_config;  ///< what the user's training is given; all three batch keys are in it
  GroupShape shape;
  TrainingConfig config;                   ///< the same, decided
  std::vector<std::string> written_out{};  ///< pointers of defaults that nobody wrote
};

/// Samples of an optimizer step.
[[nodiscard]] inline std::int64_t batch_of(const Experiment& experiment) {
  return global_batch(experiment.config, experiment.shape.size());
}

/// Predicted memory of the ranks of a group that plan alike.
struct RankMemory {
  int first = 0, last = 0;  ///< group ranks, both included
  std::int64_t peak_memory_bytes = 0;
  std::map<std::string, std::int64_t> categories;  ///< of peak_memory_bytes, at its instant
};

/// The bytes that one rank holds at each instant of its plan, by category; a picture of memory is
/// drawn from them.
struct MemoryTimeline {
  /// Bytes of every category at one instant.
  using Instant = std::vector<std::int64_t>;
  struct Memory {
    std::string name;               ///< "device", "host"
    std::vector<Instant> instants;  ///< as many in each memory
  };
  /// From this instant on, up to the next part.
  struct Part {
    std::string name;   ///< "micro-step 1", "micro-steps 2 to 7", "update"
    std::string phase;  ///< "forward", "backward"; empty where the name says it
    std::size_t first_instant = 0;
  };

  std::vector<std::string> categories;
  std::vector<Memory> memories;  ///< those that hold anything
  std::vector<Part> parts;       ///< in order, the first from instant 0 on
};

/// Tells whether the user's training fits its machine, as far as that is known.
enum class MemoryVerdict {
  unknown,  ///< a size of the machine is not known, or nothing is planned
  fits,     ///< with room for the error of the plan
  edge,     ///< inside that error (docs/figures/memory.md)
  does_not_fit,
};
[[nodiscard]] const EnumTexts& texts_of(MemoryVerdict);

/// The plan's forecast of an experiment before it runs. Bytes are of the fullest rank.
struct Prediction {
  std::optional<double> throughput;  ///< samples/s, of the built-in step
  /// … and of the user's training (core/target_time.hpp); nothing where that is not asked for.
  std::optional<double> target_throughput;
  /// The band of the throughput that it is ranked by, both ends.
  std::optional<double> throughput_low, throughput_high;
  std::int64_t peak_memory_bytes = 0;  ///< of the device and the host together
  std::int64_t host_memory_bytes = 0;  ///< of these, the host's
  std::int64_t disk_bytes = 0;         ///< beside them, on a disk of the host
  /// The least memory of a device with which the user's training runs; 0 where the target is
  /// "self".
  std::int64_t target_memory_bytes = 0;
  /// The memory that nvidia-smi will show in a training that has room; 0 on processors.
  std::int64_t target_memory_shown_bytes = 0;
  std::int64_t target_host_memory_bytes = 0;  ///< of what the user's training offloads
  /// Host memory beside the training: of each rank as it reads the model, of one as it writes it.
  std::int64_t target_loading_bytes = 0, target_saving_bytes = 0;
  std::int64_t target_disk_bytes = 0;                     ///< … to a disk of the host
  std::map<std::string, std::int64_t> target_categories;  ///< of target_memory_bytes
  MemoryVerdict verdict = MemoryVerdict::unknown;
  std::string because;  ///< where it does not fit: the largest part at the peak, in one line
  /// The bytes of a rank's whole process, fullest rank; 0 before its place to run is known.
  std::int64_t process_memory_bytes = 0;
  /// The bytes that a rank's whole process takes of its GPU, fullest rank; 0 before its place to
  /// run is known, and on processors.
  std::int64_t gpu_memory_bytes = 0;
  std::map<std::string, std::int64_t> categories;       ///< device and host, each at its fullest
  std::map<std::string, std::int64_t> host_categories;  ///< of these, the host's
  std::vector<RankMemory> ranks;                        ///< in order, every rank of the group once
};

/// The throughput that the experiment is ranked by.
[[nodiscard]] inline const std::optional<double>& ranked_throughput(const Prediction& predicted) {
  return predicted.target_throughput ? predicted.target_throughput : predicted.throughput;
}

/// The share of the machine that an experiment takes.
struct Needs {
  GroupShape shape;
  std::int64_t host_bytes = 0;  ///< of each rank
  /// Bytes of each rank. An experiment that takes any has the disks of its nodes to itself.
  std::int64_t disk_bytes = 0;
  bool operator==(const Needs&) const = default;
};
[[nodiscard]] inline Needs needs_of(const Experiment& experiment, const Prediction& predicted) {
  return {experiment.shape, predicted.host_memory_bytes, predicted.disk_bytes};
}

enum class PlanStatus { planned, infeasible, pruned };
[[nodiscard]] const EnumTexts& texts_of(PlanStatus);

/// Why a member is pruned.
enum class PruneKind {
  twin,            ///< runs exactly as another member
  batch,           ///< batch sizes that do not go together, or beyond the job's limits
  refused,         ///< DeepSpeed refuses it, or it needs what is not there
  smaller_size,    ///< a smaller micro-batch than the config asks for, which runs
  excluded,        ///< another one's failure tells that it would fail
  early_stopping,  ///< DeepSpeed's rule had ended the search
  cap,             ///< past the limit of experiments
  not_chosen,      ///< the tuner expects no gain of it
};
[[nodiscard]] const EnumTexts& texts_of(PruneKind);
/// How many members are pruned for which reason; kinds without a member may be missing.
using PruneCounts = std::map<PruneKind, std::uint64_t>;

/// A member of the space with what was decided about it.
struct PlannedExperiment {
  Experiment experiment;
  PlanStatus status = PlanStatus::planned;
  std::string reason;  ///< why it is infeasible or pruned
  Prediction predicted;
  PruneKind prune_kind = PruneKind::not_chosen;  ///< where it is pruned
};

/// The lists of members (base/archive.hpp). A prediction's list leaves out its categories and
/// ranks.
template <class Archive>
void members(Archive& archive, json::Of<Archive, TrainingConfig>& config);
template <class Archive>
void members(Archive& archive, json::Of<Archive, Prediction>& predicted);

}  // namespace dstune
