#pragma once
/// The slots of the job: ranks on nodes, idle, taken or retired; and the disks of the nodes, each
/// for one experiment at a time, because two would measure each other. Local; one thread.

#include <optional>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

class SlotPool;

/// Ranks, and the disks of their nodes where they are needed, held for one experiment; given back
/// on every path unless retired. Move-only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();
  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_ranks_; }
  /// A rank of it is lost: it never comes back to the pool; the others do, on destruction.
  void retire(int world_rank);
  void give_back();

 private:
  friend class SlotPool;
  Reservation(SlotPool& pool, std::vector<int> world_ranks, bool has_disks);
  SlotPool* pool_ = nullptr;
  std::vector<int> world_ranks_;
  bool has_disks_ = false;
};

class SlotPool {
 public:
  /// ranks_of_node: the world ranks of each node that may train, ascending. Outlives its
  /// reservations.
  explicit SlotPool(std::vector<std::vector<int>> ranks_of_node);
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  /// Slots for what is needed: an aligned group (positions k·num_gpus … on the node) where one is
  /// idle, else any idle slots of a node; nodes next to each other first. `avoid`: ranks that must
  /// stay free.
  std::optional<Reservation> reserve(const Needs& needs, const std::vector<int>& avoid = {});
  /// The slots that the shape would get soonest: the placement with the most idle slots, aligned
  /// and on neighbouring nodes where that costs none of them. Ascending; empty where the shape is
  /// impossible.
  [[nodiscard]] std::vector<int> best_future_placement(const GroupShape& shape) const;
  /// Whether the shape could be placed if everything running ended.
  [[nodiscard]] bool is_possible(const GroupShape& shape) const;
  /// Idle or taken, it is never reserved again.
  void retire(int world_rank);

  [[nodiscard]] int num_idle() const;
  [[nodiscard]] int num_slots() const;  ///< not retired

 private:
  friend class Reservation;
  enum class Slot { idle, taken, retired };
  /// Slots of one node for one group; `cost`: how many of them are not free yet.
  struct Part {
    std::vector<int> world_ranks;
    int cost = 0;
    bool is_aligned = false;
  };
  /// The cheapest slots of a node; of equally cheap ones aligned ones, then the first. Nothing
  /// where the node can never hold them.
  [[nodiscard]] std::optional<Part> cheapest_part(const std::vector<int>& node, int num_gpus,
                                                  const std::vector<bool>& avoid) const;
  /// The cheapest placement over nodes, of equally cheap ones the most aligned on neighbours.
  [[nodiscard]] std::optional<Part> cheapest_placement(const GroupShape& shape,
                                                       const std::vector<int>& avoid,
                                                       bool needs_free_disks) const;
  void release(const std::vector<int>& world_ranks, bool has_disks) noexcept;
  void set_disks(const std::vector<int>& world_ranks, bool taken) noexcept;

  std::vector<std::vector<int>> ranks_of_node_;
  std::vector<Slot> slots_;          ///< by world rank; ranks that may not train count as retired
  std::vector<bool> is_disk_taken_;  ///< by node
};

}  // namespace dstune
