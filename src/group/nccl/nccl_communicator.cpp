#include "nccl_communicator.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

using nccl::Comm;
using nccl::Result;

NcclCommunicator::NcclCommunicator(Parts parts, std::uint64_t id, const Place& place)
    : parts_(std::move(parts)), id_(id), place_(place) {}

void NcclCommunicator::fail(Result result, const char* what) const {
  const std::string text = std::string(what) + ": NCCL: " + library().error_text(result);
  // The rank that it happened to has more to say.
  if (result == Result::remote_error) throw CollectiveError(CollectiveError::Why::aborted, text);
  // As CUDA words it, whose error NCCL passes on.
  if (result == Result::unhandled_cuda_error && text.find("out of memory") != std::string::npos) {
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
      throw CollectiveError(CollectiveError::Why::deadline, "NCCL was aborted at the deadline");
    case State::aborted:
      throw CollectiveError(CollectiveError::Why::aborted, "NCCL was aborted");
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
      wait_for(all_, result, waiter, what);
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

void NcclCommunicator::close_one(Comm& comm, const Waiter& waiter) {
  const auto finalize = [&](nccl::Library& library) { return library.finalize(comm); };
  wait_for(comm, locked(finalize), waiter, "closing an NCCL communicator");
  // Whatever this says, there is nothing left that could be aborted.
  locked([&](nccl::Library& library) { return library.destroy(std::exchange(comm, nullptr)); });
}

void NcclCommunicator::close(const Waiter& waiter) noexcept {
  if (!is_usable()) return;
  try {
    for (auto& [range, comm] : of_range_) close_one(comm, waiter);
    close_one(all_, waiter);
  } catch (const std::exception&) {
    // What is left is aborted.
  }
  abandon();
}

void NcclCommunicator::end(State state) noexcept {
  // Who is stuck inside NCCL keeps the lock: it is what has to be let go on.
  const std::unique_lock lock(calls_, parts_.longest_call);
  State expected = State::usable;
  if (!state_.compare_exchange_strong(expected, state)) return;
  std::vector<Comm> comms;
  for (const auto& [range, comm] : of_range_)
    if (comm != nullptr) comms.push_back(comm);
  if (all_ != nullptr) comms.push_back(all_);
  if (parts_.shares_resources)
    return parts_.aborts.start(parts_.library, std::move(comms), shared_from_this());
  for (const Comm comm : comms) parts_.aborts.start(parts_.library, {comm}, shared_from_this());
}

void NcclCommunicator::abandon() noexcept {
  end(State::given_up);
}

void NcclCommunicator::interrupt(CollectiveError::Why why) noexcept {
  end(why == CollectiveError::Why::deadline ? State::late : State::aborted);
}

}  // namespace dstune
