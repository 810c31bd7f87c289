#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "dstune/base/error.hpp"
#include "dstune/schedule/scheduler.hpp"

namespace dstune {

Reservation::Reservation(SlotPool& pool, std::uint64_t number, std::vector<int> world_ranks)
    : pool_(&pool), number_(number), world_ranks_(std::move(world_ranks)) {}

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      number_(other.number_),
      world_ranks_(std::exchange(other.world_ranks_, {})) {}

Reservation& Reservation::operator=(Reservation other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(number_, other.number_);
  std::swap(world_ranks_, other.world_ranks_);
  return *this;
}

void Reservation::retire(int world_rank) {
  require(std::ranges::find(world_ranks_, world_rank) != world_ranks_.end(),
          "a reservation retires only ranks that it holds");
  pool_->retire(world_rank);
}

void Reservation::give_back() {
  if (pool_ == nullptr) return;
  pool_->release(number_);
  pool_ = nullptr;
  world_ranks_.clear();
}

SlotPool::SlotPool(std::vector<std::vector<int>> ranks_of_node,
                   const std::vector<NodeBytes>& bytes) {
  require(bytes.empty() || bytes.size() == ranks_of_node.size(), "every node has its bytes");
  for (std::size_t node = 0; node < ranks_of_node.size(); ++node) {
    for (const int world_rank : ranks_of_node[node]) {
      require(world_rank >= 0, "world ranks are not negative");
      if (world_rank >= static_cast<int>(slots_.size())) {
        slots_.resize(world_rank + 1, Slot::retired);
        node_of_.resize(world_rank + 1);
        holder_of_.resize(world_rank + 1);
      }
      require(slots_[world_rank] == Slot::retired, "a rank is a slot of one node, once");
      slots_[world_rank] = Slot::idle;
      node_of_[world_rank] = node;
    }
    const NodeBytes all = bytes.empty() ? NodeBytes{} : bytes[node];
    nodes_.push_back({std::move(ranks_of_node[node]), all, all, false});
  }
}

std::optional<Reservation> SlotPool::reserve(const Needs& needs, const std::vector<int>& avoid) {
  auto placement = cheapest_placement(needs, avoid, true);
  if (!placement || placement->cost > 0) return std::nullopt;
  const std::uint64_t number = take(placement->world_ranks, needs);
  return Reservation(*this, number, std::move(placement->world_ranks));
}

bool SlotPool::has_room(const Needs& needs) const {
  const auto placement = cheapest_placement(needs, {}, true);
  return placement && placement->cost == 0;
}

/// The pool as if these had ended, without the slots that others hold.
SlotPool SlotPool::after(const std::vector<std::uint64_t>& reservations) const {
  SlotPool later(*this);
  for (const std::uint64_t number : reservations) later.release(number);
  std::ranges::replace(later.slots_, Slot::taken, Slot::retired);
  return later;
}

bool SlotPool::has_room_after(const Needs& needs,
                              const std::vector<std::uint64_t>& reservations) const {
  return after(reservations).has_room(needs);
}

SlotPool::Wait SlotPool::wait_for(const Needs& needs) const {
  const auto nearest = cheapest_placement(needs, {}, false);
  if (!nearest) return {};
  Wait wait;
  // Those of the nearest placement, and where bytes or a disk are missing all of its nodes.
  for (const bool takes_nodes : {false, true}) {
    for (const auto& [number, holding] : holdings_) {
      const bool is_in_the_way =
          takes_nodes ? share_a_node(holding.world_ranks, nearest->world_ranks)
                      : std::ranges::find_first_of(holding.world_ranks, nearest->world_ranks) !=
                            holding.world_ranks.end();
      if (is_in_the_way && std::ranges::find(wait.reservations, number) == wait.reservations.end())
        wait.reservations.push_back(number);
    }
    if (has_room_after(needs, wait.reservations)) break;
  }
  // Whoever is not needed: small ones first, of these the youngest.
  std::ranges::sort(wait.reservations, {}, [&](std::uint64_t number) {
    return std::pair(holdings_.at(number).world_ranks.size(), ~number);
  });
  for (const std::uint64_t number : std::vector(wait.reservations)) {
    std::vector<std::uint64_t> others = wait.reservations;
    std::erase(others, number);
    if (has_room_after(needs, others)) wait.reservations = std::move(others);
  }
  std::vector<int> idle;
  for (std::size_t rank = 0; rank < slots_.size(); ++rank)
    if (slots_[rank] == Slot::idle) idle.push_back(static_cast<int>(rank));
  auto placement = after(wait.reservations).cheapest_placement(needs, idle, true);
  if (placement) wait.world_ranks = std::move(placement->world_ranks);
  return wait;
}

bool SlotPool::share_a_node(const std::vector<int>& one, const std::vector<int>& other) const {
  return std::ranges::any_of(nodes_, [&](const Node& node) {
    return std::ranges::find_first_of(node.world_ranks, one) != node.world_ranks.end() &&
           std::ranges::find_first_of(node.world_ranks, other) != node.world_ranks.end();
  });
}

bool SlotPool::is_possible(const Needs& needs) const {
  const GroupShape& shape = needs.shape;
  if (shape.num_gpus < 1 || shape.num_nodes < 1) return false;
  const auto is_usable = [&](int world_rank) { return slots_[world_rank] != Slot::retired; };
  const auto holds_group = [&](const Node& node) {
    return has_bytes(node, needs, false) &&
           std::ranges::count_if(node.world_ranks, is_usable) >= shape.num_gpus;
  };
  return std::ranges::count_if(nodes_, holds_group) >= shape.num_nodes;
}

bool SlotPool::has(int world_rank) const {
  return world_rank >= 0 && world_rank < static_cast<int>(slots_.size()) &&
         slots_[world_rank] != Slot::retired;
}

void SlotPool::retire(int world_rank) {
  require(world_rank >= 0 && world_rank < static_cast<int>(slots_.size()), "no such slot");
  slots_[world_rank] = Slot::retired;
  ++revision_;
}

int SlotPool::num_idle() const {
  return static_cast<int>(std::count(slots_.begin(), slots_.end(), Slot::idle));
}

int SlotPool::num_slots() const {
  return static_cast<int>(slots_.size() - std::count(slots_.begin(), slots_.end(), Slot::retired));
}

std::uint64_t SlotPool::take(const std::vector<int>& world_ranks, const Needs& needs) {
  for (const int world_rank : world_ranks) {
    slots_[world_rank] = Slot::taken;
    holder_of_[world_rank] = next_number_;
    Node& node = nodes_[node_of_[world_rank]];
    node.free.host -= needs.host_bytes;
    node.free.disk -= needs.disk_bytes;
    node.is_disk_taken = node.is_disk_taken || needs.disk_bytes > 0;
  }
  holdings_.emplace(next_number_, Holding{world_ranks, needs});
  ++revision_;
  return next_number_++;
}

void SlotPool::release(std::uint64_t number) noexcept {
  const auto ended = holdings_.extract(number);
  if (ended.empty()) return;
  ++revision_;
  const auto& [world_ranks, needs] = ended.mapped();
  for (const int world_rank : world_ranks) {
    Node& node = nodes_[node_of_[world_rank]];
    if (needs.disk_bytes > 0) node.is_disk_taken = false;
    if (slots_[world_rank] == Slot::taken) {
      slots_[world_rank] = Slot::idle;
      node.free.host += needs.host_bytes;
      node.free.disk += needs.disk_bytes;
    } else {
      // A lost rank may still be there, and its memory and file with it.
      node.all.host -= needs.host_bytes;
      node.all.disk -= needs.disk_bytes;
    }
  }
}

// The choice of a group's place, behind SlotPool's reservations.

std::optional<SlotPool::Part> SlotPool::cheapest_part(std::size_t node, int num_gpus,
                                                      const std::vector<bool>& avoid) const {
  const std::vector<int>& of_node = nodes_[node].world_ranks;
  const auto cost = [&](int world_rank) {
    return slots_[world_rank] == Slot::idle && !avoid[world_rank] ? 0 : 1;
  };
  const auto is_usable = [&](int world_rank) { return slots_[world_rank] != Slot::retired; };
  std::vector<int> usable;
  std::ranges::copy_if(of_node, std::back_inserter(usable), is_usable);
  if (static_cast<int>(usable.size()) < num_gpus) return std::nullopt;

  // Taken slots are chosen in the order in which they were taken, the oldest first.
  const auto holder = [&](int world_rank) {
    return slots_[world_rank] == Slot::taken ? holder_of_[world_rank] : 0;
  };
  const auto is_spared = [&](int world_rank) { return world_rank == spared_; };
  std::ranges::stable_sort(
      usable, {}, [&](int rank) { return std::tuple(cost(rank), holder(rank), is_spared(rank)); });
  usable.resize(num_gpus);
  const auto sum = [&](auto begin, auto end) {
    return std::accumulate(begin, end, 0, [&](int total, int rank) { return total + cost(rank); });
  };
  const int least = sum(usable.begin(), usable.end());
  using Order = std::pair<std::uint64_t, bool>;
  std::optional<std::pair<Order, Part>> aligned;
  for (auto begin = of_node.begin(); of_node.end() - begin >= num_gpus; begin += num_gpus) {
    const auto end = begin + num_gpus;
    if (!std::all_of(begin, end, is_usable) || sum(begin, end) != least) continue;
    const std::uint64_t newest = holder(*std::max_element(
        begin, end, [&](int one, int other) { return holder(one) < holder(other); }));
    const Order order(newest, std::any_of(begin, end, is_spared));
    if (!aligned || order < aligned->first)
      aligned.emplace(order, Part{node, {begin, end}, least, true});
  }
  return aligned ? std::move(aligned->second) : Part{node, std::move(usable), least, false};
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
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (!has_bytes(nodes_[node], needs, now)) continue;
    if (auto part = cheapest_part(node, shape.num_gpus, is_avoided))
      parts.push_back(std::move(*part));
  }
  const auto num_nodes = static_cast<std::size_t>(shape.num_nodes);
  if (parts.size() < num_nodes) return std::nullopt;

  const auto key = [&](std::size_t index) {
    return std::tuple(parts[index].cost, !parts[index].is_aligned);
  };
  const auto is_whole_node_of_spared = [&](const Part& part) {
    return part.world_ranks.size() == nodes_[part.node].world_ranks.size() &&
           std::ranges::find(part.world_ranks, spared_) != part.world_ranks.end();
  };
  const auto rank_of = [&](const std::vector<std::size_t>& chosen, bool is_scattered) {
    int cost = 0;
    int unaligned = 0;
    for (const auto index : chosen) {
      cost += parts[index].cost;
      unaligned += parts[index].is_aligned ? 0 : 1;
    }
    const bool takes_spared = num_nodes == 1 && is_whole_node_of_spared(parts[chosen.front()]);
    return std::tuple(cost, is_scattered, unaligned, takes_spared);
  };
  // The cheapest nodes anywhere, then the windows of neighbours: one of these wins a tie.
  std::vector<std::size_t> best(parts.size());
  std::iota(best.begin(), best.end(), std::size_t{0});
  std::ranges::stable_sort(best, {}, key);
  best.resize(num_nodes);
  auto best_rank = rank_of(best, true);
  for (std::size_t first = 0; first + num_nodes <= parts.size(); ++first) {
    if (parts[first + num_nodes - 1].node - parts[first].node != num_nodes - 1) continue;
    std::vector<std::size_t> window(num_nodes);
    std::iota(window.begin(), window.end(), first);
    const auto rank = rank_of(window, false);
    if (rank >= best_rank) continue;
    best_rank = rank;
    best = std::move(window);
  }

  Part placement;
  for (const auto index : best) {
    placement.cost += parts[index].cost;
    std::ranges::copy(parts[index].world_ranks, std::back_inserter(placement.world_ranks));
  }
  std::ranges::sort(placement.world_ranks);
  return placement;
}

}  // namespace dstune
