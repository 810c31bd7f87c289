#include "nccl_communicator.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

using nccl::Comm;
using nccl::Result;

namespace {

/// As CUDA words it, whose error NCCL passes on, or as NCCL does, whose last words are the error
/// (alloc.h: "Failed to CUDA calloc 4194304 bytes").
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
  const std::int64_t before = parts_.free_bytes ? parts_.free_bytes() : 0;
  make();
  const std::int64_t after = parts_.free_bytes ? parts_.free_bytes() : 0;
  device_bytes_ += std::max<std::int64_t>(0, before - after);
}

void NcclCommunicator::wait_for(Comm comm, Result state, const Waiter& waiter, const char* what) {
  waiter.until(
      [&] {
        if (state == Result::in_progress) {
          const auto ask = [&](nccl::Library& library) { return library.async_error(comm, state); };
          require_success(locked(ask), what);
        }
        return state != Result::in_progress;
      },
      what);
  require_success(state, what);
}

void NcclCommunicator::connect(const Waiter& waiter) {
  constexpr const char* what = "making an NCCL communicator";
  guarded([&] {
    measured([&] {
      const Result result = locked([&](nccl::Library& library) {
        return library.init(all_, place_.size, place_.unique_id, place_.rank,
                            parts_.shares_resources);
      });
      wait_for(all_, result, waiter, what);
    });
  });
}

Comm NcclCommunicator::of(const RankRange& among, const Waiter& waiter) {
  constexpr const char* what = "splitting an NCCL communicator";
  require_usable();
  if (among.count == place_.size) return all_;
  const Range range{among.first, among.stride, among.count};
  if (const auto known = of_range_.find(range); known != of_range_.end()) return known->second;
  Comm* made = nullptr;
  guarded([&] {
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
  });
  return *made;
}

void NcclCommunicator::check() {
  constexpr const char* what = "waiting for collectives";
  const auto look = [&](Comm comm) {
    Result state = Result::success;
    const auto ask = [&](nccl::Library& library) { return library.async_error(comm, state); };
    require_success(locked(ask), what);
    if (state != Result::in_progress) require_success(state, what);
  };
  guarded([&] {
    look(all_);
    for (const auto& [range, comm] : of_range_) look(comm);
  });
}

void NcclCommunicator::finalize(Comm comm, const Waiter& waiter) {
  const auto call = [&](nccl::Library& library) { return library.finalize(comm); };
  wait_for(comm, locked(call), waiter, "closing an NCCL communicator");
}

void NcclCommunicator::close(const Waiter& waiter) noexcept {
  if (!is_usable()) return;
  try {
    const nccl::Teardown::Comms comms = all_comms();
    for (const Comm comm : comms) finalize(comm, waiter);
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
    // What is left is aborted, where it can be.
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
