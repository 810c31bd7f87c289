// Where a group would go: the choice behind SlotPool's reservations.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "dstune/schedule/slot_pool.hpp"

namespace dstune {

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
