#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "dstune/base/wait.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/comm/mailbox.hpp"

namespace dstune {

/// What a member brings to a group across nodes: the communicator it has for these ranks (0: none),
/// whether it gave one up in a failure, and how many duplicates of the world are left to it.
struct Proposal {
  std::uint64_t attempt = 0;
  std::uint64_t communicator_id = 0;
  std::int64_t duplicates_left = 0;
  bool gave_up = false;
};

/// What all members do: use the communicator they all have; else free what some still have, or
/// abandon it where a member gave it up, and make one from that duplicate (-1: none is left).
struct Decision {
  std::uint64_t attempt = 0;
  std::int64_t duplicate = -1;
  bool use_existing = false;
  bool abandon_existing = false;
};

/// Members meet before anything that can not be polled: who is missing costs a deadline and nothing
/// else, and those who remember different failures agree again.
class Rendezvous {
 public:
  /// Over a duplicate of the world that nobody else uses.
  explicit Rendezvous(Communicator world);

  /// Members only. Throws CollectiveError.
  Decision agree(std::span<const int> world_ranks, const Proposal& mine, const Waiter& waiter);

 private:
  Decision lead(std::span<const int> members, const Proposal& mine, const Waiter& waiter);
  Decision follow(int leader, const Proposal& mine, const Waiter& waiter);
  void collect_proposals();

  Communicator world_;
  MpiMailbox leading_;
  MpiMailbox following_;
  std::map<std::uint64_t, std::map<int, Proposal>> proposals_;  // by attempt and rank
};

}  // namespace dstune
