#include "nccl_communicator.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune::nccl {

struct Teardown::State {
  using Count = std::shared_ptr<std::atomic<int>>;

  std::function<void()> begin_thread;
  mutable std::mutex mutex;
  Count under_way = std::make_shared<std::atomic<int>>(0);

  [[nodiscard]] Count count() const {
    const std::lock_guard lock(mutex);
    return under_way;
  }
  void begin() const noexcept {
    if (!begin_thread) return;
    try {
      begin_thread();
    } catch (const std::exception&) {
      // A device that is lost: what is to end is tried all the same.
    }
  }
};

namespace {

void abort_all(Library& library, const Teardown::Comms& comms) {
  if (comms.empty()) return;
  library.group_start();
  for (const Comm comm : comms) library.abort(comm);
  library.group_end();
}

}  // namespace

Teardown::Teardown(std::function<void()> begin_thread) : state_(std::make_shared<State>()) {
  state_->begin_thread = std::move(begin_thread);
}

Teardown Teardown::another() const {
  return Teardown(state_->begin_thread);
}

void Teardown::start(std::function<void()> work) noexcept {
  const State::Count under_way = state_->count();
  ++*under_way;
  try {
    // The state is shared: a thread that never ends outlives this.
    std::thread([state = state_, under_way, work = std::move(work)]() mutable {
      state->begin();
      work();
      work = nullptr;
      --*under_way;
    }).detach();
  } catch (const std::exception&) {
    // No thread can be had: they count as ends that never come.
  }
}

void Teardown::abort(std::shared_ptr<Library> library, Comms comms, std::function<Comms()> more,
                     std::shared_ptr<void> owner) noexcept {
  if (comms.empty()) return;
  start([library = std::move(library), comms = std::move(comms), more = std::move(more),
         owner = std::move(owner)] {
    abort_all(*library, comms);
    if (more) abort_all(*library, more());
  });
}

void Teardown::destroy(std::shared_ptr<Library> library, Comms comms,
                       std::shared_ptr<void> owner) noexcept {
  start([library = std::move(library), comms = std::move(comms), owner = std::move(owner)] {
    for (const Comm comm : comms) library->destroy(comm);
  });
}

bool Teardown::are_done() const {
  return *state_->count() == 0;
}

void Teardown::forget() {
  const std::lock_guard lock(state_->mutex);
  state_->under_way = std::make_shared<std::atomic<int>>(0);
}

void Teardown::wait(const Waiter& waiter) const {
  waiter.until([this] { return are_done(); }, "waiting for NCCL to end communicators");
}

}  // namespace dstune::nccl

namespace dstune {

using nccl::Comm;
using nccl::Result;

namespace {

/// Tells whether the text says that memory lacks. NCCL passes on an error of CUDA in CUDA's words,
/// or its own last words are the error (alloc.h: "Failed to CUDA calloc 4194304 bytes").
bool is_out_of_memory(const std::string& text) {
  return std::ranges::any_of(
      std::array{"out of memory", "Failed to CUDA malloc ", "Failed to CUDA calloc "},
      [&](const char* words) { return text.find(words) != text.npos; });
}

}  // namespace

NcclCommunicator::NcclCommunicator(Parts parts, std::uint64_t id, const Place& place)
    : parts_(std::move(parts)), id_(id), place_(place) {}

void NcclCommunicator::fail(Result result, const char* what) const {
  const std::string text = std::string(what) + ": NCCL: " + library().error_text(result);
  // The rank that it happened to has more to say.
  if (result == Result::remote_error) throw CollectiveError(CollectiveError::Cause::aborted, text);
  if (result == Result::unhandled_cuda_error && is_out_of_memory(text)) {
    const std::int64_t free_bytes = parts_.free_bytes ? parts_.free_bytes() : 0;
    throw OutOfMemory(0, static_cast<std::size_t>(free_bytes), text);
  }
  throw DeviceError(text);
}

void NcclCommunicator::require_usable() const {
  switch (state_) {
    case State::usable:
      return;
    case State::late:
      throw CollectiveError(CollectiveError::Cause::deadline, "NCCL was aborted at the deadline");
    case State::aborted:
      throw CollectiveError(CollectiveError::Cause::aborted, "NCCL was aborted");
    case State::given_up:
      throw LogicError("an NCCL communicator is used after it was given up");
  }
}

void NcclCommunicator::require_success(Result result, const char* what) const {
  if (result != Result::success) fail(result, what);
}

template <class Make>
void NcclCommunicator::measured(Make&& make) {
  guarded([&] {
    const std::int64_t before = parts_.free_bytes ? parts_.free_bytes() : 0;
    make();
    const std::int64_t after = parts_.free_bytes ? parts_.free_bytes() : 0;
    device_bytes_ += std::max<std::int64_t>(0, before - after);
  });
}

Result NcclCommunicator::state_of(Comm comm, const char* what) {
  Result state = Result::success;
  require_success(locked([&](nccl::Library& library) { return library.async_error(comm, state); }),
                  what);
  return state;
}

void NcclCommunicator::wait_for(Comm comm, Result state, const Waiter& waiter, const char* what) {
  const auto is_done = [&] {
    if (state == Result::in_progress) state = state_of(comm, what);
    return state != Result::in_progress;
  };
  waiter.until(is_done, what);
  require_success(state, what);
}

void NcclCommunicator::connect(const Waiter& waiter) {
  constexpr const char* what = "making an NCCL communicator";
  measured([&] {
    const Result result = locked([&](nccl::Library& library) {
      return library.init(all_, place_.size, place_.unique_id, place_.rank,
                          parts_.shares_resources);
    });
    wait_for(all_, result, waiter, what);
  });
}

Comm NcclCommunicator::of(const RankRange& among, const Waiter& waiter) {
  constexpr const char* what = "splitting an NCCL communicator";
  require_usable();
  if (among.count == place_.size) return all_;
  const Range range{among.first, among.stride, among.count};
  if (const auto known = of_range_.find(range); known != of_range_.end()) return known->second;
  Comm* made = nullptr;
  measured([&] {
    const Result result = locked([&](nccl::Library& library) {
      made = &of_range_[range];
      // Ranges that do not overlap differ in their first ranks.
      return library.split(all_, among.first, among.index_of(place_.rank), *made,
                           parts_.shares_resources);
    });
    // It has only begun when the call says success (NCCL's source, init.cc: what is returned is
    // not what has become of it), and the handle is there when the parent is ready.
    wait_for(all_, result == Result::success ? Result::in_progress : result, waiter, what);
    wait_for(*made, Result::in_progress, waiter, what);
  });
  return *made;
}

void NcclCommunicator::check() {
  constexpr const char* what = "waiting for collectives";
  const auto look = [&](Comm comm) {
    const Result state = state_of(comm, what);
    if (state != Result::in_progress) require_success(state, what);
  };
  guarded([&] {
    look(all_);
    for (const auto& [range, comm] : of_range_) look(comm);
  });
}

void NcclCommunicator::close(const Waiter& waiter) noexcept {
  if (!is_usable()) return;
  try {
    const nccl::Teardown::Comms comms = all_comms();
    for (const Comm comm : comms) {
      const auto finalize = [&](nccl::Library& library) { return library.finalize(comm); };
      wait_for(comm, locked(finalize), waiter, "closing an NCCL communicator");
    }
    {
      const std::lock_guard lock(calls_);
      require_usable();
      state_ = State::given_up;
    }
    // Nothing can be aborted from here on, and a peer that does not come holds it up.
    nccl::Teardown teardown = parts_.teardown.another();
    teardown.destroy(parts_.library, comms, shared_from_this());
    teardown.wait(waiter);
  } catch (const std::exception&) {
    // The rest is aborted, where it can be.
    abandon();
  }
}

nccl::Teardown::Comms NcclCommunicator::all_comms() const {
  nccl::Teardown::Comms comms;
  for (const auto& [range, comm] : of_range_)
    if (comm != nullptr) comms.push_back(comm);
  if (all_ != nullptr) comms.push_back(all_);
  return comms;
}

void NcclCommunicator::end(State state, nccl::Teardown& teardown) noexcept {
  // Who is stuck inside NCCL keeps the lock: it is what has to be let go on.
  const std::unique_lock lock(calls_, parts_.longest_call);
  State expected = State::usable;
  if (!state_.compare_exchange_strong(expected, state)) return;
  const nccl::Teardown::Comms comms = all_comms();
  // A split that was under way leaves what it was about to make.
  const std::function created_since = [this, known = comms] {
    nccl::Teardown::Comms created = all_comms();
    std::erase_if(created,
                  [&](Comm comm) { return std::ranges::find(known, comm) != known.end(); });
    return created;
  };
  if (parts_.shares_resources)
    return teardown.abort(parts_.library, comms, created_since, shared_from_this());
  for (const Comm comm : comms) {
    teardown.abort(parts_.library, {comm},
                   comm == all_ ? created_since : std::function<nccl::Teardown::Comms()>(),
                   shared_from_this());
  }
}

void NcclCommunicator::interrupt(CollectiveError::Cause why) noexcept {
  end(why == CollectiveError::Cause::deadline ? State::late : State::aborted, parts_.teardown);
}

}  // namespace dstune
