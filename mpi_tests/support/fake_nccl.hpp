#pragma once
/// A stand-in for NCCL that holds its callers to the contract of non-blocking communicators, fails
/// where it is told to, and moves the data by messages between processes. Streams are those of
/// whoever makes it: a test's own queues, or emulated GPUs, where it is libnccl.so.2.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dstune/group/nccl_library.hpp"
#include "post.hpp"

namespace dstune::test {

/// The end of something under way.
struct Ended {
  nccl::Result result = nccl::Result::success;
  std::string words{};
};
/// Nothing while it is under way.
using End = std::function<std::optional<Ended>()>;

}  // namespace dstune::test

/// A communicator of the stand-in.
struct ncclComm {
  enum class State { ready, busy, failed, gone };

  int number = 0;  ///< in the order in which this process made them, from 1
  int size = 1;
  int rank = 0;
  int device = 0;
  std::string id{};               ///< the same on all ranks
  std::shared_ptr<void> order{};  ///< that of all communicators with the same resources
  std::thread::id maker{};
  State state = State::ready;
  int polls_left = 0;
  dstune::test::End under_way{};
  dstune::nccl::Result error = dstune::nccl::Result::success;
  bool is_connected = false;  ///< to all ranks, which wait for one another when it goes
  bool was_finalized = false;
  int splits = 0;
  /// The part that it is being split into, and where that goes.
  ncclComm* part = nullptr;
  ncclComm** place_of_part = nullptr;
  /// A collective lives as long as it is not done, or in a graph.
  std::vector<std::weak_ptr<void>> uses{};

  // Streams look at these.
  std::atomic<bool> is_gone = false;
  int begun = 0;
  std::string last_post{};  ///< that others may still have to read

  [[nodiscard]] std::string name(const std::string& what, int of_rank) const {
    return "nccl." + id + "." + what + "." + std::to_string(of_rank);
  }
};

namespace dstune::test {

/// The work of a stream: it is asked again and again until it says that it is done.
using Turn = std::function<bool()>;
/// Made anew each time that it is begun: a graph does it at every launch.
using Task = std::function<Turn()>;

/// Streams, and the memory of the GPUs that they are of.
class NcclStreams {
 public:
  virtual ~NcclStreams() = default;

  /// Behind what was asked for in the communicator's order before. No function: it is done.
  virtual End add(nccl::Comm comm, void* stream, Task task) = 0;
  /// Tells whether all of that is done.
  [[nodiscard]] virtual bool is_idle(const ncclComm& comm) const = 0;
  /// Tells whether streams go on unless the host waits for them. Else NCCL waits for nobody either.
  [[nodiscard]] virtual bool go_on() const { return false; }
  [[nodiscard]] virtual std::string name(void* /*stream*/) const { return ""; }

  /// The calling thread's.
  [[nodiscard]] virtual int device() const { return 0; }
  virtual void set_device(int /*device*/) {}
  [[nodiscard]] virtual std::shared_ptr<void> make_order(int /*device*/) { return nullptr; }
  /// Empty, or what lacks for one more communicator.
  virtual std::string take_memory(int /*device*/) { return ""; }
  virtual void give_back_memory(int /*device*/) {}
  /// Tells whether all of it is memory of one piece.
  [[nodiscard]] virtual bool reaches(const void* /*memory*/, std::size_t /*bytes*/) const {
    return true;
  }
  [[nodiscard]] virtual bool lives(int /*process*/) const { return true; }
};

class FakeNccl : public nccl::Library {
 public:
  /// Processes meet in the folder (empty: this one is alone). Without one nothing moves, and peers
  /// are thought to do their part.
  explicit FakeNccl(std::unique_ptr<NcclStreams> streams,
                    const std::optional<std::filesystem::path>& folder = std::nullopt);

  /// "all_reduce average f32 5 of 1 in queue 0", where 1 is the communicator's number. Those of one
  /// kind.
  [[nodiscard]] std::vector<std::string> calls(const std::string& kind = "") const;
  void forget_calls();
  /// Calls that NCCL does not allow, in their order.
  [[nodiscard]] std::vector<std::string> violations() const;
  /// Communicators that were neither destroyed nor aborted.
  [[nodiscard]] int num_alive() const;

  /// The number of polls of every call that is not done at once.
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
  /// CUDA does this with the caller, behind a collective that can not end.
  void wait_until_aborted();
  /// NCCL's words for errors, beside their numbers.
  void set_words(const std::string& words) { words_ = words; }
  [[nodiscard]] std::string words() const;
  /// Those that the end of the process would end.
  void forget_alive();
  /// The latest communicator gets an error beside the calls.
  void break_latest(nccl::Result error);
  void let_aborts_hang(bool hang) { let(aborts_hang_, hang); }
  /// A peer of the node does not end its communicator.
  void let_destroys_hang(bool hang) { let(destroys_hang_, hang); }

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
  struct Bytes {
    const void* begin = nullptr;
    std::size_t count = 0;

    [[nodiscard]] const std::byte* first() const { return static_cast<const std::byte*>(begin); }
    [[nodiscard]] const std::byte* end() const { return first() + count; }
    [[nodiscard]] bool overlaps(const Bytes& other) const {
      return first() < other.end() && other.first() < end();
    }
  };
  /// The bytes that a call reads and writes, and the part of it that is this rank's.
  struct Memory {
    Bytes read, written;
    const std::byte* own_place = nullptr;
  };
  /// A send or receive of a group of calls.
  struct Part {
    int peer;
    Bytes bytes;
    void* received = nullptr;  ///< null: they are sent
  };
  /// Between group_start and group_end, of a thread.
  struct Group {
    int depth = 0;
    bool has_aborts = false;
    nccl::Comm comm = nullptr;
    void* stream = nullptr;
    std::vector<Part> parts;
  };
  /// Everybody's data of a collective, in rank order.
  class Exchanged;
  using Use = std::function<void(const Exchanged& all)>;

  nccl::Comm add_comm(int device);
  void let(bool& that, bool hang);
  void note(const std::string& call) { calls_.push_back(call); }
  /// Says why, and that it is a wrong use.
  nccl::Result refuse(const std::string& why);
  Group& group() { return groups_[std::this_thread::get_id()]; }
  /// Empty where the communicator may be used for a call of that kind.
  [[nodiscard]] static std::string violation(nccl::Comm comm, const std::string& kind);
  /// Empty, or what NCCL's manual does not allow: both may begin at the same place in the part that
  /// is this rank's, and overlap nowhere else.
  [[nodiscard]] std::string memory_violation(const Memory& memory) const;
  std::optional<nccl::Result> injected(const std::string& kind);
  /// The result of the call that was made on a communicator.
  nccl::Result begin(nccl::Comm comm, const std::string& kind, const std::function<End()>& start);
  /// Tells whether the call under way has ended.
  void look(ncclComm& comm);
  /// The end of a communicator's making.
  End joining(nccl::Comm comm);
  /// Tells whether all ranks have said where they go; then the part knows its own.
  bool has_members(const ncclComm& parent, const std::string& split, int color, ncclComm& part);
  /// After its last call: when streams and peers are done with it.
  void leave(ncclComm& comm);
  [[nodiscard]] bool is_used(const ncclComm& comm) const;
  [[nodiscard]] bool waits_for_us(const ncclComm& comm, int rank);

  nccl::Result enqueue(const std::string& what, nccl::Comm comm, void* stream, const Memory& memory,
                       const Task& task);
  nccl::Result collective(const std::string& what, nccl::Comm comm, void* stream,
                          const Memory& memory, const Use& use) {
    return enqueue(what, comm, stream, memory, exchanging(comm, what, memory.read, use));
  }
  nccl::Result add_part(const std::string& call, nccl::Comm comm, void* stream, const Part& part);
  Task exchanging(nccl::Comm comm, const std::string& what, const Bytes& mine, const Use& use);
  Task trading(nccl::Comm comm, const std::vector<Part>& parts);

  std::unique_ptr<NcclStreams> streams_;
  std::optional<Post> post_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<ncclComm>> comms_;  ///< also those that are gone
  std::vector<std::string> calls_;
  std::vector<std::string> violations_;
  std::map<std::thread::id, Group> groups_;
  std::map<std::string, nccl::Result> failures_;
  std::map<std::string, nccl::Result> late_failures_;
  std::string never_ends_, held_up_, words_;
  int polls_ = 0;
  int version_ = 22809;
  bool aborts_hang_ = false, destroys_hang_ = false;
};

}  // namespace dstune::test
