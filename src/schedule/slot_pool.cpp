#include "dstune/schedule/slot_pool.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
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

bool SlotPool::share_a_node(const Reservation& one, const Reservation& other) const {
  const auto is_on = [](const Reservation& reservation, const Node& node) {
    const std::vector<int>& here = node.world_ranks;
    return std::any_of(
        reservation.world_ranks().begin(), reservation.world_ranks().end(),
        [&](int rank) { return std::find(here.begin(), here.end(), rank) != here.end(); });
  };
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&](const Node& node) { return is_on(one, node) && is_on(other, node); });
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

// Where a group would go: the choice behind SlotPool's reservations.

std::optional<SlotPool::Part> SlotPool::cheapest_part(const std::vector<int>& node, int num_gpus,
                                                      const std::vector<bool>& avoid) const {
  const auto cost = [&](int world_rank) {
    return slots_[world_rank] == Slot::idle && !avoid[world_rank] ? 0 : 1;
  };
  std::vector<int> usable;
  for (const int world_rank : node) {
    if (slots_[world_rank] != Slot::retired) usable.push_back(world_rank);
  }
  if (static_cast<int>(usable.size()) < num_gpus) return std::nullopt;

  std::stable_sort(usable.begin(), usable.end(), [&](int a, int b) { return cost(a) < cost(b); });
  usable.resize(num_gpus);
  const auto sum = [&](auto begin, auto end) {
    return std::accumulate(begin, end, 0, [&](int total, int rank) { return total + cost(rank); });
  };
  Part part{std::move(usable), 0, false};
  part.cost = sum(part.world_ranks.begin(), part.world_ranks.end());

  const int num_ranks = static_cast<int>(node.size());
  for (int first = 0; first + num_gpus <= num_ranks; first += num_gpus) {
    const auto begin = node.begin() + first;
    const auto end = begin + num_gpus;
    const bool is_whole =
        std::all_of(begin, end, [&](int rank) { return slots_[rank] != Slot::retired; });
    if (is_whole && sum(begin, end) == part.cost) {
      return Part{std::vector<int>(begin, end), part.cost, true};
    }
  }
  return part;
}

bool SlotPool::has_bytes(const Node& node, const Needs& needs, bool now) {
  const NodeBytes& bytes = now ? node.free : node.all;
  const auto holds = [&](std::int64_t available, std::int64_t of_rank) {
    return of_rank == 0 || available / of_rank >= needs.shape.num_gpus;
  };
  const bool is_disk_free = needs.disk_bytes == 0 || !now || !node.is_disk_taken;
  return is_disk_free && holds(bytes.host, needs.host_bytes) && holds(bytes.disk, needs.disk_bytes);
}

std::optional<SlotPool::Part> SlotPool::cheapest_placement(const Needs& needs,
                                                           const std::vector<int>& avoid,
                                                           bool now) const {
  const GroupShape& shape = needs.shape;
  if (shape.num_gpus < 1 || shape.num_nodes < 1) return std::nullopt;
  std::vector<bool> is_avoided(slots_.size());
  for (const int world_rank : avoid) is_avoided[world_rank] = true;
  std::vector<Part> parts;
  std::vector<int> nodes;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (!has_bytes(nodes_[node], needs, now)) continue;
    auto part = cheapest_part(nodes_[node].world_ranks, shape.num_gpus, is_avoided);
    if (!part) continue;
    parts.push_back(std::move(*part));
    nodes.push_back(static_cast<int>(node));
  }
  const int num_nodes = shape.num_nodes;
  if (static_cast<int>(parts.size()) < num_nodes) return std::nullopt;

  const auto key = [&](std::size_t index) {
    return std::tuple(parts[index].cost, !parts[index].is_aligned);
  };
  // The cheapest nodes anywhere, then the windows of neighbours: one of these wins a tie.
  std::vector<std::size_t> best(parts.size());
  std::iota(best.begin(), best.end(), std::size_t{0});
  std::stable_sort(best.begin(), best.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  best.resize(num_nodes);
  const auto total = [&](const std::vector<std::size_t>& chosen) {
    int cost = 0;
    int unaligned = 0;
    for (const auto index : chosen) {
      cost += parts[index].cost;
      unaligned += parts[index].is_aligned ? 0 : 1;
    }
    return std::pair(cost, unaligned);
  };
  auto best_rank = std::tuple(total(best).first, true, total(best).second);
  for (std::size_t first = 0; first + num_nodes <= parts.size(); ++first) {
    if (nodes[first + num_nodes - 1] - nodes[first] != num_nodes - 1) continue;
    std::vector<std::size_t> window(num_nodes);
    std::iota(window.begin(), window.end(), first);
    const auto [cost, unaligned] = total(window);
    const auto rank = std::tuple(cost, false, unaligned);
    if (rank < best_rank) {
      best_rank = rank;
      best = window;
    }
  }

  Part placement;
  for (const auto index : best) {
    placement.cost += parts[index].cost;
    placement.world_ranks.insert(placement.world_ranks.end(), parts[index].world_ranks.begin(),
                                 parts[index].world_ranks.end());
  }
  std::sort(placement.world_ranks.begin(), placement.world_ranks.end());
  return placement;
}

}  // namespace dstune
