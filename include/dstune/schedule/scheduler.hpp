#pragma once
/// The slots of the job and the queue for them. Local; one thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

class SlotPool;

/// Bytes of a node that experiments may take.
struct NodeBytes {
  std::int64_t host = std::numeric_limits<std::int64_t>::max();
  std::int64_t disk = std::numeric_limits<std::int64_t>::max();
};

/// Ranks, their bytes, and the disks of their nodes where they are needed, held for one experiment.
/// They are given back on every path, together, without what a retired rank holds. Move-only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation other) noexcept;
  ~Reservation() { give_back(); }
  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_ranks_; }
  /// A rank of it is lost: it and its bytes never come back to the pool; the others do, on
  /// destruction.
  void retire(int world_rank);
  void give_back();

 private:
  friend class SlotPool;
  Reservation(SlotPool& pool, std::uint64_t number, std::vector<int> world_ranks);
  SlotPool* pool_ = nullptr;
  std::uint64_t number_ = 0;
  std::vector<int> world_ranks_;
};

/// Ranks on nodes, idle, taken or retired, the bytes of the nodes' hosts and disks, and the disks
/// themselves. A disk serves one experiment at a time, because two would measure each other.
class SlotPool {
 public:
  /// ranks_of_node: the world ranks of each node that may train, ascending; `bytes`: of each node,
  /// none where they are not counted. Outlives its reservations.
  explicit SlotPool(std::vector<std::vector<int>> ranks_of_node,
                    const std::vector<NodeBytes>& bytes = {});
  SlotPool& operator=(const SlotPool&) = delete;

  /// This rank is taken last of placements that are as good otherwise: behind other slots of its
  /// node, and behind another node where one is needed whole. Nothing is delayed by that.
  void spare(std::optional<int> world_rank) { spared_ = world_rank; }
  /// Reserves everything that is needed, or nothing. An aligned group (positions k·num_gpus … on
  /// the node) is taken if one is idle, else any idle slots of a node; nodes next to each other
  /// first. `avoid`: ranks that must stay free.
  std::optional<Reservation> reserve(const Needs& needs, const std::vector<int>& avoid = {});
  /// Tells whether reserve() would get it now.
  [[nodiscard]] bool has_room(const Needs& needs) const;
  /// The reservations that have to end before there is room.
  struct Wait {
    std::vector<std::uint64_t> reservations;  ///< by their numbers; none of them can be spared
    std::vector<int> world_ranks;  ///< a placement then, with as few slots as can be that are idle
  };
  /// For the placement with the most idle slots, aligned and on neighbouring nodes where that costs
  /// none of them, else for those that have run longest. Empty where it is impossible.
  [[nodiscard]] Wait wait_for(const Needs& needs) const;
  /// Tells whether there will be room when these have ended, whatever the others do.
  [[nodiscard]] bool has_room_after(const Needs& needs,
                                    const std::vector<std::uint64_t>& reservations) const;
  /// Tells whether ranks of the one are on nodes of the other.
  [[nodiscard]] bool share_a_node(const std::vector<int>& one, const std::vector<int>& other) const;
  /// Tells whether it could be placed if everything running ended.
  [[nodiscard]] bool is_possible(const Needs& needs) const;
  /// Tells whether the rank is a slot that is not retired.
  [[nodiscard]] bool has(int world_rank) const;
  /// Idle or taken, it is never reserved again.
  void retire(int world_rank);

  [[nodiscard]] int num_idle() const;
  [[nodiscard]] int num_slots() const;  ///< not retired
  /// Another one whenever something was taken, given back or retired.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

 private:
  friend class Reservation;
  enum class Slot { idle, taken, retired };
  /// A node's memory and disk: `all` if nothing runs, `free` now.
  struct Node {
    std::vector<int> world_ranks;
    NodeBytes all, free;
    bool is_disk_taken = false;
  };
  /// Slots of one node for one group; `cost`: how many of them are not free yet.
  struct Part {
    std::size_t node = 0;
    std::vector<int> world_ranks;
    int cost = 0;
    bool is_aligned = false;
  };
  /// The cheapest slots of a node; of equally cheap ones aligned ones, then the first. Nothing
  /// where the node can never hold them.
  [[nodiscard]] std::optional<Part> cheapest_part(std::size_t node, int num_gpus,
                                                  const std::vector<bool>& avoid) const;
  /// The cheapest placement over nodes, of equally cheap ones the most aligned on neighbours.
  [[nodiscard]] std::optional<Part> cheapest_placement(const Needs& needs,
                                                       const std::vector<int>& avoid,
                                                       bool now) const;
  /// Tells whether a node has the bytes, and, if `now` is set, whether these and its disk are free.
  [[nodiscard]] static bool has_bytes(const Node& node, const Needs& needs, bool now);
  struct Holding {
    std::vector<int> world_ranks;
    Needs needs;
  };
  SlotPool(const SlotPool&) = default;  ///< to look ahead: reservations stay with the original
  [[nodiscard]] SlotPool after(const std::vector<std::uint64_t>& reservations) const;
  std::uint64_t take(const std::vector<int>& world_ranks, const Needs& needs);
  void release(std::uint64_t number) noexcept;

  std::vector<Node> nodes_;
  std::vector<Slot> slots_;           ///< by world rank; ranks that may not train count as retired
  std::vector<std::size_t> node_of_;  ///< by world rank, of those that may train
  std::vector<std::uint64_t> holder_of_;       ///< by world rank: the last reservation that took it
  std::map<std::uint64_t, Holding> holdings_;  ///< by number of the reservation, rising with time
  std::optional<int> spared_;
  std::uint64_t next_number_ = 1;
  std::uint64_t revision_ = 0;
};

/// Chooses the waiting experiment that gets slots now: first in, first out. A head that does not
/// fit stays at the front and chooses the reservations that it waits for, once. Later experiments
/// are started while it waits, if it can start once these have ended, beside all else that runs
/// then. So only they can keep it waiting. It starts earlier where another placement becomes free.
class Scheduler {
 public:
  explicit Scheduler(SlotPool& pool) : pool_(&pool) {}

  /// `avoid`: ranks that it rather does not run on, where there are others that are idle.
  void submit(std::size_t experiment, const Needs& needs, const std::vector<int>& avoid = {});
  /// Tried again after a lost rank: before all others.
  void resubmit(std::size_t experiment, const Needs& needs);

  struct Dispatch {
    std::size_t experiment;
    Reservation reservation;
  };
  /// The next one to start now, if there is one. Impossible ones are passed over.
  std::optional<Dispatch> next();
  /// Waiting experiments whose shape has become impossible; they leave the queue.
  std::vector<std::size_t> take_impossible();
  [[nodiscard]] std::size_t num_waiting() const { return queue_.size(); }
  /// Nothing more is dispatched.
  void clear();

 private:
  struct Waiting {
    std::size_t experiment;
    Needs needs;
    std::vector<int> avoid;
  };
  /// The reservations that the head waits for; chosen anew when the head changes or a slot is
  /// retired.
  struct HeadWait {
    std::size_t experiment;
    int num_slots;
    SlotPool::Wait wait;
  };
  const SlotPool::Wait& wait_of(const Waiting& head);
  std::optional<Reservation> reserve_beside(const Needs& needs, const Needs& of_head,
                                            const SlotPool::Wait& wait);
  Dispatch dispatch(const std::deque<Waiting>::iterator& waiting, Reservation reservation);

  SlotPool* pool_;
  std::deque<Waiting> queue_;
  std::optional<HeadWait> head_wait_;
  /// The pool's revision at which nothing of the queue could start; nothing once that grew.
  std::optional<std::uint64_t> blocked_at_;
};

}  // namespace dstune
