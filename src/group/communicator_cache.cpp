#include "communicator_cache.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/comm/environment.hpp"

namespace dstune {
namespace {

constexpr std::uint64_t known_id = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t tags = 32768;

[[noreturn]] void refuse(const char* why) {
  throw CollectiveError(
      CollectiveError::Cause::aborted,
      std::string("no communicator for this group was made at start-up, and ") + why);
}

}  // namespace

CommunicatorCache::CommunicatorCache(const Communicator& world,
                                     const std::vector<std::vector<int>>& known,
                                     const GroupTable::Options& options)
    : options_(options), rendezvous_(world.duplicate()) {
  options_.create_on_demand = options.create_on_demand && MpiEnvironment::threads_allowed();
  if (options_.create_on_demand) {
    for (int i = 0; i < options.spare_duplicates; ++i) {
      duplicates_.push_back(std::make_shared<Communicator>(world.duplicate()));
    }
  }
  const int own_rank = world.rank();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Ranks& ranks = known[i];
    if (!std::binary_search(ranks.begin(), ranks.end(), own_rank) || entries_.contains(ranks)) {
      continue;
    }
    entries_[ranks] = {
        std::make_shared<MpiContext>(world.create_group(ranks, static_cast<int>(i % tags)),
                                     options.mpi_staging_bytes, known_id),
        true};
  }
}

std::shared_ptr<MpiContext> CommunicatorCache::obtain(std::span<const int> world_ranks,
                                                      std::uint64_t attempt, const Waiter& waiter) {
  const Ranks ranks(world_ranks.begin(), world_ranks.end());
  drop_abandoned(ranks);
  const auto found = entries_.find(ranks);
  const Proposal proposal{attempt, found == entries_.end() ? 0 : found->second.context->id,
                          static_cast<std::int64_t>(duplicates_.size()), gave_up_.contains(ranks)};
  const Decision decision = rendezvous_.agree(ranks, proposal, waiter);
  if (decision.use_existing) {
    found->second.last_attempt = attempt;
    return found->second.context;
  }
  // Members keep different ones, and one may still be inside what it gave up.
  if (decision.abandon_existing) {
    abandon(ranks);
  } else {
    entries_.erase(ranks);
  }
  if (!options_.create_on_demand) refuse("none can be made now: that takes MPI_THREAD_MULTIPLE");
  if (decision.duplicate < 0) refuse("too many attempts to make one have failed");
  return create(ranks, attempt, decision.duplicate, waiter);
}

std::shared_ptr<MpiContext> CommunicatorCache::create(const Ranks& ranks, std::uint64_t attempt,
                                                      std::int64_t duplicate,
                                                      const Waiter& waiter) {
  make_room();
  const auto index = static_cast<std::size_t>(duplicate);
  try {
    Communicator made =
        create_group_until(duplicates_[index], ranks, static_cast<int>(attempt % tags), waiter);
    auto context =
        std::make_shared<MpiContext>(std::move(made), options_.mpi_staging_bytes, attempt);
    entries_[ranks] = {context, false, attempt};
    gave_up_.erase(ranks);
    ++created_on_demand_;
    return context;
  } catch (...) {
    // Creations from this duplicate, and from those made after it, would hang as well.
    has_abandoned_ = true;
    gave_up_.insert(ranks);
    for (std::size_t i = index; i < duplicates_.size(); ++i) duplicates_[i]->abandon();
    duplicates_.resize(index);
    throw;
  }
}

void CommunicatorCache::make_room() {
  for (;;) {
    auto oldest = entries_.end();
    int on_demand = 0;
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.known) continue;
      ++on_demand;
      const bool older =
          oldest == entries_.end() || entry->second.last_attempt < oldest->second.last_attempt;
      if (older && entry->second.context.use_count() == 1) oldest = entry;
    }
    if (on_demand < options_.max_on_demand || oldest == entries_.end()) return;
    const Ranks ranks = oldest->first;
    drop_abandoned(ranks);
    entries_.erase(ranks);
  }
}

void CommunicatorCache::drop_abandoned(const Ranks& ranks) {
  const auto found = entries_.find(ranks);
  if (found == entries_.end() || !found->second.context->abandoned) return;
  has_abandoned_ = true;
  gave_up_.insert(ranks);
  entries_.erase(found);
}

void CommunicatorCache::abandon(std::span<const int> world_ranks) {
  const Ranks ranks(world_ranks.begin(), world_ranks.end());
  const auto found = entries_.find(ranks);
  if (found == entries_.end()) return;
  found->second.context->abandon();
  drop_abandoned(ranks);
}

bool CommunicatorCache::has_abandoned() const {
  return has_abandoned_ || std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
           return entry.second.context->abandoned;
         });
}

namespace {

// What the thread and its creator share; the later of the two deletes it.
struct Creation {
  std::shared_ptr<Communicator> parent;
  std::vector<int> ranks;
  int tag = 0;

  std::mutex mutex;
  bool done = false;
  bool given_up = false;
  std::optional<Communicator> made;
  std::exception_ptr error;
};

void create(const std::shared_ptr<Creation>& creation) {
  std::optional<Communicator> made;
  std::exception_ptr error;
  try {
    made = creation->parent->create_group(creation->ranks, creation->tag);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(creation->mutex);
  // The others have given up as well, so nobody would free it with us.
  if (creation->given_up && made) made->abandon();
  creation->made = std::move(made);
  creation->error = error;
  creation->done = true;
}

}  // namespace

Communicator create_group_until(std::shared_ptr<Communicator> parent, std::span<const int> ranks,
                                int tag, const Waiter& waiter) {
  auto creation = std::make_shared<Creation>();
  creation->parent = std::move(parent);
  creation->ranks.assign(ranks.begin(), ranks.end());
  creation->tag = tag;
  std::thread thread([creation] { create(creation); });
  try {
    waiter.until(
        [&] {
          const std::lock_guard lock(creation->mutex);
          return creation->done;
        },
        "making a communicator");
  } catch (...) {
    const std::lock_guard lock(creation->mutex);
    creation->given_up = true;
    creation->parent->abandon();
    if (creation->made) creation->made->abandon();
    thread.detach();
    throw;
  }
  thread.join();
  if (creation->error) std::rethrow_exception(creation->error);
  return std::move(*creation->made);
}

}  // namespace dstune
