#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/operands.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {

/// Ends communicators on threads of their own, which never call MPI: ncclCommAbort itself may hang,
/// and so may ncclCommDestroy, which waits for the peers of this node to end theirs. Local.
class Teardown {
 public:
  using Comms = std::vector<Comm>;

  /// `begin_thread`: what each of its threads does first; may be empty.
  explicit Teardown(std::function<void()> begin_thread = nullptr);
  /// Whose threads begin alike, and are waited for apart.
  [[nodiscard]] Teardown another() const;
  /// On one thread, all of them in one go. Each waits for what was asked of it, so those that share
  /// no resources, of which one may hold up another, are aborted by a call each. `more`: what was
  /// made until then, and has to be aborted, too. `owner` lives until it is done.
  void abort(std::shared_ptr<Library> library, Comms comms, std::function<Comms()> more,
             std::shared_ptr<void> owner) noexcept;
  /// On one thread, one after the other: what was finalized.
  void destroy(std::shared_ptr<Library> library, Comms comms, std::shared_ptr<void> owner) noexcept;
  [[nodiscard]] bool are_done() const;
  /// Those that are under way count no more.
  void forget();
  /// Throws CollectiveError.
  void wait(const Waiter& waiter) const;

 private:
  struct State;
  void start(std::function<void()> work) noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace dstune::nccl

namespace dstune {

/// NCCL's communicators of one set of ranks: that of all of them, and those of parts in which they
/// worked side by side. A part's is split from that of all, which must be there anyway at its first
/// use: that takes a part of the time of an initialisation, and with shared resources of the
/// memory. The set lives and ends as one. One thread calls; interrupt() any.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  struct Parts {
    std::shared_ptr<nccl::Library> library;
    nccl::Teardown teardown;
    std::function<std::int64_t()> free_bytes = nullptr;  ///< of the device; null: nobody knows
    bool shares_resources = true;                        ///< between all and their parts
    std::chrono::milliseconds longest_call = default_max_call;
  };
  /// A call only enqueues; one that takes longer is held up by CUDA.
  static constexpr std::chrono::milliseconds default_max_call{1000};
  struct Place {
    nccl::UniqueId unique_id;
    int rank = 0;
    int size = 1;
  };
  /// `id` tells apart the communicators that the same ranks had. Local.
  NcclCommunicator(Parts parts, std::uint64_t id, const Place& place);

  /// Once, before anything else. Throws CollectiveError (deadline, abort, a peer's failure),
  /// DeviceError (this rank's), and has then abandoned it. Collective over the ranks.
  void connect(const Waiter& waiter);

  /// Tells whether the communicator of these ranks is there. Local.
  [[nodiscard]] bool has(const RankRange& among) const {
    return among.count == place_.size ||
           of_range_.contains({among.first, among.stride, among.count});
  }
  /// Returns the communicator of these ranks, this one among them. Throws like connect(). A new
  /// range is asked for once everything is done that the communicator of all was asked for: NCCL's
  /// ncclCommSplit may wait for ever otherwise. A new range is collective over all ranks, and the
  /// range is no part of one rank.
  nccl::Comm of(const RankRange& among, const Waiter& waiter);
  /// Makes a call of the library on a communicator and waits until it is enqueued:
  /// call(library) gives its result. Throws like connect(). Local.
  template <class Call>
  void enqueue(nccl::Comm comm, const Waiter& waiter, const char* what, Call&& call) {
    guarded([&] { wait_for(comm, locked(std::forward<Call>(call)), waiter, what); });
  }
  /// Throws where a communicator can not go on: DeviceError, CollectiveError. Local.
  void check();

  /// Finalizes, parts first, and destroys. Communicators that can not be finalized in time are
  /// abandoned. Those that are not destroyed then are left to a thread. On every rank: NCCL waits
  /// for those of the node.
  void close(const Waiter& waiter) noexcept;
  /// Aborts on another thread; never used again. Local.
  void abandon() noexcept { end(State::given_up, parts_.teardown); }
  /// The same, and whoever waits for aborts does not wait for it. Local.
  void leave_to(nccl::Teardown& teardown) noexcept { end(State::given_up, teardown); }
  /// The same by any thread, while the one that works may be stuck in CUDA or NCCL behind a
  /// collective that can not end, which the abort lets go on: what it calls next throws
  /// CollectiveError. Local.
  void interrupt(CollectiveError::Cause why) noexcept;
  [[nodiscard]] bool is_usable() const { return state_ == State::usable; }

  [[nodiscard]] nccl::Library& library() const { return *parts_.library; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// Bytes that the device had less after they were made: the library keeps some of it for the
  /// next.
  [[nodiscard]] std::int64_t device_bytes() const { return device_bytes_; }

 private:
  using Range = std::tuple<int, int, int>;
  enum class State { usable, given_up, late, aborted };

  void require_usable() const;
  /// Returns what call(library) gives, unless it is aborted: nothing is called during or after
  /// that.
  template <class Call>
  nccl::Result locked(Call&& call) {
    const std::lock_guard lock(calls_);
    require_usable();
    return call(library());
  }
  void end(State state, nccl::Teardown& teardown) noexcept;
  /// Returns parts first. Callers hold the lock, where it can be had.
  [[nodiscard]] nccl::Teardown::Comms all_comms() const;
  nccl::Result state_of(nccl::Comm comm, const char* what);
  void wait_for(nccl::Comm comm, nccl::Result state, const Waiter& waiter, const char* what);
  [[noreturn]] void fail(nccl::Result result, const char* what) const;
  void require_success(nccl::Result result, const char* what) const;
  /// Guarded, and counts what it takes of the device's memory.
  template <class Make>
  void measured(Make&& make);
  /// Abandons where the body throws.
  template <class Body>
  void guarded(Body&& body) {
    require_usable();
    try {
      body();
    } catch (...) {
      abandon();
      throw;
    }
  }

  Parts parts_;
  std::uint64_t id_;
  Place place_;
  nccl::Comm all_ = nullptr;
  /// NCCL writes to them at its time, so they stay where they are.
  std::map<Range, nccl::Comm> of_range_;
  std::int64_t device_bytes_ = 0;
  std::atomic<State> state_ = State::usable;
  std::timed_mutex calls_;  ///< of the library, and of_range_ for those who do not work
};

}  // namespace dstune
