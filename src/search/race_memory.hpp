#pragma once
/// The part of memory in a race: what surely runs out of it is not started, and large sizes come
/// after smaller ones. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "dstune/core/policy.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"
#include "measured_memory.hpp"
#include "memory_room.hpp"
#include "race_entrants.hpp"

namespace dstune {

class RaceMemory {
 public:
  /// It excludes and admits entrants. All that it is given outlives it.
  RaceMemory(const PlannedSpace& space, RaceEntrants& entrants, const Policy& policy);

  void begin(std::size_t place);
  /// Measurements and the plan say what surely runs out of memory.
  void observe(std::size_t place, const Observation& observation);

  /// A smaller size of its configuration is to be tried first, or says more of the memory.
  [[nodiscard]] bool is_for_later(std::size_t place) const;
  /// The largest size of its configuration that is tried before it; nothing where none is left.
  [[nodiscard]] std::optional<std::size_t> before(std::size_t place) const;

 private:
  const PlannedSpace& space_;
  RaceEntrants& entrants_;
  std::int64_t largest_step_up_;
  MeasuredMemory measured_;         ///< where nothing is planned …
  std::optional<MemoryRoom> room_;  ///< … and where it is
  std::set<std::size_t> refused_;   ///< places, by either
  std::int64_t tried_size_ = 0;     ///< the largest micro-batch that was, or is the baseline's
};

}  // namespace dstune
