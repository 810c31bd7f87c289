#pragma once
/// Which waiting experiment gets slots now: first in, first out. A head that does not fit stays at
/// the front and chooses the slots that it waits for, once: those of the placement with the most
/// idle ones. Later experiments run only beside these, so what runs there when the choice is made
/// is all that the head can be kept waiting by. It starts earlier where another placement becomes
/// free. Behind a head that needs disks nothing starts that needs some, too. Local.

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "dstune/schedule/slot_pool.hpp"

namespace dstune {

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
  /// Whether something with these needs would start now, were it at the front.
  [[nodiscard]] bool has_room(const Needs& needs) const { return pool_->has_room(needs); }
  [[nodiscard]] std::size_t num_waiting() const { return queue_.size(); }
  /// Nothing more is dispatched: the queue is emptied and returned.
  std::vector<std::size_t> drain();

 private:
  struct Waiting {
    std::size_t experiment;
    Needs needs;
    std::vector<int> avoid;
  };
  /// The slots that the head waits for; chosen anew when the head changes or a slot is retired.
  struct HeldSlots {
    std::size_t experiment;
    int num_slots;
    std::vector<int> world_ranks;
  };
  const std::vector<int>& held_for(const Waiting& head);
  Dispatch dispatch(const std::deque<Waiting>::iterator& waiting, Reservation reservation);

  SlotPool* pool_;
  std::deque<Waiting> queue_;
  std::optional<HeldSlots> held_;
};

}  // namespace dstune
