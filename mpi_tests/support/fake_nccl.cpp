#include "fake_nccl.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include <unistd.h>

namespace dstune::test {

using nccl::Buffers;
using nccl::Comm;
using nccl::Reduction;
using nccl::Result;
using State = ncclComm::State;

namespace {

constexpr int for_ever = std::numeric_limits<int>::max();
/// Bytes of an id that name a communicator. The rest must come along.
constexpr std::size_t name_bytes = 16;

char rest_of_id(std::size_t place) {
  return static_cast<char>(251 - 3 * place);
}

/// The handle is there.
void bear(ncclComm& parent) {
  if (parent.part != nullptr) *parent.place_of_part = std::exchange(parent.part, nullptr);
}

void wait_while(const std::function<bool()>& holds) {
  while (holds()) std::this_thread::sleep_for(std::chrono::microseconds(500));
}

}  // namespace

FakeNccl::FakeNccl(std::unique_ptr<NcclStreams> streams,
                   const std::optional<std::filesystem::path>& folder)
    : streams_(std::move(streams)) {
  if (folder) post_.emplace(*folder);
}

std::vector<std::string> FakeNccl::calls(const std::string& kind) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> found = calls_;
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
  return static_cast<int>(
      std::ranges::count_if(comms_, [](const auto& comm) { return comm->state != State::gone; }));
}

std::string FakeNccl::words() const {
  const std::lock_guard lock(mutex_);
  return words_;
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

void FakeNccl::let(bool& that, bool hang) {
  const std::lock_guard lock(mutex_);
  that = hang;
  changed_.notify_all();
}

void FakeNccl::wait_until_aborted() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return comms_.back()->state == State::gone; });
}

std::string FakeNccl::error_text(Result result) {
  const std::string said = words();
  return "error " + std::to_string(static_cast<int>(result)) + (said.empty() ? "" : ": " + said);
}

Result FakeNccl::refuse(const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  violations_.push_back(why);
  words_ = why;
  return Result::invalid_usage;
}

Comm FakeNccl::add_comm(int device) {
  Comm comm = comms_.emplace_back(std::make_unique<ncclComm>()).get();
  comm->number = static_cast<int>(comms_.size());
  comm->device = device;
  comm->order = streams_->make_order(device);
  comm->maker = std::this_thread::get_id();
  return comm;
}

std::string FakeNccl::violation(Comm comm, const std::string& kind) {
  const char* why = nullptr;
  if (comm == nullptr) return kind + " without a communicator";
  if (comm->maker != std::this_thread::get_id()) why = "from another thread";
  if (comm->state == State::busy) why = "that is in progress";
  if (comm->was_finalized) why = "that was finalized";
  if (comm->state == State::failed) why = "that has failed";
  if (comm->state == State::gone) why = "that is gone";
  return why == nullptr ? "" : kind + " of " + std::to_string(comm->number) + " " + why;
}

std::string FakeNccl::memory_violation(const Memory& memory) const {
  const auto& [read, written, own_place] = memory;
  const auto is_beyond = [&](const Bytes& bytes) {
    return bytes.count > 0 && !streams_->reaches(bytes.begin, bytes.count);
  };
  if (is_beyond(read)) return " reads beyond what was allocated";
  if (is_beyond(written)) return " writes beyond what was allocated";
  const bool is_in_place =
      own_place == (read.count < written.count ? read.first() : written.first());
  return read.overlaps(written) && !is_in_place ? " reads where it writes and is not in place" : "";
}

std::optional<Result> FakeNccl::injected(const std::string& kind) {
  const auto found = failures_.extract(kind);
  return found ? std::optional(found.mapped()) : std::nullopt;
}

Result FakeNccl::begin(Comm comm, const std::string& kind, const std::function<End()>& start) {
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
  if (const auto late = late_failures_.extract(kind)) {
    comm->error = late.mapped();
    comm->polls_left = std::max(1, comm->polls_left);
  }
  comm->under_way = start();
  const bool is_done = comm->polls_left == 0 && !comm->under_way;
  comm->state = is_done ? State::ready : State::busy;
  return is_done ? Result::success : Result::in_progress;
}

void FakeNccl::look(ncclComm& comm) {
  if (comm.polls_left > 0 && (comm.polls_left == for_ever || --comm.polls_left > 0)) return;
  if (comm.error == Result::success && comm.under_way) {
    const std::optional<Ended> ended = comm.under_way();
    if (!ended) return;
    comm.error = ended->result;
    if (!ended->words.empty()) words_ = ended->words;
  }
  comm.under_way = nullptr;
  comm.state = comm.error == Result::success ? State::ready : State::failed;
}

Result FakeNccl::async_error(Comm comm, Result& state) {
  const std::lock_guard lock(mutex_);
  if (group().depth > 0) return refuse("async_error inside a group");
  if (comm == nullptr || comm->state == State::gone)
    return refuse("async_error of a communicator that is gone");
  if (comm->state == State::busy) look(*comm);
  state = comm->state == State::busy ? Result::in_progress : comm->error;
  return Result::success;
}

Result FakeNccl::get_unique_id(nccl::UniqueId& id) {
  const std::lock_guard lock(mutex_);
  note("get_unique_id");
  if (const auto error = injected("get_unique_id")) return *error;
  std::random_device random;
  std::snprintf(id.bytes.data(), name_bytes + 1, "%08x%08x", random(), random());
  for (std::size_t i = name_bytes; i < id.bytes.size(); ++i) id.bytes[i] = rest_of_id(i);
  return Result::success;
}

End FakeNccl::joining(Comm comm) {
  if (!post_) return nullptr;
  const pid_t process = getpid();
  post_->put(comm->name("join", comm->rank), message_of(&process, sizeof process));
  return [this, comm]() -> std::optional<Ended> {
    for (int rank = 0; rank < comm->size; ++rank)
      if (!post_->read(comm->name("join", rank))) return std::nullopt;
    const std::string missing = streams_->take_memory(comm->device);
    comm->is_connected = missing.empty();
    return missing.empty() ? Ended{} : Ended{Result::unhandled_cuda_error, missing};
  };
}

Result FakeNccl::init(Comm& made, int size, const nccl::UniqueId& id, int rank, bool shares) {
  const std::lock_guard lock(mutex_);
  note("init " + std::to_string(rank) + " of " + std::to_string(size) +
       (shares ? "" : " sharing nothing"));
  if (group().depth > 0) return refuse("init inside a group");
  for (std::size_t i = name_bytes; post_ && i < id.bytes.size(); ++i)
    if (id.bytes[i] != rest_of_id(i)) return refuse("init with a damaged id");
  made = add_comm(streams_->device());
  made->id.assign(id.bytes.data(), name_bytes);
  made->size = size;
  made->rank = rank;
  return begin(made, "init", [&] { return joining(made); });
}

bool FakeNccl::has_members(const ncclComm& parent, const std::string& split, int color,
                           ncclComm& part) {
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int rank = 0; rank < parent.size; ++rank) {
    const std::optional<Message> message = post_->read(parent.name(split, rank));
    if (!message) return false;
    int theirs[2];
    std::memcpy(theirs, message->data(), sizeof theirs);
    if (theirs[0] == color) members.emplace_back(theirs[1], rank);
  }
  std::ranges::sort(members);
  const auto own = std::ranges::find(members, std::pair(part.rank, parent.rank));
  part.id = parent.id + "." + split + "." + std::to_string(color);
  part.size = static_cast<int>(members.size());
  part.rank = static_cast<int>(own - members.begin());
  return true;
}

Result FakeNccl::split(Comm parent, int color, int key, Comm& made, bool shares) {
  const std::lock_guard lock(mutex_);
  note("split " + std::to_string(parent->number) + " color " + std::to_string(color) + " key " +
       std::to_string(key) + (shares ? "" : " sharing nothing"));
  if (group().depth > 0) return refuse("split inside a group");
  if (const std::string why = violation(parent, "split"); !why.empty()) return refuse(why);
  if (!streams_->is_idle(*parent))
    return refuse("split of a communicator that has something to do");
  made = nullptr;
  Comm part = add_comm(parent->device);
  part->rank = key;
  part->state = State::busy;
  part->polls_left = polls_;
  if (shares) part->order = parent->order;
  parent->part = part;
  parent->place_of_part = &made;
  const std::string name = "split" + std::to_string(parent->splits++);
  const int mine[] = {color, key};
  if (post_) post_->put(parent->name(name, parent->rank), message_of(mine, sizeof mine));
  // Only when the parent is ready again is the part known.
  const Result result = begin(parent, "split", [=, this]() -> End {
    return [=, this]() -> std::optional<Ended> {
      if (post_ && !has_members(*parent, name, color, *part)) return std::nullopt;
      part->under_way = joining(part);
      bear(*parent);
      return Ended{};
    };
  });
  // NCCL, too, says so while the parent is in progress (its source, init.cc).
  return result == Result::in_progress ? Result::success : result;
}

/// It is used by collectives under way, or by graphs.
bool FakeNccl::is_used(const ncclComm& comm) const {
  return streams_->go_on() &&
         std::ranges::any_of(comm.uses, [](const auto& use) { return !use.expired(); });
}

Result FakeNccl::finalize(Comm comm) {
  const std::lock_guard lock(mutex_);
  note("finalize " + std::to_string(comm->number));
  if (const std::string why = violation(comm, "finalize"); !why.empty()) return refuse(why);
  comm->was_finalized = true;
  return begin(comm, "finalize", [=, this]() -> End {
    return [=, this] { return is_used(*comm) ? std::nullopt : std::optional(Ended{}); };
  });
}

/// Tells whether a rank that has joined has not ended it yet.
bool FakeNccl::waits_for_us(const ncclComm& comm, int rank) {
  const auto joined = post_->read(comm.name("join", rank));
  if (!joined || post_->read(comm.name("closed", rank))) return false;
  pid_t process = 0;
  std::memcpy(&process, joined->data(), sizeof process);
  return streams_->lives(process);
}

void FakeNccl::leave(ncclComm& comm) {
  const int device_of_caller = streams_->device();
  streams_->set_device(comm.device);
  comm.under_way = nullptr;
  if (comm.is_connected && streams_->go_on()) {
    wait_while([&] { return is_used(comm); });
    post_->put(comm.name("closed", comm.rank), {});
    for (int rank = 0; rank < comm.size; ++rank)
      wait_while([&] { return waits_for_us(comm, rank); });
    // Else peers may still have to read it.
    post_->remove(comm.last_post);
  }
  if (comm.is_connected) streams_->give_back_memory(comm.device);
  streams_->set_device(device_of_caller);
}

Result FakeNccl::destroy(Comm comm) {
  {
    std::unique_lock lock(mutex_);
    note("destroy " + std::to_string(comm->number));
    if (!comm->was_finalized || comm->state != State::ready)
      return refuse("destroy before finalize's end");
    changed_.wait(lock, [&] { return !destroys_hang_; });
    comm->state = State::gone;
    comm->is_gone = true;
  }
  leave(*comm);
  return Result::success;
}

Result FakeNccl::abort(Comm comm) {
  {
    std::unique_lock lock(mutex_);
    note("abort " + std::to_string(comm->number));
    if (comm->state == State::gone) return refuse("abort of a communicator that is gone");
    if (comm->maker == std::this_thread::get_id()) return refuse("abort on the thread that works");
    group().has_aborts = true;
    changed_.wait(lock, [&] { return !aborts_hang_; });
    // The caller waits for a split that has not finished.
    bear(*comm);
    comm->state = State::gone;
    comm->is_gone = true;
    changed_.notify_all();
  }
  leave(*comm);
  return Result::success;
}

}  // namespace dstune::test
