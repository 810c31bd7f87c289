#include "dstune/schedule/scheduler.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace dstune {

namespace {

/// Asks once for all that need the same: queues are long, shapes and bytes few.
class PossibleNeeds {
 public:
  explicit PossibleNeeds(const SlotPool& pool) : pool_(&pool) {}
  bool operator()(const Needs& needs) {
    const auto [known, is_new] =
        answers_.try_emplace({needs.shape, needs.host_bytes, needs.disk_bytes});
    if (is_new) known->second = pool_->is_possible(needs);
    return known->second;
  }

 private:
  const SlotPool* pool_;
  std::map<std::tuple<GroupShape, std::int64_t, std::int64_t>, bool> answers_;
};

}  // namespace

void Scheduler::submit(std::size_t experiment, const Needs& needs, const std::vector<int>& avoid) {
  queue_.push_back({experiment, needs, avoid});
}

void Scheduler::resubmit(std::size_t experiment, const Needs& needs) {
  queue_.push_front({experiment, needs, {}});
}

std::optional<Scheduler::Dispatch> Scheduler::next() {
  if (queue_.empty() || pool_->num_idle() == 0) return std::nullopt;
  PossibleNeeds is_possible(*pool_);
  const auto head = std::find_if(queue_.begin(), queue_.end(), [&](const Waiting& waiting) {
    return is_possible(waiting.needs);
  });
  if (head == queue_.end()) return std::nullopt;
  if (!head->avoid.empty())
    if (auto reservation = pool_->reserve(head->needs, head->avoid))
      return dispatch(head, std::move(*reservation));
  if (auto reservation = pool_->reserve(head->needs)) {
    return dispatch(head, std::move(*reservation));
  }

  const auto& held = held_for(*head);
  std::vector<Needs> too_much = {head->needs};
  for (auto waiting = head + 1; waiting != queue_.end(); ++waiting) {
    const Needs& needs = waiting->needs;
    if (head->needs.disk_bytes > 0 && needs.disk_bytes > 0) continue;
    if (std::find(too_much.begin(), too_much.end(), needs) != too_much.end()) continue;
    if (auto reservation = pool_->reserve(needs, held)) {
      return dispatch(waiting, std::move(*reservation));
    }
    too_much.push_back(needs);
  }
  return std::nullopt;
}

std::vector<std::size_t> Scheduler::take_impossible() {
  PossibleNeeds is_possible(*pool_);
  std::vector<std::size_t> taken;
  std::deque<Waiting> kept;
  for (const auto& waiting : queue_) {
    if (is_possible(waiting.needs)) {
      kept.push_back(waiting);
    } else {
      taken.push_back(waiting.experiment);
    }
  }
  queue_ = std::move(kept);
  return taken;
}

std::vector<std::size_t> Scheduler::drain() {
  std::vector<std::size_t> drained;
  for (const auto& waiting : queue_) drained.push_back(waiting.experiment);
  queue_.clear();
  held_.reset();
  return drained;
}

const std::vector<int>& Scheduler::held_for(const Waiting& head) {
  if (!held_ || held_->experiment != head.experiment || held_->num_slots != pool_->num_slots()) {
    held_ =
        HeldSlots{head.experiment, pool_->num_slots(), pool_->best_future_placement(head.needs)};
  }
  return held_->world_ranks;
}

Scheduler::Dispatch Scheduler::dispatch(const std::deque<Waiting>::iterator& waiting,
                                        Reservation reservation) {
  Dispatch dispatch{waiting->experiment, std::move(reservation)};
  if (held_ && held_->experiment == waiting->experiment) held_.reset();
  queue_.erase(waiting);
  return dispatch;
}

}  // namespace dstune
