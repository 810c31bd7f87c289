#pragma once
/// A stand-in for NCCL that holds its callers to the contract of non-blocking communicators, and,
/// given a communicator of MPI, really moves the data: when the queues do what they were asked for.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "deferred_queues.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/group/nccl_library.hpp"

/// A communicator of the stand-in.
struct ncclComm {
  enum class State { connecting, ready, busy, failed, finalizing, gone };

  int number = 0;  ///< in the order in which this rank made them, from 1
  int size = 1;
  int rank = 0;
  int tag = 0;                   ///< the first of those that MPI's messages have
  std::vector<int> world_ranks;  ///< where data moves
  std::atomic<State> state = State::ready;
  int polls_left = 0;
  bool was_finalized = false;
  dstune::nccl::Result error = dstune::nccl::Result::success;
  std::function<bool()> has_connected;
  /// What it is being split into, and where that goes.
  ncclComm* created_since = nullptr;
  ncclComm** place_of_pending = nullptr;
  std::thread::id maker;
};

namespace dstune::test {

class FakeNccl : public nccl::Library {
 public:
  /// Without a world nothing moves, and peers are thought to do their part. Both outlive it; the
  /// waiter ends what a queue waits for peers.
  explicit FakeNccl(DeferredQueues& queues, const Communicator* world = nullptr,
                    Waiter waiter = {});

  /// "all_reduce average f32 5 of 1 in queue 0", where 1 is the communicator's number.
  [[nodiscard]] std::vector<std::string> calls() const;
  /// Those of one kind.
  [[nodiscard]] std::vector<std::string> calls(const std::string& kind) const;
  void forget_calls();
  /// What NCCL does not allow, as it was done.
  [[nodiscard]] std::vector<std::string> violations() const;
  /// Communicators that were neither destroyed nor aborted.
  [[nodiscard]] int num_alive() const;

  /// Of every call that is not done at once.
  void set_polls(int polls) { polls_ = polls; }
  void set_version(int version) { version_ = version; }
  /// The next call of a kind says so.
  void fail(const std::string& kind, nccl::Result error) { failures_[kind] = error; }
  /// The next call of a kind is under way, and asking how it is brings this.
  void fail_behind(const std::string& kind, nccl::Result error) { late_failures_[kind] = error; }
  /// The next call of a kind is under way for ever.
  void never_end(const std::string& kind) { never_ends_ = kind; }
  /// The next call of a kind does not come back before its communicator is aborted, as where CUDA
  /// takes no more launches.
  void hold_up(const std::string& kind) { held_up_ = kind; }
  /// What CUDA does with the caller, behind a collective that can not end.
  void wait_until_aborted();
  /// What NCCL says of errors beside their numbers.
  void set_words(const std::string& words) { words_ = words; }
  /// Those that the end of the process would end.
  void forget_alive();
  /// The latest communicator gets an error beside the calls.
  void break_latest(nccl::Result error);
  void let_aborts_hang(bool hang);
  /// As where a peer of the node does not end its communicator.
  void let_destroys_hang(bool hang);

  [[nodiscard]] int version() const override { return version_; }
  std::string error_text(nccl::Result result) override;
  nccl::Result get_unique_id(nccl::UniqueId& id) override;
  nccl::Result init(nccl::Comm& made, int size, const nccl::UniqueId& id, int rank,
                    bool shares) override;
  nccl::Result split(nccl::Comm parent, int color, int key, nccl::Comm& made, bool shares) override;
  nccl::Result async_error(nccl::Comm comm, nccl::Result& state) override;
  nccl::Result finalize(nccl::Comm comm) override;
  nccl::Result destroy(nccl::Comm comm) override;
  nccl::Result abort(nccl::Comm comm) override;
  nccl::Result group_start() override;
  nccl::Result group_end() override;
  nccl::Result all_reduce(const nccl::Buffers& buffers, nccl::Reduction op, nccl::Comm comm,
                          void* stream) override;
  nccl::Result reduce(const nccl::Buffers& buffers, nccl::Reduction op, int root, nccl::Comm comm,
                      void* stream) override;
  nccl::Result reduce_scatter(const nccl::Buffers& buffers, nccl::Reduction op, nccl::Comm comm,
                              void* stream) override;
  nccl::Result all_gather(const nccl::Buffers& buffers, nccl::Comm comm, void* stream) override;
  nccl::Result send(const void* data, std::int64_t count, DType type, int peer, nccl::Comm comm,
                    void* stream) override;
  nccl::Result receive(void* data, std::int64_t count, DType type, int peer, nccl::Comm comm,
                       void* stream) override;

 private:
  /// What a rank sends to and gets from a peer.
  struct Part {
    int peer;
    const void* sent = nullptr;
    std::size_t sent_bytes = 0;
    void* received = nullptr;
    std::size_t received_bytes = 0;
  };
  struct Sent {
    std::unique_ptr<Bytes> bytes;
    Request request;
  };
  /// Between group_start and group_end, of a thread.
  struct Group {
    int depth = 0;
    bool has_aborts = false;
    bool has_transfers = false;
    nccl::Comm comm = nullptr;
    void* stream = nullptr;
    std::vector<Part> parts;
  };
  using Work = std::function<void()>;

  nccl::Comm add_comm(int size, int rank);
  void note(const std::string& call) { calls_.push_back(call); }
  void violate(const std::string& what) { violations_.push_back(what); }
  /// Whether the communicator may be used for a call of that kind; else the violation is noted.
  bool may_be_used(nccl::Comm comm, const std::string& kind);
  nccl::Result begin(nccl::Comm comm, const std::string& kind);
  std::optional<nccl::Result> injected(const std::string& kind);

  nccl::Result collective(const std::string& kind, const std::string& what, nccl::Comm comm,
                          void* stream, Work work);
  std::string name_of(const nccl::Buffers& buffers) const;
  /// Everybody's data of a call, in rank order, this rank's own among it.
  std::vector<Bytes> gather(nccl::Comm comm, const std::string& what, const void* data,
                            std::size_t bytes);
  void check_peers(nccl::Comm comm, const std::string& what);
  void complete(std::vector<Request> requests, const std::string& what);
  void trade(nccl::Comm comm, const std::string& what, const std::vector<Part>& parts);
  void reduce_to(void* out, const std::vector<Bytes>& all, std::size_t first_byte,
                 const nccl::Buffers& buffers, nccl::Reduction op) const;
  void send_bytes(int world_rank, int tag, const std::vector<int>& numbers);
  std::optional<std::vector<int>> try_receive(int tag, int* source = nullptr);
  std::function<bool()> rendezvous_for_init(nccl::Comm comm);
  std::function<bool()> rendezvous_for_split(nccl::Comm parent, int color, int key,
                                             nccl::Comm made);
  int new_tag();

  DeferredQueues& queues_;
  const Communicator* world_;
  Waiter waiter_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<ncclComm>> comms_;  ///< also those that are gone
  std::vector<std::string> calls_;
  std::vector<std::string> violations_;
  std::map<std::thread::id, Group> groups_;
  std::map<std::string, nccl::Result> failures_;
  std::map<std::string, nccl::Result> late_failures_;
  std::string never_ends_, held_up_, words_;
  std::vector<Sent> sent_;
  int polls_ = 0;
  int version_ = 22809;
  bool aborts_hang_ = false, destroys_hang_ = false;
};

}  // namespace dstune::test
