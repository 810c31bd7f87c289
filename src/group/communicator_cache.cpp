#include "communicator_cache.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
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

template <class Message>
Bytes pack(const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  Bytes bytes(sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

template <class Message>
Message unpack(const Bytes& bytes) {
  require(bytes.size() == sizeof(Message), "a message of the wrong size");
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

}  // namespace

Rendezvous::Rendezvous(Communicator world)
    : world_(std::move(world)),
      leading_(world_, world_, MpiMailbox::Side::controller),
      following_(world_, world_, MpiMailbox::Side::worker) {}

Decision Rendezvous::agree(std::span<const int> world_ranks, const Proposal& mine,
                           const Waiter& waiter) {
  const int leader = world_ranks.front();
  if (leader == world_.rank()) return lead(world_ranks.subspan(1), mine, waiter);
  return follow(leader, mine, waiter);
}

void Rendezvous::collect_proposals() {
  while (const std::optional<Mailbox::Message> message = leading_.try_receive()) {
    const auto proposal = unpack<Proposal>(message->data);
    proposals_[proposal.attempt][message->source] = proposal;
  }
}

Decision Rendezvous::lead(std::span<const int> members, const Proposal& mine,
                          const Waiter& waiter) {
  // Who offered for an earlier attempt has given it up, or will.
  proposals_.erase(proposals_.begin(), proposals_.lower_bound(mine.attempt));
  waiter.until(
      [&] {
        collect_proposals();
        const auto& arrived = proposals_[mine.attempt];
        return std::all_of(members.begin(), members.end(),
                           [&](int rank) { return arrived.contains(rank); });
      },
      "waiting for the ranks of a group");
  Decision decision{mine.attempt, mine.duplicates_left - 1, mine.communicator_id != 0,
                    mine.gave_up};
  for (const int rank : members) {
    const Proposal& proposal = proposals_[mine.attempt][rank];
    decision.duplicate = std::min(decision.duplicate, proposal.duplicates_left - 1);
    if (proposal.communicator_id != mine.communicator_id) decision.use_existing = false;
    if (proposal.gave_up) decision.abandon_existing = true;
  }
  for (const int rank : members) leading_.send(rank, pack(decision));
  return decision;
}

Decision Rendezvous::follow(int leader, const Proposal& mine, const Waiter& waiter) {
  following_.send(leader, pack(mine));
  std::optional<Decision> decision;
  waiter.until(
      [&] {
        // Answers to earlier attempts may still come in.
        while (const std::optional<Mailbox::Message> message = following_.try_receive()) {
          const auto received = unpack<Decision>(message->data);
          if (received.attempt == mine.attempt) decision = received;
        }
        return decision.has_value();
      },
      "waiting for the first rank of a group");
  return *decision;
}

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

// The thread and its creator share this; the later of the two deletes it.
struct Creation {
  std::mutex mutex;
  bool is_given_up = false;
  std::promise<Communicator> made;
};

void abandon_made(std::future<Communicator>& made) noexcept {
  try {
    made.get().abandon();
  } catch (...) {
    // There is none.
  }
}

}  // namespace

Communicator create_group_until(std::shared_ptr<Communicator> parent, std::span<const int> ranks,
                                int tag, const Waiter& waiter) {
  auto creation = std::make_shared<Creation>();
  std::future<Communicator> made = creation->made.get_future();
  const auto is_done = [&] {
    return made.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  std::thread thread([creation, parent, members = std::vector(ranks.begin(), ranks.end()), tag] {
    try {
      Communicator group = parent->create_group(members, tag);
      const std::lock_guard lock(creation->mutex);
      // The others have given up as well, so nobody would free it with us.
      if (creation->is_given_up) group.abandon();
      creation->made.set_value(std::move(group));
    } catch (...) {
      creation->made.set_exception(std::current_exception());
    }
  });
  try {
    waiter.until(is_done, "making a communicator");
  } catch (...) {
    const std::lock_guard lock(creation->mutex);
    creation->is_given_up = true;
    parent->abandon();
    thread.detach();
    // The thread abandons a communicator that is not made now.
    if (is_done()) abandon_made(made);
    throw;
  }
  thread.join();
  return made.get();
}

}  // namespace dstune
