#include "dstune/schedule/slot_pool.hpp"

#include <algorithm>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

Reservation::Reservation(SlotPool& pool, std::vector<int> world_ranks, bool has_disks)
    : pool_(&pool), world_ranks_(std::move(world_ranks)), has_disks_(has_disks) {}

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      world_ranks_(std::exchange(other.world_ranks_, {})),
      has_disks_(std::exchange(other.has_disks_, false)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::exchange(other.pool_, nullptr);
    world_ranks_ = std::exchange(other.world_ranks_, {});
    has_disks_ = std::exchange(other.has_disks_, false);
  }
  return *this;
}

Reservation::~Reservation() {
  give_back();
}

void Reservation::retire(int world_rank) {
  require(std::find(world_ranks_.begin(), world_ranks_.end(), world_rank) != world_ranks_.end(),
          "a reservation retires only ranks that it holds");
  pool_->retire(world_rank);
}

void Reservation::give_back() {
  if (pool_ == nullptr) return;
  pool_->release(world_ranks_, has_disks_);
  pool_ = nullptr;
  world_ranks_.clear();
}

SlotPool::SlotPool(std::vector<std::vector<int>> ranks_of_node)
    : ranks_of_node_(std::move(ranks_of_node)), is_disk_taken_(ranks_of_node_.size()) {
  int highest = -1;
  for (const auto& node : ranks_of_node_) {
    for (const int world_rank : node) {
      require(world_rank >= 0, "world ranks are not negative");
      highest = std::max(highest, world_rank);
    }
  }
  slots_.assign(highest + 1, Slot::retired);
  for (const auto& node : ranks_of_node_) {
    for (const int world_rank : node) {
      require(slots_[world_rank] == Slot::retired, "a rank is a slot of one node, once");
      slots_[world_rank] = Slot::idle;
    }
  }
}

std::optional<Reservation> SlotPool::reserve(const Needs& needs, const std::vector<int>& avoid) {
  auto placement = cheapest_placement(needs.shape, avoid, needs.disk);
  if (!placement || placement->cost > 0) return std::nullopt;
  for (const int world_rank : placement->world_ranks) slots_[world_rank] = Slot::taken;
  if (needs.disk) set_disks(placement->world_ranks, true);
  return Reservation(*this, std::move(placement->world_ranks), needs.disk);
}

std::vector<int> SlotPool::best_future_placement(const GroupShape& shape) const {
  auto placement = cheapest_placement(shape, {}, false);
  return placement ? std::move(placement->world_ranks) : std::vector<int>{};
}

bool SlotPool::is_possible(const GroupShape& shape) const {
  if (shape.num_gpus < 1 || shape.num_nodes < 1) return false;
  const auto holds_group = [&](const std::vector<int>& node) {
    return std::count_if(node.begin(), node.end(), [&](int world_rank) {
             return slots_[world_rank] != Slot::retired;
           }) >= shape.num_gpus;
  };
  return std::count_if(ranks_of_node_.begin(), ranks_of_node_.end(), holds_group) >=
         shape.num_nodes;
}

void SlotPool::retire(int world_rank) {
  require(world_rank >= 0 && world_rank < static_cast<int>(slots_.size()), "no such slot");
  slots_[world_rank] = Slot::retired;
}

int SlotPool::num_idle() const {
  return static_cast<int>(std::count(slots_.begin(), slots_.end(), Slot::idle));
}

int SlotPool::num_slots() const {
  return static_cast<int>(slots_.size() - std::count(slots_.begin(), slots_.end(), Slot::retired));
}

void SlotPool::release(const std::vector<int>& world_ranks, bool has_disks) noexcept {
  for (const int world_rank : world_ranks) {
    if (slots_[world_rank] == Slot::taken) slots_[world_rank] = Slot::idle;
  }
  if (has_disks) set_disks(world_ranks, false);
}

void SlotPool::set_disks(const std::vector<int>& world_ranks, bool taken) noexcept {
  for (std::size_t node = 0; node < ranks_of_node_.size(); ++node) {
    const auto& ranks = ranks_of_node_[node];
    const auto found =
        std::find_first_of(ranks.begin(), ranks.end(), world_ranks.begin(), world_ranks.end());
    if (found != ranks.end()) is_disk_taken_[node] = taken;
  }
}

}  // namespace dstune
