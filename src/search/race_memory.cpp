#include "race_memory.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace dstune {

RaceMemory::RaceMemory(const PlannedSpace& space, RaceEntrants& entrants, const Policy& policy)
    : space_(space),
      entrants_(entrants),
      largest_step_up_(policy.sizes.largest_step_up),
      measured_(space, policy.memory) {
  if (space_.baseline) tried_size_ = space_.micro_batch(*space_.baseline);
  bool is_planned = !space_.is_unplanned;
  for (std::size_t place = 0; place < entrants_.size(); ++place)
    is_planned = is_planned && entrants_.memory_bytes(place) > 0;
  if (is_planned) room_.emplace(space, policy.memory);
}

void RaceMemory::begin(std::size_t place) {
  if (room_) room_->begin(entrants_[place].member);
}

void RaceMemory::observe(std::size_t place, const Observation& observation) {
  const std::size_t member = entrants_[place].member;
  refused_.erase(place);
  if (observation.status != Status::out_of_memory)
    tried_size_ = std::max(tried_size_, entrants_.micro_batch(place));
  if (room_)
    room_->observe(member, observation);
  else
    measured_.observe(member, observation);
  if (room_ && !room_->knows()) return;
  for (std::size_t other = 0; other < entrants_.size(); ++other) {
    if (!refused_.contains(other) && !entrants_.waiting().contains(other)) continue;
    const std::size_t of_other = entrants_[other].member;
    std::string reason = room_ ? room_->refusal(of_other) : measured_.refusal(of_other);
    if (reason.empty()) {
      refused_.erase(other);
      entrants_.admit(other);
    } else {
      refused_.insert(other);
      entrants_.exclude(other, std::move(reason));
    }
  }
}

bool RaceMemory::is_for_later(std::size_t place) const {
  const std::size_t member = entrants_[place].member;
  const bool is_searched = space_.micro_batch_chain(member) && !space_.is_unplanned;
  if (is_searched && tried_size_ > 0 &&
      entrants_.micro_batch(place) > largest_step_up_ * tried_size_)
    return true;
  return room_ ? room_->is_beyond_middle(member)
               : space_.is_unplanned && measured_.is_beyond_middle(member);
}

std::optional<std::size_t> RaceMemory::before(std::size_t place) const {
  std::optional<std::size_t> largest;
  if (!room_) return largest;
  for (const std::size_t member : room_->sizes_above(entrants_[place].member)) {
    const auto other = entrants_.place_of(member);
    if (other && entrants_.waiting().contains(*other) && !is_for_later(*other)) largest = other;
  }
  return largest;
}

}  // namespace dstune
