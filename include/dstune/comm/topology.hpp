#pragma once
/// Which rank is on which node, by shared memory and not by host names.

#include <string>
#include <vector>

#include "dstune/comm/communicator.hpp"

namespace dstune {

struct Topology {
  int world_rank = 0;
  int world_size = 1;
  std::vector<int> node_of_rank;   ///< nodes are numbered by their lowest rank
  std::vector<std::string> hosts;  ///< a node's host name
  std::vector<std::vector<int>> ranks_of_node;
  int local_rank = 0;       ///< among the ranks of this node
  int cores_of_rank = 1;    ///< cores this rank may use (binding, cgroup)
  int threads_of_rank = 1;  ///< cores divided by the ranks that share them, at least 1
  bool share_core = false;  ///< more ranks on this node than cores they may use

  [[nodiscard]] int num_nodes() const { return static_cast<int>(hosts.size()); }
};

/// What one rank of a node may use: its CPU numbers, and the CPUs' worth of time of its cgroup
/// (infinite where nothing limits it).
struct CoreUse {
  std::vector<int> cpus;
  double quota_cores = 0;
};
/// The caller's own use. Local.
CoreUse own_core_use();

struct CoreShare {
  int cores = 1;
  int threads = 1;
  bool share_core = false;
};
/// What each rank of a node gets: a CPU that several ranks may use is split evenly among them, and
/// the quota is split among all. Local.
std::vector<CoreShare> share_cores(const std::vector<CoreUse>& uses);

/// What the caller's host calls itself. Local.
std::string own_host_name();

/// Collective over the communicator. `node` is its split_shared(), or a part of it that is to count
/// as a node; `host` the name of the caller's.
Topology find_topology(const Communicator& world, const Communicator& node,
                       const std::string& host = own_host_name());

}  // namespace dstune
