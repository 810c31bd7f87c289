#include "dstune/schedule/scheduler.hpp"

#include <algorithm>
#include <functional>
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
  blocked_at_.reset();
}

void Scheduler::resubmit(std::size_t experiment, const Needs& needs) {
  queue_.push_front({experiment, needs, {}});
  blocked_at_.reset();
}

std::optional<Scheduler::Dispatch> Scheduler::next() {
  if (queue_.empty() || pool_->num_idle() == 0 || blocked_at_ == pool_->revision())
    return std::nullopt;
  PossibleNeeds is_possible(*pool_);
  const auto head = std::ranges::find_if(queue_, std::ref(is_possible), &Waiting::needs);
  if (head == queue_.end()) return std::nullopt;
  auto reservation = pool_->reserve(head->needs, head->avoid);
  if (!reservation && !head->avoid.empty()) reservation = pool_->reserve(head->needs);
  if (reservation) return dispatch(head, std::move(*reservation));

  const SlotPool::Wait& wait = wait_of(*head);
  std::vector<Needs> too_much = {head->needs};
  for (auto waiting = head + 1; waiting != queue_.end(); ++waiting) {
    const Needs& needs = waiting->needs;
    if (std::ranges::find(too_much, needs) != too_much.end()) continue;
    if (auto beside = reserve_beside(needs, head->needs, wait))
      return dispatch(waiting, std::move(*beside));
    too_much.push_back(needs);
  }
  // Asked again and again until something ends.
  blocked_at_ = pool_->revision();
  return std::nullopt;
}

/// Nothing where the head could not start any more as soon as what it waits for has ended.
std::optional<Reservation> Scheduler::reserve_beside(const Needs& needs, const Needs& of_head,
                                                     const SlotPool::Wait& wait) {
  static const std::vector<int> none;
  for (const std::vector<int>* const avoid : {&wait.world_ranks, &none}) {
    auto reservation = pool_->reserve(needs, *avoid);
    if (reservation && pool_->has_room_after(of_head, wait.reservations)) return reservation;
  }
  return std::nullopt;
}

std::vector<std::size_t> Scheduler::take_impossible() {
  PossibleNeeds is_possible(*pool_);
  std::vector<std::size_t> taken;
  std::erase_if(queue_, [&](const Waiting& waiting) {
    const bool is_taken = !is_possible(waiting.needs);
    if (is_taken) taken.push_back(waiting.experiment);
    return is_taken;
  });
  return taken;
}

void Scheduler::clear() {
  queue_.clear();
  head_wait_.reset();
}

const SlotPool::Wait& Scheduler::wait_of(const Waiting& head) {
  if (!head_wait_ || head_wait_->experiment != head.experiment ||
      head_wait_->num_slots != pool_->num_slots())
    head_wait_ = HeadWait{head.experiment, pool_->num_slots(), pool_->wait_for(head.needs)};
  return head_wait_->wait;
}

Scheduler::Dispatch Scheduler::dispatch(const std::deque<Waiting>::iterator& waiting,
                                        Reservation reservation) {
  Dispatch dispatch{waiting->experiment, std::move(reservation)};
  if (head_wait_ && head_wait_->experiment == waiting->experiment) head_wait_.reset();
  queue_.erase(waiting);
  return dispatch;
}

}  // namespace dstune
