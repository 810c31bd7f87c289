#include "fake_nccl.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "average.hpp"
#include "dstune/base/error.hpp"

namespace dstune::test {
namespace {

using nccl::Buffers;
using nccl::Comm;
using nccl::Reduction;
using nccl::Result;
using State = ncclComm::State;

constexpr int for_ever = std::numeric_limits<int>::max();

const char* name_of(Reduction op) {
  return op == Reduction::sum ? "sum" : "average";
}
const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::i8:
      return "i8";
  }
  return "";
}
/// The handle is there.
void bear(Comm parent) {
  if (parent->created_since == nullptr) return;
  *parent->place_of_pending = std::exchange(parent->created_since, nullptr);
}
std::size_t bytes_of(std::int64_t count, DType type) {
  return static_cast<std::size_t>(count * size_bytes(type));
}

}  // namespace

FakeNccl::FakeNccl(DeferredQueues& queues, const Communicator* world, Waiter waiter)
    : queues_(queues), world_(world), waiter_(std::move(waiter)) {}

std::vector<std::string> FakeNccl::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeNccl::calls(const std::string& kind) const {
  std::vector<std::string> found = calls();
  std::erase_if(found, [&](const std::string& call) { return !call.starts_with(kind); });
  return found;
}

void FakeNccl::forget_calls() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
}

std::vector<std::string> FakeNccl::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

int FakeNccl::num_alive() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(
      comms_.begin(), comms_.end(), [](const auto& comm) { return comm->state != State::gone; }));
}

void FakeNccl::break_latest(Result error) {
  const std::lock_guard lock(mutex_);
  comms_.back()->state = State::failed;
  comms_.back()->error = error;
}

void FakeNccl::forget_alive() {
  const std::lock_guard lock(mutex_);
  for (const auto& comm : comms_) comm->state = State::gone;
}

void FakeNccl::let_aborts_hang(bool hang) {
  const std::lock_guard lock(mutex_);
  aborts_hang_ = hang;
  changed_.notify_all();
}

void FakeNccl::let_destroys_hang(bool hang) {
  const std::lock_guard lock(mutex_);
  destroys_hang_ = hang;
  changed_.notify_all();
}

void FakeNccl::wait_until_aborted() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return comms_.back()->state == State::gone; });
}

std::string FakeNccl::error_text(Result result) {
  return "error " + std::to_string(static_cast<int>(result)) + words_;
}

Comm FakeNccl::add_comm(int size, int rank) {
  Comm comm = comms_.emplace_back(std::make_unique<ncclComm>()).get();
  comm->number = static_cast<int>(comms_.size());
  comm->size = size;
  comm->rank = rank;
  comm->maker = std::this_thread::get_id();
  return comm;
}

bool FakeNccl::may_be_used(Comm comm, const std::string& kind) {
  const std::string number = comm == nullptr ? "none" : std::to_string(comm->number);
  const auto refuse = [&](const std::string& why) {
    violate(kind + " of " + number + " " + why);
    return false;
  };
  if (comm == nullptr) return refuse("without a communicator");
  if (comm->state == State::gone) return refuse("that is gone");
  if (comm->state == State::failed) return refuse("that has failed");
  if (comm->was_finalized) return refuse("that was finalized");
  if (comm->state != State::ready) return refuse("that is in progress");
  if (comm->maker != std::this_thread::get_id()) return refuse("from another thread");
  return true;
}

std::optional<Result> FakeNccl::injected(const std::string& kind) {
  const auto found = failures_.find(kind);
  if (found == failures_.end()) return std::nullopt;
  const Result result = found->second;
  failures_.erase(found);
  return result;
}

/// What the call says that was made on a communicator.
Result FakeNccl::begin(Comm comm, const std::string& kind) {
  if (const auto error = injected(kind)) {
    comm->state = State::failed;
    comm->error = *error;
    return *error;
  }
  comm->polls_left = polls_;
  if (never_ends_ == kind) {
    never_ends_.clear();
    comm->polls_left = for_ever;
  }
  const auto late = late_failures_.find(kind);
  if (late != late_failures_.end()) {
    comm->error = late->second;
    comm->polls_left = std::max(1, comm->polls_left);
    late_failures_.erase(late);
  }
  if (comm->polls_left == 0 && !comm->has_connected) {
    comm->state = State::ready;
    return Result::success;
  }
  comm->state = comm->has_connected ? State::connecting : State::busy;
  return Result::in_progress;
}

Result FakeNccl::async_error(Comm comm, Result& state) {
  const std::lock_guard lock(mutex_);
  if (groups_[std::this_thread::get_id()].depth > 0) violate("async_error inside a group");
  if (comm == nullptr || comm->state == State::gone) {
    violate("async_error of a communicator that is gone");
    return Result::invalid_argument;
  }
  if (comm->state == State::ready || comm->state == State::failed) {
    state = comm->error;
    return Result::success;
  }
  state = Result::in_progress;
  if (comm->polls_left > 0) {
    if (comm->polls_left != for_ever) --comm->polls_left;
    if (comm->polls_left > 0) return Result::success;
  }
  if (comm->error != Result::success) {
    comm->state = State::failed;
    state = comm->error;
    return Result::success;
  }
  if (comm->has_connected && !comm->has_connected()) return Result::success;
  comm->has_connected = nullptr;
  comm->state = State::ready;
  state = Result::success;
  return Result::success;
}

Result FakeNccl::get_unique_id(nccl::UniqueId& id) {
  const std::lock_guard lock(mutex_);
  note("get_unique_id");
  if (const auto error = injected("get_unique_id")) return *error;
  const int root_and_tag[] = {world_ == nullptr ? 0 : world_->rank(), new_tag()};
  // All of the id is needed to get there.
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<char>(251 - 3 * i);
  std::memcpy(id.bytes.data(), root_and_tag, sizeof root_and_tag);
  return Result::success;
}

Result FakeNccl::init(Comm& made, int size, const nccl::UniqueId& id, int rank, bool shares) {
  const std::lock_guard lock(mutex_);
  note("init " + std::to_string(rank) + " of " + std::to_string(size) +
       (shares ? "" : " sharing nothing"));
  if (groups_[std::this_thread::get_id()].depth > 0) violate("init inside a group");
  made = add_comm(size, rank);
  if (world_ != nullptr) {
    for (std::size_t i = 2 * sizeof(int); i < id.bytes.size(); ++i)
      if (id.bytes[i] != static_cast<char>(251 - 3 * i)) violate("init with a damaged id");
    int root_and_tag[2];
    std::memcpy(root_and_tag, id.bytes.data(), sizeof root_and_tag);
    made->tag = root_and_tag[1];
    made->world_ranks.assign(1, root_and_tag[0]);
    made->has_connected = rendezvous_for_init(made);
  }
  return begin(made, "init");
}

Result FakeNccl::split(Comm parent, int color, int key, Comm& made, bool shares) {
  const std::lock_guard lock(mutex_);
  note("split " + std::to_string(parent->number) + " color " + std::to_string(color) + " key " +
       std::to_string(key) + (shares ? "" : " sharing nothing"));
  if (groups_[std::this_thread::get_id()].depth > 0) violate("split inside a group");
  if (queues_.num_waiting() > 0) violate("split of a communicator that has something to do");
  if (!may_be_used(parent, "split")) return Result::invalid_usage;
  made = nullptr;
  Comm child = add_comm(0, key);
  child->state = State::busy;
  child->polls_left = polls_;
  parent->created_since = child;
  parent->place_of_pending = &made;
  // Only when the parent is ready again is the child known.
  parent->has_connected =
      [parent,
       rendezvous = world_ == nullptr ? nullptr : rendezvous_for_split(parent, color, key, child)] {
        if (rendezvous && !rendezvous()) return false;
        bear(parent);
        return true;
      };
  // NCCL, too, says so while the parent is in progress.
  const Result result = begin(parent, "split");
  return result == Result::in_progress ? Result::success : result;
}

Result FakeNccl::finalize(Comm comm) {
  const std::lock_guard lock(mutex_);
  note("finalize " + std::to_string(comm->number));
  if (!may_be_used(comm, "finalize")) return Result::invalid_usage;
  comm->was_finalized = true;
  return begin(comm, "finalize");
}

Result FakeNccl::destroy(Comm comm) {
  std::unique_lock lock(mutex_);
  note("destroy " + std::to_string(comm->number));
  if (!comm->was_finalized || comm->state != State::ready) violate("destroy before finalize's end");
  changed_.wait(lock, [&] { return !destroys_hang_; });
  comm->state = State::gone;
  return Result::success;
}

Result FakeNccl::abort(Comm comm) {
  std::unique_lock lock(mutex_);
  note("abort " + std::to_string(comm->number));
  if (comm->state == State::gone) violate("abort of a communicator that is gone");
  if (comm->maker == std::this_thread::get_id()) violate("abort on the thread that works");
  groups_[std::this_thread::get_id()].has_aborts = true;
  changed_.wait(lock, [&] { return !aborts_hang_; });
  // What a split has not finished is left to the caller.
  bear(comm);
  comm->state = State::gone;
  changed_.notify_all();
  return Result::success;
}

Result FakeNccl::group_start() {
  const std::lock_guard lock(mutex_);
  ++groups_[std::this_thread::get_id()].depth;
  return Result::success;
}

Result FakeNccl::group_end() {
  Group group;
  {
    const std::lock_guard lock(mutex_);
    Group& own = groups_[std::this_thread::get_id()];
    if (--own.depth > 0) return Result::success;
    if (own.depth < 0) violate("group_end without a start");
    if (own.has_aborts && own.has_transfers) violate("a group that aborts and transfers");
    group = std::move(own);
    groups_.erase(std::this_thread::get_id());
  }
  if (!group.has_transfers) return Result::success;
  const std::string what = "transfers " + std::to_string(group.parts.size());
  return collective("transfers", what, group.comm, group.stream,
                    [this, comm = group.comm, what, parts = std::move(group.parts)] {
                      if (world_ != nullptr) trade(comm, "transfers", parts);
                    });
}

Result FakeNccl::collective(const std::string& kind, const std::string& what, Comm comm,
                            void* stream, Work work) {
  std::unique_lock lock(mutex_);
  const int queue = queues_.number_of(stream);
  note(what + " of " + std::to_string(comm == nullptr ? 0 : comm->number) + " in queue " +
       std::to_string(queue));
  if (groups_[std::this_thread::get_id()].depth > 0) violate(kind + " inside a group");
  if (!may_be_used(comm, kind)) return Result::invalid_usage;
  if (held_up_ == kind) {
    held_up_.clear();
    changed_.wait(lock, [&] { return comm->state == State::gone; });
    return Result::success;
  }
  const Result result = begin(comm, kind);
  if (result != Result::success && result != Result::in_progress) return result;
  queues_.add_to(stream, [comm, work = std::move(work)] {
    // What was aborted has ended without doing anything.
    if (comm->state != State::gone) work();
  });
  return result;
}

std::string FakeNccl::name_of(const Buffers& buffers) const {
  return std::string(test::name_of(buffers.type)) + " " + std::to_string(buffers.count);
}

void FakeNccl::reduce_to(void* out, const std::vector<Bytes>& all, std::size_t first_byte,
                         const Buffers& buffers, Reduction op) const {
  std::vector<const void*> parts;
  for (const Bytes& part : all) parts.push_back(part.data() + first_byte);
  sum_and_divide(out, parts, op == Reduction::sum ? 1 : static_cast<int>(all.size()), buffers.count,
                 buffers.type, Write::cached);
}

Result FakeNccl::all_reduce(const Buffers& b, Reduction op, Comm comm, void* stream) {
  const std::string what = std::string("all_reduce ") + test::name_of(op) + " " + name_of(b);
  return collective("all_reduce", what, comm, stream, [=, this] {
    if (world_ != nullptr)
      reduce_to(b.out, gather(comm, what, b.in, bytes_of(b.count, b.type)), 0, b, op);
  });
}

Result FakeNccl::reduce(const Buffers& b, Reduction op, int root, Comm comm, void* stream) {
  const std::string what =
      std::string("reduce ") + test::name_of(op) + " " + name_of(b) + " to " + std::to_string(root);
  return collective("reduce", what, comm, stream, [=, this] {
    if (world_ == nullptr) return;
    const std::vector<Bytes> all = gather(comm, what, b.in, bytes_of(b.count, b.type));
    if (comm->rank == root) reduce_to(b.out, all, 0, b, op);
  });
}

Result FakeNccl::reduce_scatter(const Buffers& b, Reduction op, Comm comm, void* stream) {
  const std::string what = std::string("reduce_scatter ") + test::name_of(op) + " " + name_of(b);
  return collective("reduce_scatter", what, comm, stream, [=, this] {
    if (world_ == nullptr) return;
    const std::size_t part_bytes = bytes_of(b.count, b.type);
    const auto size = static_cast<std::size_t>(comm->size);
    reduce_to(b.out, gather(comm, what, b.in, size * part_bytes),
              static_cast<std::size_t>(comm->rank) * part_bytes, b, op);
  });
}

Result FakeNccl::all_gather(const Buffers& b, Comm comm, void* stream) {
  const std::string what = "all_gather " + name_of(b);
  return collective("all_gather", what, comm, stream, [=, this] {
    if (world_ == nullptr) return;
    auto* place = static_cast<std::byte*>(b.out);
    for (const Bytes& part : gather(comm, what, b.in, bytes_of(b.count, b.type)))
      place = std::copy(part.begin(), part.end(), place);
  });
}

Result FakeNccl::send(const void* sent, std::int64_t count, DType type, int peer, Comm comm,
                      void* stream) {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[std::this_thread::get_id()];
  if (group.depth == 0) violate("send outside of a group");
  group.has_transfers = true;
  group.comm = comm;
  group.stream = stream;
  group.parts.push_back({peer, sent, bytes_of(count, type)});
  return injected("send").value_or(Result::success);
}

Result FakeNccl::receive(void* received, std::int64_t count, DType type, int peer, Comm comm,
                         void* stream) {
  const std::lock_guard lock(mutex_);
  Group& group = groups_[std::this_thread::get_id()];
  if (group.depth == 0) violate("receive outside of a group");
  group.has_transfers = true;
  group.comm = comm;
  group.stream = stream;
  group.parts.push_back({peer, nullptr, 0, received, bytes_of(count, type)});
  return Result::success;
}

}  // namespace dstune::test
