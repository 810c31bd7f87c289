#pragma once
/// Places of ranks, and what in them makes measured speed another one than that of the training.
/// Decides over plain values; knows neither MPI nor the environment. Local.

#include <cstdint>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "start/launch_facts.hpp"

namespace dstune {

/// The place of a rank, as it tells rank 0.
struct RankPlace {
  int node = 0;     ///< as the job counts them
  int machine = 0;  ///< whose cores it has: the node, but one for all nodes that are pretended
  std::string host{};
  std::vector<int> cores{};  ///< that it may use, by their numbers
  int host_cores = 1;        ///< of its host
  int host_processors = 1;   ///< hardware threads of its host
  double job_cores = 1;      ///< that the cgroup leaves the job on its host
  std::int64_t host_memory_bytes = 0;
  double load_beside = 0;    ///< threads of others that run on its host
  std::string kind{};        ///< its device in words
  std::string gpu{};         ///< the UUID of the GPU that it computes on; empty: none
  bool is_left_out = false;  ///< by hostfile and filter
  bool looks_at_gpus = false;
  std::vector<std::string> gpus{};  ///< the UUIDs of those that it sees
  bool sees_part = false;           ///< of a GPU (MIG)
  int named_gpus = -1;              ///< of CUDA_VISIBLE_DEVICES, as named_gpus() counts
  int given_gpus = 0;               ///< that the batch system gives its node; 0: nobody says
};

/// The list of members (base/archive.hpp): a rank tells every other.
template <class Archive>
void members(Archive& archive, json::Of<Archive, RankPlace>& place);

enum class PlacementKind {
  separate_jobs,  ///< each process is a job of its own
  hidden_gpus,    ///< ranks see one GPU each, where their node has several
  missing_gpus,   ///< fewer answer than are named
  shared_gpus,    ///< more ranks than GPUs
  idle_gpus,      ///< fewer ranks than GPUs
  one_core,       ///< ranks have one core each, and others are idle
  same_core,      ///< ranks share cores, and others are idle
  shared_node,    ///< other jobs may compute there
  unlike_nodes,
  idle_nodes,  ///< of the job, without a rank
  idle_tasks,  ///< the job was asked for more ranks
};

struct PlacementFinding {
  PlacementKind kind;
  std::string text;  ///< a line that says what it means and what to write
};

/// Returns at most one of each kind, in their order. `places`: of all ranks, by rank.
[[nodiscard]] std::vector<PlacementFinding> placement_findings(const std::vector<RankPlace>& places,
                                                               const LaunchFacts& facts);

}  // namespace dstune
