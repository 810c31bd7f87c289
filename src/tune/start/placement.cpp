#include "start/placement.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "start/placement_parts.hpp"

namespace dstune {
namespace {

/// Hosts of one kind tell memory that differs by less.
constexpr double equal_memory = 0.9;
/// More names than that are too long for a line.
constexpr std::size_t most_names = 4;

/// A node as far as groups over several notice it.
struct NodeTraits {
  std::string host;
  int ranks = 0;
  int cores = 0;
  std::size_t gpus = 0;
  std::int64_t memory_bytes = 0;
  std::set<std::string> kinds{};

  [[nodiscard]] auto kind() const { return std::tuple(ranks, cores, gpus, kinds); }
};

std::vector<NodeTraits> traits_of(const std::vector<NodeRanks>& nodes) {
  std::vector<NodeTraits> all;
  for (const NodeRanks& node : nodes) {
    NodeTraits traits{.host = node.host};
    NodeRanks training{.host = node.host, .ranks = {}};
    for (const RankPlace* const rank : node.ranks) {
      if (rank->is_left_out) continue;
      training.ranks.push_back(rank);
      ++traits.ranks;
      traits.cores = std::max(traits.cores, static_cast<int>(rank->job_cores));
      traits.memory_bytes = std::max(traits.memory_bytes, rank->host_memory_bytes);
      if (!rank->kind.empty()) traits.kinds.insert(rank->kind);
    }
    traits.gpus = count_seen_gpus(training);
    if (traits.ranks > 0) all.push_back(std::move(traits));
  }
  return all;
}

/// "ranks (1 to 3)"; empty where all are equal.
template <class Of>
void add_difference(const std::vector<NodeTraits>& nodes, const char* what, Of number,
                    std::vector<std::string>& differences) {
  const auto [least, most] = std::ranges::minmax_element(nodes, {}, number);
  if (number(*least) == number(*most)) return;
  differences.push_back(fmt::format("{} ({} to {})", what, number(*least), number(*most)));
}

std::vector<std::string> differences_of(const std::vector<NodeTraits>& nodes) {
  std::vector<std::string> differences;
  add_difference(
      nodes, "ranks", [](const NodeTraits& node) { return node.ranks; }, differences);
  add_difference(
      nodes, "cores", [](const NodeTraits& node) { return node.cores; }, differences);
  add_difference(
      nodes, "GPUs", [](const NodeTraits& node) { return node.gpus; }, differences);
  const auto [least, most] = std::ranges::minmax_element(nodes, {}, &NodeTraits::memory_bytes);
  if (static_cast<double>(least->memory_bytes) <
      equal_memory * static_cast<double>(most->memory_bytes))
    differences.push_back(fmt::format("memory ({} to {})", format_bytes(least->memory_bytes),
                                      format_bytes(most->memory_bytes)));
  std::set<std::string> kinds{};
  for (const NodeTraits& node : nodes) kinds.insert(node.kinds.begin(), node.kinds.end());
  if (kinds.size() > 1) differences.push_back(fmt::format("devices ({})", fmt::join(kinds, "; ")));
  return differences;
}

/// The nodes of the kind that has most ranks, or the others, whichever are few.
std::string kind_hint(const std::vector<NodeTraits>& nodes, const LaunchFacts& facts) {
  if (facts.components > 1) return "srun --het-group=0, --hostfile, --include or --exclude";
  std::map<decltype(nodes.front().kind()), std::vector<std::string>> hosts;
  for (const NodeTraits& node : nodes) hosts[node.kind()].push_back(node.host);
  const auto num_ranks = [](const auto& kind) {
    return static_cast<std::size_t>(std::get<0>(kind.first)) * kind.second.size();
  };
  const auto usual = std::ranges::max_element(hosts, {}, num_ranks);
  if (hosts.size() > 1 && usual->second.size() <= most_names)
    return fmt::format("--include {}", fmt::join(usual->second, "@"));
  std::vector<std::string> others;
  for (const auto& [kind, names] : hosts)
    if (kind != usual->first) others.insert(others.end(), names.begin(), names.end());
  if (!others.empty() && others.size() <= most_names)
    return fmt::format("--exclude {}", fmt::join(others, "@"));
  return "--hostfile, --include or --exclude";
}

/// The ranks of a node where a launcher spreads those of the job.
int even_ranks(std::size_t num_ranks, std::size_t used_nodes, const LaunchFacts& facts) {
  const auto ranks = static_cast<int>(num_ranks);
  return std::max(1, facts.tasks > ranks ? facts.tasks / std::max(1, facts.nodes)
                                         : ranks / static_cast<int>(used_nodes));
}

void find_unlike_nodes(const std::vector<NodeRanks>& all, const LaunchFacts& facts,
                       std::vector<PlacementFinding>& found) {
  const std::vector<NodeTraits> nodes = traits_of(all);
  if (nodes.empty()) return;
  const std::vector<std::string> differences = differences_of(nodes);
  if (differences.empty()) return;
  std::size_t num_ranks = 0;
  for (const NodeTraits& node : nodes) num_ranks += static_cast<std::size_t>(node.ranks);
  // Nodes of one kind were given ranks unevenly, which the launcher mends.
  const bool is_launchers =
      differences.size() == 1 && differences.front().starts_with("ranks") && facts.components < 2;
  const std::string hint = is_launchers
                               ? ranks_hint(facts, static_cast<int>(nodes.size()),
                                            even_ranks(num_ranks, nodes.size(), facts))
                               : fmt::format(log_text::one_kind_of_node, kind_hint(nodes, facts));
  found.push_back({PlacementKind::unlike_nodes,
                   fmt::format(log_text::unlike_nodes, fmt::join(differences, ", "), hint)});
}

/// srun that does not serve this MPI starts as many jobs as processes.
bool find_separate_jobs(std::size_t ranks, const LaunchFacts& facts,
                        std::vector<PlacementFinding>& found) {
  if (facts.launcher != Launcher::srun || ranks > 1 || facts.step_tasks < 2) return false;
  found.push_back({PlacementKind::separate_jobs,
                   fmt::format(log_text::separate_jobs, facts.step_tasks, log_text::with_pmix)});
  return true;
}

void find_idle_parts(const std::vector<NodeRanks>& nodes, std::size_t num_ranks,
                     const LaunchFacts& facts, std::vector<PlacementFinding>& found) {
  const auto ranks = static_cast<int>(num_ranks);
  const auto used_nodes = static_cast<int>(nodes.size());
  const std::string are = format_count(num_ranks, "rank") + (ranks == 1 ? " is" : " are");
  const int usual = even_ranks(num_ranks, nodes.size(), facts);
  const std::string hint = ranks_hint(facts, std::max(facts.nodes, used_nodes), usual);
  if (facts.nodes > used_nodes)
    found.push_back({PlacementKind::idle_nodes,
                     fmt::format(log_text::idle_nodes, are, used_nodes, facts.nodes, hint)});
  else if (facts.tasks > ranks)
    found.push_back(
        {PlacementKind::idle_tasks,
         fmt::format(log_text::idle_tasks, are, to_text(facts.batch), facts.tasks, hint)});
}

}  // namespace

template <class Archive>
void members(Archive& archive, json::Of<Archive, RankPlace>& place) {
  archive("node", place.node);
  archive("machine", place.machine);
  archive("host", place.host);
  archive("cores", place.cores);
  archive("host_cores", place.host_cores);
  archive("host_processors", place.host_processors);
  archive("job_cores", place.job_cores);
  archive("host_memory_bytes", place.host_memory_bytes);
  archive("load_beside", place.load_beside);
  archive("kind", place.kind);
  archive("gpu", place.gpu);
  archive("is_left_out", place.is_left_out);
  archive("looks_at_gpus", place.looks_at_gpus);
  archive("gpus", place.gpus);
  archive("sees_part", place.sees_part);
  archive("named_gpus", place.named_gpus);
  archive("given_gpus", place.given_gpus);
}
template void members(json::Writer&, const RankPlace&);
template void members(json::Reader&, RankPlace&);

std::vector<NodeRanks> group_by(int RankPlace::*number, const std::vector<RankPlace>& places) {
  std::map<int, NodeRanks> found;
  for (const RankPlace& place : places) {
    NodeRanks& node = found[place.*number];
    if (node.ranks.empty()) node.host = place.host;
    node.ranks.push_back(&place);
  }
  std::vector<NodeRanks> groups;
  for (auto& [number_of_group, node] : found) groups.push_back(std::move(node));
  return groups;
}

bool FoundOn::add(const NodeRanks& node) {
  if (++count_ > 1) return false;
  first_ = node.host;
  return true;
}

std::string FoundOn::text() const {
  if (count_ == 1) return first_;
  return fmt::format("{} of {} nodes ({} is one)", count_, num_nodes_, first_);
}

std::string ranks_hint(const LaunchFacts& facts, int nodes, int ranks_a_node) {
  switch (facts.launcher) {
    case Launcher::srun:
      return fmt::format(log_text::ranks_by_srun, nodes, ranks_a_node);
    case Launcher::open_mpi:
      return fmt::format(log_text::ranks_by_open_mpi, nodes * ranks_a_node, ranks_a_node);
    case Launcher::hydra:
      return fmt::format(log_text::ranks_by_hydra, nodes * ranks_a_node, ranks_a_node);
    case Launcher::unknown:
      break;
  }
  return fmt::format(log_text::ranks_of_job, nodes * ranks_a_node, ranks_a_node);
}

std::vector<PlacementFinding> placement_findings(const std::vector<RankPlace>& places,
                                                 const LaunchFacts& facts) {
  std::vector<PlacementFinding> found;
  if (places.empty()) return found;
  const std::vector<NodeRanks> nodes = group_by(&RankPlace::node, places);
  const std::vector<NodeRanks> machines = group_by(&RankPlace::machine, places);
  const bool is_separate = find_separate_jobs(places.size(), facts, found);
  find_hidden_gpus(nodes, facts, found);
  find_missing_gpus(nodes, facts, found);
  find_shared_gpus(nodes, facts, found);
  // Each of separate jobs sees itself alone.
  if (is_separate) return found;
  find_idle_gpus(nodes, facts, found);
  find_bound_cores(machines, facts, found);
  find_shared_nodes(machines, facts, found);
  find_unlike_nodes(nodes, facts, found);
  find_idle_parts(nodes, places.size(), facts, found);
  return found;
}

}  // namespace dstune
