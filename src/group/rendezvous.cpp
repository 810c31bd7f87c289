#include "rendezvous.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

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
      "waiting for the members of a group");
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
      "waiting for the first member of a group");
  return *decision;
}

}  // namespace dstune
