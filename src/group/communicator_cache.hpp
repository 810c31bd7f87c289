#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/group/group_table.hpp"
#include "mpi_group.hpp"

namespace dstune {

/// A member's part in the rendezvous of a group across nodes. It brings the communicator it has for
/// these ranks (0: none), and whether it gave one up in a failure. It also says how many duplicates
/// of the world are left to it.
struct Proposal {
  std::uint64_t attempt = 0;
  std::uint64_t communicator_id = 0;
  std::int64_t duplicates_left = 0;
  bool gave_up = false;
};

/// The decision that all members follow. They use the communicator they all have. Else they free
/// what some still have, or abandon it if a member gave it up, and make one from that duplicate
/// (-1: none is left).
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

/// The communicators of groups across nodes: those made at start-up, and those made on demand from
/// spare duplicates of the world, least recently used first out.
class CommunicatorCache {
 public:
  /// Makes the communicators of `known`. Collective over the world.
  CommunicatorCache(const Communicator& world, const std::vector<std::vector<int>>& known,
                    const GroupTable::Options& options);

  /// Members only. Throws CollectiveError.
  std::shared_ptr<MpiContext> obtain(std::span<const int> world_ranks, std::uint64_t attempt,
                                     const Waiter& waiter);
  void abandon(std::span<const int> world_ranks);
  [[nodiscard]] bool has_abandoned() const;
  [[nodiscard]] int created_on_demand() const { return created_on_demand_; }

 private:
  using Ranks = std::vector<int>;
  struct Entry {
    std::shared_ptr<MpiContext> context;
    bool known = false;
    std::uint64_t last_attempt = 0;
  };

  void drop_abandoned(const Ranks& ranks);
  std::shared_ptr<MpiContext> create(const Ranks& ranks, std::uint64_t attempt,
                                     std::int64_t duplicate, const Waiter& waiter);
  void make_room();

  GroupTable::Options options_;
  std::map<Ranks, Entry> entries_;
  std::set<Ranks> gave_up_;  // no communicator of these was made since one was abandoned here
  std::vector<std::shared_ptr<Communicator>> duplicates_;  // the last one is used
  Rendezvous rendezvous_;
  int created_on_demand_ = 0;
  bool has_abandoned_ = false;
};

/// create_group() on a thread of its own, since it can not be polled and blocks for ever where a
/// member dies. After a CollectiveError the thread is left to itself and `parent` must not be used
/// for another creation. Members only. Throws CollectiveError, MpiError.
Communicator create_group_until(std::shared_ptr<Communicator> parent, std::span<const int> ranks,
                                int tag, const Waiter& waiter);

}  // namespace dstune
