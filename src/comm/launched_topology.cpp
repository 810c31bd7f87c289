#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include <unistd.h>

#include "dstune/comm/nodes.hpp"

namespace dstune {
namespace {

constexpr int max_ranks = 1 << 20;

/// The value of the first variable that begins with a number of ranks ("4(x2)" is Slurm's for 4 on
/// each of 2 nodes).
int launched_ranks(std::initializer_list<const char*> names, int fallback) {
  for (const char* const name : names) {
    const char* const text = std::getenv(name);
    const long ranks = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
    if (ranks > 0) return static_cast<int>(std::min<long>(ranks, max_ranks));
  }
  return fallback;
}

/// Tells whether the caller's processors are its own and not its node's.
bool is_bound() {
  const char* const type = std::getenv("SLURM_CPU_BIND_TYPE");
  return std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr ||
         (type != nullptr && std::string_view(type).starts_with("mask_cpu"));
}

}  // namespace

Topology launched_topology() {
  Topology topology;
  topology.world_size =
      launched_ranks({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
  const int local_size = std::min(
      topology.world_size,
      launched_ranks({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"},
                     topology.world_size));
  char name[256] = {};
  const bool is_known = gethostname(name, sizeof name - 1) == 0;
  for (int rank = 0; rank < topology.world_size; ++rank) {
    const int node = rank / local_size;
    if (rank % local_size == 0) {
      topology.hosts.push_back(node == 0 ? (is_known ? name : "localhost")
                                         : "node " + std::to_string(node));
      topology.ranks_of_node.emplace_back();
    }
    topology.node_of_rank.push_back(node);
    topology.ranks_of_node.back().push_back(rank);
  }
  std::vector<CoreUse> uses(static_cast<std::size_t>(local_size), own_core_use());
  if (is_bound()) std::for_each(uses.begin() + 1, uses.end(), [](CoreUse& use) { use.cpus = {}; });
  const CoreShare share = share_cores(uses).front();
  topology.threads_of_rank = share.threads;
  topology.share_core = share.share_core;
  return topology;
}

}  // namespace dstune
