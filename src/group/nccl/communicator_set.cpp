#include "communicator_set.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

Waiter limited(const Waiter& waiter, double limit_s) {
  const auto limit =
      std::chrono::duration_cast<Waiter::Clock::duration>(std::chrono::duration<double>(limit_s));
  return waiter.with_deadline(std::min(waiter.deadline(), Waiter::Clock::now() + limit));
}

/// An id that the first rank asks the library for. Throws CollectiveError on every rank where it
/// gets none. Collective over the group.
nccl::UniqueId agree_on_unique_id(ProcessGroup& host, nccl::Library& library) {
  // The first number is NCCL's result, the others are the id's bytes, and nobody computes with
  // these.
  nccl::UniqueId id;
  std::array<double, 1 + sizeof id.bytes / sizeof(double)> mine{};
  if (host.group_rank() == 0) {
    mine[0] = static_cast<double>(library.get_unique_id(id));
    std::memcpy(&mine[1], id.bytes.data(), sizeof id.bytes);
  }
  const std::vector<double> all = host.exchange(mine);
  const auto result = static_cast<nccl::Result>(static_cast<int>(all[0]));
  if (result != nccl::Result::success) {
    throw CollectiveError(
        CollectiveError::Cause::aborted,
        "making an NCCL communicator: the first rank gets no id: " + library.error_text(result));
  }
  std::memcpy(id.bytes.data(), &all[1], sizeof id.bytes);
  return id;
}

}  // namespace

NcclCommunicatorSet::~NcclCommunicatorSet() {
  if (is_given_up_) return;
  // Before 2.27 what this thread began last, and another one aborts, is where NCCL keeps what it
  // begins next.
  wait_for(teardown_);
  // In the order of their numbers on every rank.
  std::vector<std::uint64_t> ids;
  std::vector<int> all_ranks;
  for (const auto& [key, entry] : entries_) {
    ids.push_back(entry.communicator->id());
    all_ranks.insert(all_ranks.end(), key.ranks.begin(), key.ranks.end());
  }
  std::ranges::sort(all_ranks);
  close(std::move(ids), all_ranks);
  wait_for(left_);
  wait_for(teardown_);
}

void NcclCommunicatorSet::wait_for(const nccl::Teardown& teardown) const noexcept {
  try {
    teardown.wait(limited(Waiter(), options_.close_limit_s));
  } catch (const CollectiveError&) {
    // The threads that are stuck have all they need.
  }
}

std::uint64_t NcclCommunicatorSet::id_of_oldest_beside(const Key& own) const {
  int others = 0;
  const Entry* oldest = nullptr;
  for (const auto& [key, entry] : entries_) {
    if (key == own) continue;
    ++others;
    if (oldest == nullptr || entry.last_attempt < oldest->last_attempt) oldest = &entry;
  }
  return others < options_.max_communicators || oldest == nullptr ? 0 : oldest->communicator->id();
}

void NcclCommunicatorSet::close(std::vector<std::uint64_t> ids, std::span<const int> present) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  // Each close takes all the time it is given if a member is gone. Together they take no more than
  // the limit, and a little for those that come later.
  const Waiter all = limited(Waiter(), options_.close_limit_s);
  for (const std::uint64_t id : ids) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
      return entry.second.communicator->id() == id;
    });
    if (found == entries_.end()) continue;
    const auto& [key, entry] = *found;
    if (std::ranges::includes(present, key.ranks)) {
      const Waiter one = limited(Waiter(), options_.close_limit_s / 10);
      entry.communicator->close(all.with_deadline(std::max(all.deadline(), one.deadline())));
    } else {
      entry.communicator->leave_to(left_);
      // Its memory is free again and nothing runs beside the next group, where the others are not
      // needed for it.
      wait_for(left_);
    }
    entries_.erase(found);
  }
}

std::shared_ptr<NcclCommunicator> NcclCommunicatorSet::obtain(ProcessGroup& host,
                                                              std::uint64_t attempt,
                                                              const Waiter& waiter, bool is_risky) {
  try {
    teardown_.wait(limited(waiter, options_.abort_limit_s));
  } catch (const CollectiveError& error) {
    if (error.why() == CollectiveError::Cause::aborted || waiter.deadline() <= Waiter::Clock::now())
      throw;
    // Some versions wait for ever for a peer that does not end its own, such as one whose GPU
    // hangs. Everything that such a teardown still holds is lost.
    teardown_.forget();
  }
  std::erase_if(entries_,
                [](const auto& entry) { return !entry.second.communicator->is_usable(); });
  const Key key{host.world_ranks(), is_risky};
  const auto own = entries_.find(key);
  const auto own_id =
      static_cast<double>(own == entries_.end() ? 0 : own->second.communicator->id());
  // Numbers of attempts are far below 2^53.
  const std::array mine{own_id, static_cast<double>(id_of_oldest_beside(key))};
  const std::vector<double> all = host.exchange(mine);
  bool is_everyones = own != entries_.end();
  std::vector<std::uint64_t> to_close;
  for (std::size_t rank = 0; rank < key.ranks.size(); ++rank) {
    is_everyones = is_everyones && all[2 * rank] == own_id;
    if (all[2 * rank + 1] > 0) to_close.push_back(static_cast<std::uint64_t>(all[2 * rank + 1]));
  }
  if (is_everyones) {
    own->second.last_attempt = attempt;
    set_current(attempt, own->second.communicator);
    return own->second.communicator;
  }
  // A member gave it up: it can be finalized with nobody.
  if (own != entries_.end()) {
    own->second.communicator->abandon();
    entries_.erase(own);
  }
  close(std::move(to_close), key.ranks);
  auto made = make(host, attempt, limited(waiter, options_.connect_limit_s), is_risky);
  entries_[key] = {made, attempt};
  return made;
}

std::shared_ptr<NcclCommunicator> NcclCommunicatorSet::make(ProcessGroup& host,
                                                            std::uint64_t attempt,
                                                            const Waiter& waiter, bool is_risky) {
  const nccl::UniqueId unique_id = agree_on_unique_id(host, *options_.library);
  auto made = std::make_shared<NcclCommunicator>(
      NcclCommunicator::Parts{options_.library, teardown_, options_.free_bytes, !is_risky,
                              options_.longest_call},
      attempt, NcclCommunicator::Place{unique_id, host.group_rank(), host.size()});
  set_current(attempt, made);
  try {
    made->connect(waiter);
    // Nobody keeps one that another could not make: that one does not come here.
    host.exchange(std::array{0.0});
  } catch (...) {
    made->abandon();
    throw;
  }
  return made;
}

void NcclCommunicatorSet::abandon(std::span<const int> world_ranks) {
  if (is_given_up_) return;
  auto found = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!std::ranges::equal(entry->first.ranks, world_ranks)) continue;
    if (found == entries_.end() || entry->second.last_attempt > found->second.last_attempt)
      found = entry;
  }
  if (found == entries_.end()) return;
  found->second.communicator->abandon();
  entries_.erase(found);
}

void NcclCommunicatorSet::give_up() noexcept {
  is_given_up_ = true;
}

void NcclCommunicatorSet::set_current(std::uint64_t attempt,
                                      const std::shared_ptr<NcclCommunicator>& communicator) {
  const std::lock_guard lock(current_mutex_);
  current_ = {attempt, communicator};
}

void NcclCommunicatorSet::interrupt(std::uint64_t attempt, CollectiveError::Cause why) {
  std::shared_ptr<NcclCommunicator> communicator;
  {
    const std::lock_guard lock(current_mutex_);
    if (current_.attempt == attempt) communicator = current_.communicator.lock();
  }
  if (communicator) communicator->interrupt(why);
}

std::int64_t NcclCommunicatorSet::device_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [key, entry] : entries_) bytes += entry.communicator->device_bytes();
  return bytes;
}

}  // namespace dstune
