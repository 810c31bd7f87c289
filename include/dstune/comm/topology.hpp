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

/// Collective over the communicator. `node` is its split_shared().
Topology find_topology(const Communicator& world, const Communicator& node);

}  // namespace dstune
