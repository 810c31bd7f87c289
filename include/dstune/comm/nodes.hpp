#pragma once
/// Nodes: which rank is on which, by shared memory and not by host names, and what the ranks of one
/// share: cores and memory.

#include <cstddef>
#include <memory>
#include <span>
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
  int threads_of_rank = 1;  ///< cores it may use (binding, cgroup), divided by the ranks that share
                            ///< them, at least 1
  bool share_core = false;  ///< more ranks on this node than cores they may use

  [[nodiscard]] int num_nodes() const { return static_cast<int>(hosts.size()); }
};

/// The cores that one rank of a node may use: its CPU numbers, and the CPUs' worth of time of its
/// cgroup (infinite if nothing limits it).
struct CoreUse {
  std::vector<int> cpus;
  double quota_cores = 0;
};

/// The caller's. Local.
CoreUse own_core_use();

struct CoreShare {
  int threads = 1;
  bool share_core = false;
};
/// Returns the share of each rank of a node. A CPU that several ranks may use is split evenly among
/// them; the quota is split among all. Local.
std::vector<CoreShare> share_cores(const std::vector<CoreUse>& uses);

/// Collective over the communicator. `node` is its split_shared(), or a part of it that is to count
/// as a node; `host` the name of the caller's, or empty: what it calls itself.
Topology find_topology(const Communicator& world, const Communicator& node, std::string host = "");

/// The job that the caller is rank 0 of, by what its launcher says in the environment: every node
/// has as many ranks as the caller's. One rank where no launcher says anything. Names of other
/// nodes are not known. Starts no MPI. Local.
Topology launched_topology();

/// Memory that all ranks of a node see, one segment a rank. Everyone writes its own segment only,
/// so a late or dead peer can not damage anybody else's data.
class SharedWindow {
 public:
  /// Collective over the node's communicator, which outlives it. Segments are zeroed and start at
  /// multiples of 4096 bytes.
  SharedWindow(const Communicator& node, std::size_t bytes_per_rank);
  /// Collective over the node unless abandoned.
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  [[nodiscard]] std::span<std::byte> segment(int local_rank) const;
  /// After a loss: never freed. Local.
  void abandon() noexcept;

  /// Bytes a rank that fit the node's shared-memory file system with room to spare, at most
  /// `wanted`.
  static std::size_t affordable_bytes(std::size_t wanted, int ranks_on_node);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dstune
