#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "start/placement_parts.hpp"

namespace dstune {
namespace {

std::size_t count_used_gpus(const NodeRanks& node) {
  std::set<std::string> used;
  for (const RankPlace* const rank : node.ranks)
    if (!rank->gpu.empty()) used.insert(rank->gpu);
  return used.size();
}

bool all_look(const NodeRanks& node) {
  return std::ranges::all_of(node.ranks, &RankPlace::looks_at_gpus);
}

/// The GPUs that a rank should see, by its own variable or by the batch system.
int expected_gpus(const RankPlace& rank) {
  if (rank.sees_part || !rank.looks_at_gpus) return 0;
  return rank.named_gpus >= 0 ? rank.named_gpus : rank.given_gpus;
}

}  // namespace

std::size_t count_seen_gpus(const NodeRanks& node) {
  std::set<std::string> seen;
  for (const RankPlace* const rank : node.ranks) seen.insert(rank->gpus.begin(), rank->gpus.end());
  return seen.size();
}

void find_hidden_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                      std::vector<PlacementFinding>& found) {
  FoundOn where(nodes.size());
  std::size_t most = 0;
  for (const NodeRanks& node : nodes) {
    const bool each_sees_one = std::ranges::all_of(node.ranks, [](const RankPlace* rank) {
      return rank->gpus.size() == 1 && !rank->sees_part;
    });
    if (!each_sees_one || count_seen_gpus(node) < 2) continue;
    where.add(node);
    most = std::max(most, count_seen_gpus(node));
  }
  if (!where.has_any()) return;
  const std::string hint = facts.batch == BatchSystem::slurm
                               ? fmt::format(log_text::gpus_by_node, most)
                               : log_text::gpus_all_visible;
  found.push_back(
      {PlacementKind::hidden_gpus, fmt::format(log_text::hidden_gpus, where.text(), hint)});
}

void find_missing_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                       std::vector<PlacementFinding>& found) {
  FoundOn where(nodes.size());
  const RankPlace* first = nullptr;
  for (const NodeRanks& node : nodes) {
    const auto lacking = std::ranges::find_if(node.ranks, [](const RankPlace* rank) {
      return static_cast<int>(rank->gpus.size()) < expected_gpus(*rank);
    });
    if (lacking != node.ranks.end() && where.add(node)) first = *lacking;
  }
  if (first == nullptr) return;
  const bool says_why = first->gpus.empty() && !facts.gpu_refusal.empty();
  found.push_back({PlacementKind::missing_gpus,
                   fmt::format(log_text::missing_gpus, first->gpus.size(), expected_gpus(*first),
                               first->named_gpus >= 0 ? "CUDA_VISIBLE_DEVICES" : "Slurm",
                               where.text(), says_why ? ": " + facts.gpu_refusal : "")});
}

void find_shared_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                      std::vector<PlacementFinding>& found) {
  FoundOn where(nodes.size());
  std::int64_t ranks = 0;
  std::size_t gpus = 0;
  for (const NodeRanks& node : nodes) {
    const auto training =
        std::ranges::count_if(node.ranks, [](const RankPlace* rank) { return !rank->gpu.empty(); });
    const std::size_t used = count_used_gpus(node);
    if (static_cast<std::size_t>(training) <= used || !where.add(node)) continue;
    ranks = training;
    gpus = used;
  }
  if (!where.has_any()) return;
  const auto num_nodes = static_cast<int>(nodes.size());
  found.push_back(
      {PlacementKind::shared_gpus,
       fmt::format(log_text::shared_gpus, ranks, format_count(gpus, "GPU"), where.text(),
                   ranks_hint(facts, num_nodes, static_cast<int>(gpus)))});
}

void find_idle_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                    std::vector<PlacementFinding>& found) {
  // Elsewhere nobody has asked for the others.
  if (facts.batch == BatchSystem::none) return;
  FoundOn where(nodes.size());
  std::size_t idle = 0, all = 0;
  for (const NodeRanks& node : nodes) {
    const auto has_part = [](const RankPlace* rank) { return rank->sees_part; };
    if (!all_look(node) || std::ranges::any_of(node.ranks, has_part)) continue;
    const auto given = static_cast<std::size_t>(
        std::ranges::max(node.ranks, {}, &RankPlace::given_gpus)->given_gpus);
    const std::size_t seen = count_seen_gpus(node);
    const std::size_t of_job = given > 0 ? given : seen;
    if (seen == 0 || node.ranks.size() >= of_job || !where.add(node)) continue;
    idle = of_job - node.ranks.size();
    all = of_job;
  }
  if (!where.has_any()) return;
  const std::string hint = ranks_hint(facts, static_cast<int>(nodes.size()), static_cast<int>(all));
  found.push_back(
      {PlacementKind::idle_gpus,
       fmt::format(log_text::idle_gpus, idle, format_count(all, "GPU"), where.text(), hint)});
}

}  // namespace dstune
