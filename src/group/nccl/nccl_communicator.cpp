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
  throw DeviceError(text);
}

void NcclCommunicator::require_success(Result result, const char* what) const {
  if (result != Result::success) fail(result, what);
}

template <class Body>
void NcclCommunicator::guarded(Body&& body) {
  require(is_usable_, "an NCCL communicator is used after it was given up");
  try {
    body();
  } catch (...) {
    abandon();
    throw;
  }
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
        if (state == Result::in_progress) require_success(library().async_error(comm, state), what);
        return state != Result::in_progress;
      },
      what);
  require_success(state, what);
}

void NcclCommunicator::connect(const Waiter& waiter) {
  constexpr const char* what = "making an NCCL communicator";
  guarded([&] {
    measured([&] {
      const Result result =
          library().init(all_, place_.size, place_.unique_id, place_.rank, parts_.shares_resources);
      wait_for(all_, result, waiter, what);
    });
  });
}

Comm NcclCommunicator::of(const RankRange& among, const Waiter& waiter) {
  constexpr const char* what = "splitting an NCCL communicator";
  if (among.count == place_.size) {
    require(is_usable_, "an NCCL communicator is used after it was given up");
    return all_;
  }
  const auto [part, is_new] = of_range_.try_emplace({among.first, among.stride, among.count});
  Comm& made = part->second;
  guarded([&] {
    if (!is_new) return;
    measured([&] {
      // Ranges that do not overlap differ in their first ranks.
      const Result result = library().split(all_, among.first, among.index_of(place_.rank), made,
                                            parts_.shares_resources);
      wait_for(all_, result, waiter, what);
      wait_for(made, Result::in_progress, waiter, what);
    });
  });
  return made;
}

void NcclCommunicator::settle(Comm comm, Result result, const Waiter& waiter, const char* what) {
  guarded([&] { wait_for(comm, result, waiter, what); });
}

void NcclCommunicator::check() {
  constexpr const char* what = "waiting for collectives";
  const auto look = [&](Comm comm) {
    Result state = Result::success;
    require_success(library().async_error(comm, state), what);
    if (state != Result::in_progress) require_success(state, what);
  };
  guarded([&] {
    look(all_);
    for (const auto& [range, comm] : of_range_) look(comm);
  });
}

void NcclCommunicator::close_one(Comm comm, const Waiter& waiter) {
  wait_for(comm, library().finalize(comm), waiter, "closing an NCCL communicator");
  // Whatever this says, there is nothing left that could be aborted.
  static_cast<void>(library().destroy(comm));
}

void NcclCommunicator::close(const Waiter& waiter) noexcept {
  if (!is_usable_) return;
  try {
    for (; !of_range_.empty(); of_range_.erase(of_range_.begin()))
      close_one(of_range_.begin()->second, waiter);
    close_one(all_, waiter);
    is_usable_ = false;
  } catch (const std::exception&) {
    abandon();
  }
}

void NcclCommunicator::abandon() noexcept {
  if (!std::exchange(is_usable_, false)) return;
  std::vector<Comm> comms;
  for (const auto& [range, comm] : of_range_)
    if (comm != nullptr) comms.push_back(comm);
  if (all_ != nullptr) comms.push_back(all_);
  parts_.aborts.start(parts_.library, std::move(comms), shared_from_this());
}

}  // namespace dstune
