#pragma once
/// Which waiting experiment gets slots now: first in, first out; a head that does not fit stays at
/// the front, and later ones that fit run beside it only on slots that it is not waiting for.
/// Local.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "dstune/schedule/slot_pool.hpp"

namespace dstune {

class Scheduler {
 public:
  explicit Scheduler(SlotPool& pool) : pool_(&pool) {}

  void submit(std::size_t experiment, const GroupShape& shape);
  /// Tried again after a lost rank: before all others.
  void resubmit(std::size_t experiment, const GroupShape& shape);

  struct Dispatch {
    std::size_t experiment;
    Reservation reservation;
  };
  /// The next one to start now, if there is one.
  std::optional<Dispatch> next();
  /// Waiting experiments whose shape has become impossible; they leave the queue.
  std::vector<std::size_t> take_impossible();
  [[nodiscard]] std::size_t num_waiting() const { return queue_.size(); }
  /// Nothing more is dispatched: the queue is emptied and returned.
  std::vector<std::size_t> drain();

 private:
  struct Waiting {
    std::size_t experiment;
    GroupShape shape;
  };
  SlotPool* pool_;
  std::deque<Waiting> queue_;
};

}  // namespace dstune
