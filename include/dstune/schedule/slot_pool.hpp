#pragma once
/// The slots of the job: ranks on nodes, idle, taken or retired. Local; one thread.

#include <memory>
#include <optional>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

class SlotPool;

/// Ranks held for one experiment; given back on every path unless retired. Move-only.
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
  Reservation(SlotPool& pool, std::vector<int> world_ranks);
  SlotPool* pool_ = nullptr;
  std::vector<int> world_ranks_;
};

class SlotPool {
 public:
  /// ranks_of_node: the world ranks of each node that may train, ascending. Outlives its
  /// reservations.
  explicit SlotPool(std::vector<std::vector<int>> ranks_of_node);

  /// Slots for a shape: an aligned group (positions k·num_gpus … on the node) where one is idle,
  /// else any idle slots of a node; nodes next to each other first. `avoid`: ranks that must stay
  /// free.
  std::optional<Reservation> reserve(const GroupShape& shape, const std::vector<int>& avoid = {});
  /// The slots that the shape would get soonest: the placement with the most idle slots. Empty
  /// where the shape is impossible.
  [[nodiscard]] std::vector<int> best_future_placement(const GroupShape& shape) const;
  /// Whether the shape could be placed if everything running ended.
  [[nodiscard]] bool is_possible(const GroupShape& shape) const;
  void retire(int world_rank);

  [[nodiscard]] int num_idle() const;
  [[nodiscard]] int num_slots() const;  ///< not retired

 private:
  friend class Reservation;
  enum class Slot { idle, taken, retired };
  void release(const std::vector<int>& world_ranks);
  std::vector<std::vector<int>> ranks_of_node_;
  std::vector<Slot> slots_;  ///< by world rank
};

}  // namespace dstune
