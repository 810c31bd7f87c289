#pragma once
/// Groups of ranks that compute on devices with memory and queues of their own, over those that
/// their hosts have.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "dstune/base/error.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/device/queues.hpp"
#include "dstune/group/nccl_library.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune {

/// The options of a rank; queues, staging memory and what free_bytes refers to outlive the groups.
struct DeviceGroupOptions {
  Queues* queues = nullptr;
  /// Pinned memory of the host for StagedGroup; the smallest rank's is used of each.
  std::span<std::byte> staging;
  /// The same on ranks that compute on the same GPU, and there only: its UUID.
  std::string device_id;
  nccl::FoundLibrary nccl;
  /// Free bytes of the device; null if nobody knows.
  std::function<std::int64_t()> free_bytes = nullptr;
  /// Makes the device that of the calling thread, as Device::begin_thread(); may be empty.
  std::function<void()> begin_thread = nullptr;
  int max_communicators = 8;  ///< of NCCL, by sets of ranks
  /// A group of one rank goes by NCCL, too, where there is one, and not by copies: for tests.
  bool nccl_alone = false;
  double connect_limit_s = 120;  ///< for making a communicator, where the waiter has more time
};

class DeviceGroups {
 public:
  /// Collective over the world.
  DeviceGroups(const Communicator& world, DeviceGroupOptions mine);
  /// Closes NCCL's communicators. On every rank at about the same time.
  ~DeviceGroups();

  /// How a group's collectives go.
  struct Transport {
    bool is_staged = false;  ///< through the host: its times are not those of a GPU of one's own
    /// "NCCL 2.28.9", "staged through the host: ranks 0 and 1 share a GPU", "copies on one device"
    std::string text;
  };
  /// The same on every rank, before NCCL is asked for anything. It is staged if two of the ranks
  /// share a GPU that NCCL does not serve twice, one has no NCCL, or their versions differ. Local.
  [[nodiscard]] Transport transport_of(std::span<const int> world_ranks) const;
  /// Tells why times of these ranks say nothing of a GPU for each. Either their collectives are
  /// staged, or another rank computes on the GPU of one of them. Empty: the times do. Local.
  [[nodiscard]] std::string not_comparable_reason(std::span<const int> world_ranks) const;

  /// The same ranks' group on their devices. Parts of a group share NCCL's resources with it, which
  /// takes less memory. A risky group, in which an error is to be expected, does not share. Its
  /// communicators are others than those that the same ranks keep for the rest, so that an abort
  /// leaves these alone. Members only. Throws CollectiveError, DeviceError.
  std::unique_ptr<ProcessGroup> over(std::unique_ptr<ProcessGroup> host, std::uint64_t attempt,
                                     const Waiter& waiter, bool is_risky = false);
  /// After a failure inside the group: its communicator is aborted and never used again. Local.
  void abandon(std::span<const int> world_ranks);
  /// The device was given up (Device::drain): communicators are left as they are, also when
  /// this ends. No group is made any more. Local.
  void give_up();
  /// Ends what this rank's group of the attempt has under way by NCCL. Its thread may be stuck in
  /// CUDA behind it and so hears of nothing. That thread goes on, and its next call throws
  /// CollectiveError. Any thread may call it. Local.
  void interrupt(std::uint64_t attempt, CollectiveError::Cause why);
  /// The memory of this rank's device that NCCL's communicators hold, as it was seen to become
  /// less. Local.
  [[nodiscard]] std::int64_t communicator_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dstune
