#pragma once
/// The groups that a rank can join: those known at start-up are made then, others on demand under a
/// deadline, few, least recently used first out.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/group/device_groups.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune {

/// Node-aligned groups of a shape: on each node (or run of `num_nodes` nodes) the ranks from 0 on
/// in steps of num_gpus. Ranks that do not divide are left over. In a run of uneven nodes those
/// that the smallest lacks are left over, too. `ranks_of_node`: the ranks of each node that may
/// train, ascending. World ranks, ascending. Local.
std::vector<std::vector<int>> aligned_groups(const std::vector<std::vector<int>>& ranks_of_node,
                                             int num_gpus, int num_nodes);

class GroupTable {
 public:
  struct Options {
    std::size_t staging_bytes = std::size_t{2} << 20;      ///< shared memory a rank, where it fits
    std::size_t mpi_staging_bytes = std::size_t{8} << 20;  ///< a communicator's, in each rank
    int max_on_demand = 8;
    int spare_duplicates = 4;       ///< of the world, for creation on demand
    bool use_shared_memory = true;  ///< false: MPI inside nodes too, for tests
    bool create_on_demand = true;   ///< false: as where MPI grants no MPI_THREAD_MULTIPLE
    /// This rank's device, where groups work on that and not on the host's memory; on all ranks or
    /// on none.
    std::optional<DeviceGroupOptions> device = std::nullopt;
  };
  /// Makes the communicators of `known` groups that cross nodes, the nodes' windows and the spare
  /// duplicates. Groups inside a node need no communicator. Collective over the world.
  GroupTable(const Communicator& world, const Communicator& node, const Topology& topology,
             const std::vector<std::vector<int>>& known, const Options& options);
  /// Frees windows and communicators. Collective over the node unless something was abandoned.
  ~GroupTable();

  /// The group of these world ranks (ascending) for one attempt (positive, larger than any this
  /// rank joined before; the same on every member). Shared memory inside a node, else MPI; a group
  /// of one has neither. On devices: over that group NCCL's, or one staged through it, as devices()
  /// says, risky ones with communicators of their own. The waiter also ends every later wait of the
  /// group. The table outlives the group, and a rank's earlier group ends where it joins the next.
  /// Members only. Throws CollectiveError if a member does not come before the deadline. So it does
  /// if a group across nodes is unknown and can not be made (no MPI_THREAD_MULTIPLE, or every
  /// duplicate spent). Throws DeviceError if NCCL fails here.
  std::unique_ptr<ProcessGroup> join(std::span<const int> world_ranks, std::uint64_t attempt,
                                     const Waiter& waiter, bool is_risky = false);

  /// After a failure inside the group that this rank joined last. Its communicator is never used
  /// again here. Members that still wait for this rank in shared memory fail at once. NCCL's is
  /// aborted. Local.
  void abandon(std::span<const int> world_ranks);
  /// DeviceGroups::give_up(), where groups work on devices. Local.
  void give_up_device();
  /// DeviceGroups::interrupt(), where groups work on devices. Any thread may call it. Local.
  void interrupt(std::uint64_t attempt, CollectiveError::Cause why);
  /// True once a communicator or its creation was abandoned here: MPI_Finalize might block. A
  /// member of a shared-memory group that is late leaves nothing behind; one that is dead blocks
  /// MPI_Finalize too, which only the caller can know. Local.
  [[nodiscard]] bool has_abandoned() const;
  /// Null where groups work on the host's memory.
  [[nodiscard]] const DeviceGroups* devices() const;
  /// Creations on demand so far. Local.
  [[nodiscard]] int created_on_demand() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dstune
