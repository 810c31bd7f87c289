#include "dstune/schedule/slot_pool.hpp"

#include <algorithm>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {

Reservation::Reservation(SlotPool& pool, std::vector<int> world_ranks, const Needs& needs)
    : pool_(&pool), world_ranks_(std::move(world_ranks)), needs_(needs) {}

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      world_ranks_(std::exchange(other.world_ranks_, {})),
      needs_(other.needs_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::exchange(other.pool_, nullptr);
    world_ranks_ = std::exchange(other.world_ranks_, {});
    needs_ = other.needs_;
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
  pool_->release(world_ranks_, needs_);
  pool_ = nullptr;
  world_ranks_.clear();
}

SlotPool::SlotPool(std::vector<std::vector<int>> ranks_of_node,
                   const std::vector<NodeBytes>& bytes) {
  require(bytes.empty() || bytes.size() == ranks_of_node.size(), "every node has its bytes");
  int highest = -1;
  for (std::size_t node = 0; node < ranks_of_node.size(); ++node) {
    for (const int world_rank : ranks_of_node[node]) {
      require(world_rank >= 0, "world ranks are not negative");
      highest = std::max(highest, world_rank);
    }
    const NodeBytes all = bytes.empty() ? NodeBytes{} : bytes[node];
    nodes_.push_back({std::move(ranks_of_node[node]), all, all, false});
  }
  slots_.assign(highest + 1, Slot::retired);
  for (const Node& node : nodes_) {
    for (const int world_rank : node.world_ranks) {
      require(slots_[world_rank] == Slot::retired, "a rank is a slot of one node, once");
      slots_[world_rank] = Slot::idle;
    }
  }
}

std::optional<Reservation> SlotPool::reserve(const Needs& needs, const std::vector<int>& avoid) {
  auto placement = cheapest_placement(needs, avoid, true);
  if (!placement || placement->cost > 0) return std::nullopt;
  take(placement->world_ranks, needs);
  return Reservation(*this, std::move(placement->world_ranks), needs);
}

bool SlotPool::has_room(const Needs& needs) const {
  const auto placement = cheapest_placement(needs, {}, true);
  return placement && placement->cost == 0;
}

std::vector<int> SlotPool::best_future_placement(const Needs& needs) const {
  auto placement = cheapest_placement(needs, {}, false);
  return placement ? std::move(placement->world_ranks) : std::vector<int>{};
}

bool SlotPool::share_a_node(const std::vector<int>& one, const std::vector<int>& other) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return std::ranges::find_first_of(node.world_ranks, one) != node.world_ranks.end() &&
           std::ranges::find_first_of(node.world_ranks, other) != node.world_ranks.end();
  });
}

bool SlotPool::is_possible(const Needs& needs) const {
  const GroupShape& shape = needs.shape;
  if (shape.num_gpus < 1 || shape.num_nodes < 1) return false;
  const auto holds_group = [&](const Node& node) {
    return has_bytes(node, needs, false) &&
           std::count_if(node.world_ranks.begin(), node.world_ranks.end(), [&](int world_rank) {
             return slots_[world_rank] != Slot::retired;
           }) >= shape.num_gpus;
  };
  return std::count_if(nodes_.begin(), nodes_.end(), holds_group) >= shape.num_nodes;
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

void SlotPool::take(const std::vector<int>& world_ranks, const Needs& needs) {
  for (const int world_rank : world_ranks) slots_[world_rank] = Slot::taken;
  for (Node& node : nodes_) {
    for (const int world_rank : node.world_ranks) {
      if (std::find(world_ranks.begin(), world_ranks.end(), world_rank) == world_ranks.end())
        continue;
      node.free.host -= needs.host_bytes;
      node.free.disk -= needs.disk_bytes;
      node.is_disk_taken = node.is_disk_taken || needs.disk_bytes > 0;
    }
  }
}

void SlotPool::release(const std::vector<int>& world_ranks, const Needs& needs) noexcept {
  for (Node& node : nodes_) {
    for (const int world_rank : node.world_ranks) {
      if (std::find(world_ranks.begin(), world_ranks.end(), world_rank) == world_ranks.end())
        continue;
      if (needs.disk_bytes > 0) node.is_disk_taken = false;
      // Who is lost may still be there, and its memory and file with it.
      NodeBytes& bytes = slots_[world_rank] == Slot::taken ? node.free : node.all;
      const std::int64_t sign = slots_[world_rank] == Slot::taken ? 1 : -1;
      bytes.host += sign * needs.host_bytes;
      bytes.disk += sign * needs.disk_bytes;
      if (slots_[world_rank] == Slot::taken) slots_[world_rank] = Slot::idle;
    }
  }
}

}  // namespace dstune
