#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "dstune/group/nccl_library.hpp"
#include "dstune/group/process_group.hpp"
#include "nccl_communicator.hpp"

namespace dstune {

/// The NCCL communicators of this rank: kept from group to group, few, least recently used first
/// out. All members do the same in the same order: what is closed before a new one is made is
/// agreed on, and closed by all of them that have it, the oldest first. NCCL ends a communicator
/// when all of its ranks on the node do; where not all of them are members, it is aborted, which
/// may last until the others hear of it, where its ranks meet again or all close theirs.
class NcclCommunicatorSet {
 public:
  struct Options {
    std::shared_ptr<nccl::Library> library;
    std::function<std::int64_t()> free_bytes = nullptr;  ///< of the device; null: nobody knows
    int max_communicators = 8;     ///< sets of ranks, risky ones beside others
    double connect_limit_s = 120;  ///< or the waiter's deadline
    double close_limit_s = 5;      ///< those that go at once; an idle one takes milliseconds
    double abort_limit_s = 30;     ///< a group waits for what earlier ones left behind, once
    /// Called by a thread before it aborts; may be empty.
    std::function<void()> begin_thread = nullptr;
    std::chrono::milliseconds longest_call = NcclCommunicator::default_max_call;
  };
  explicit NcclCommunicatorSet(Options options)
      : options_(std::move(options)),
        teardown_(options_.begin_thread),
        left_(options_.begin_thread) {}
  /// Closes them, the oldest first. On every rank at about the same time.
  ~NcclCommunicatorSet();

  /// That of the host group's ranks: theirs, where all still have it, else a new one. The attempt
  /// is the group's. One that is risky shares nothing between all and their parts, and is kept
  /// beside that of the same ranks which is not. Throws CollectiveError, DeviceError; no rank keeps
  /// one then that was new. Collective over the host group.
  std::shared_ptr<NcclCommunicator> obtain(ProcessGroup& host, std::uint64_t attempt,
                                           const Waiter& waiter, bool is_risky = false);
  /// Aborts that which these ranks used last, where there is one. Local.
  void abandon(std::span<const int> world_ranks);
  /// The device does not answer: nothing is called on any of them again, also when this ends.
  /// Local.
  void give_up() noexcept;
  /// Calls NcclCommunicator::interrupt() of the attempt's communicator, where there is one. Any
  /// thread may call it. Local.
  void interrupt(std::uint64_t attempt, CollectiveError::Cause why);
  /// Tells whether an abort is still under way. Local.
  [[nodiscard]] bool is_aborting() const { return !teardown_.are_done(); }
  /// Bytes of the device's memory in those that are kept. Local.
  [[nodiscard]] std::int64_t device_bytes() const;
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Key {
    std::vector<int> ranks;
    bool is_risky = false;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the generated 0 for a pointer.
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    std::shared_ptr<NcclCommunicator> communicator;
    std::uint64_t last_attempt = 0;
  };
  using Entries = std::map<Key, Entry>;
  /// The communicator of an attempt, for threads that know no more of it.
  struct Current {
    std::uint64_t attempt = 0;
    std::weak_ptr<NcclCommunicator> communicator;
  };

  [[nodiscard]] std::uint64_t id_of_oldest_beside(const Key& own) const;
  /// `present`: ranks that close the same ones now.
  void close(std::vector<std::uint64_t> ids, std::span<const int> present);
  /// A little.
  void wait_for(const nccl::Teardown& teardown) const noexcept;
  std::shared_ptr<NcclCommunicator> make(ProcessGroup& host, std::uint64_t attempt,
                                         const Waiter& waiter, bool is_risky);
  void set_current(std::uint64_t attempt, const std::shared_ptr<NcclCommunicator>& communicator);

  Options options_;
  nccl::Teardown teardown_;
  nccl::Teardown left_;  ///< of what is closed without all of its ranks
  Entries entries_;
  bool is_given_up_ = false;
  std::mutex current_mutex_;
  Current current_;
};

}  // namespace dstune
