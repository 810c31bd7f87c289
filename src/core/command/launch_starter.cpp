// srun and mpirun: how many tasks on how many nodes.
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "command/launch_plan.hpp"

namespace dstune {

namespace {

constexpr std::string_view per_node_srun = "--ntasks-per-node";
constexpr std::string_view ranks_of_mpi = "-np";

/// Options of mpirun that say how many ranks a node has.
constexpr std::array<std::string_view, 2> per_node_mpi{"--npernode", "-ppn"};

/// "8" of "ppr:8:node", with what is around it.
struct RanksPerNode {
  std::string front;
  std::optional<int> count;
  std::string back;
};
std::optional<RanksPerNode> ranks_per_node(const std::string& map_by) {
  constexpr std::string_view begin = "ppr:";
  if (!map_by.starts_with(begin)) return std::nullopt;
  const std::size_t end = map_by.find(':', begin.size());
  if (end == map_by.npos || !std::string_view(map_by).substr(end).starts_with(":node"))
    return std::nullopt;
  return RanksPerNode{std::string(begin), count_of(map_by.substr(begin.size(), end - begin.size())),
                      map_by.substr(end)};
}

std::string plan_srun(const GivenOptions& options, int num_nodes, int tasks_per_node,
                      WordEdits& edits) {
  if (options.find("--multi-prog") != nullptr) return "srun's --multi-prog names several programs";
  if (std::string problem = variable_problem(options, {"--nodes", "--ntasks", per_node_srun});
      !problem.empty())
    return problem;
  const GivenOption* const list = options.find("--nodelist");
  if (list != nullptr && count_of(options.find("--nodes")) != num_nodes)
    return fmt::format("srun's --nodelist {} is of other nodes: leave it out", list->value);
  const std::string nodes = std::to_string(num_nodes);
  const std::string tasks = std::to_string(num_nodes * tasks_per_node);
  set_option(options, "--nodes", nodes, edits);
  set_option(options, "--ntasks", tasks, edits);
  set_option(options, per_node_srun, std::to_string(tasks_per_node), edits);
  // Counts that are not said are the batch job's.
  if (options.find("--nodes") == nullptr) edits.push_back({options.begin, false, {"-N", nodes}});
  if (options.find("--ntasks") == nullptr) edits.push_back({options.begin, false, {"-n", tasks}});
  if (options.find(per_node_srun) == nullptr)
    edits.push_back({options.begin, false, {fmt::format("{}={}", per_node_srun, tasks_per_node)}});
  return "";
}

std::string plan_mpirun(const LauncherChain& chain, int num_nodes, int tasks_per_node,
                        WordEdits& edits) {
  const GivenOptions& options = chain.starter_options;
  if (std::string problem = variable_problem(options, {ranks_of_mpi, "--npernode", "-ppn"});
      !problem.empty())
    return problem;
  const std::string per_node = std::to_string(tasks_per_node);
  bool is_placed = tasks_per_node == 1 && options.find("--pernode") != nullptr;
  for (const std::string_view name : per_node_mpi) {
    is_placed = is_placed || options.find(name) != nullptr;
    set_option(options, name, per_node, edits);
  }
  if (const GivenOption* map_by = options.find("--map-by")) {
    if (const auto ranks = ranks_per_node(map_by->value)) {
      set_option(options, "--map-by", ranks->front + per_node + ranks->back, edits);
      is_placed = true;
    }
  }
  if (options.find("--pernode") != nullptr && tasks_per_node > 1)
    return "--pernode starts one rank a node: write --npernode and a number";
  if (options.find("--npersocket") != nullptr)
    return "--npersocket does not say how many ranks a node has: write --map-by ppr:8:node";
  if (options.find("--app") != nullptr) return "--app names several programs";
  if (num_nodes > 1 && !is_placed) {
    if (chain.mpi == MpiKind::unknown || options.find("--map-by") != nullptr)
      return fmt::format(
          "{} does not say how many ranks a node has: write --map-by ppr:{}:node (Open MPI) or "
          "-ppn {} (MPICH, Intel MPI)",
          chain.starter_name, tasks_per_node, tasks_per_node);
    if (chain.mpi == MpiKind::open_mpi)
      edits.push_back({options.begin, false, {"--map-by", fmt::format("ppr:{}:node", per_node)}});
    else
      edits.push_back({options.begin, false, {"-ppn", per_node}});
  }
  set_or_add_option(options, ranks_of_mpi, std::to_string(num_nodes * tasks_per_node), edits);
  return "";
}

}  // namespace

std::string plan_starter(const LauncherChain& chain, int num_nodes, int tasks_per_node,
                         WordEdits& edits) {
  if (chain.starter == StarterKind::none) return "";
  if (chain.starter == StarterKind::srun)
    return plan_srun(chain.starter_options, num_nodes, tasks_per_node, edits);
  return plan_mpirun(chain, num_nodes, tasks_per_node, edits);
}

LaunchCounts starter_counts(const LauncherChain& chain) {
  const GivenOptions& options = chain.starter_options;
  LaunchCounts counts{chain.starter_name, {}, {}, {}};
  if (chain.starter == StarterKind::srun) {
    counts.num_nodes = count_of(options.find("--nodes"));
    counts.num_gpus = count_of(options.find(per_node_srun));
    counts.num_ranks = count_of(options.find("--ntasks"));
  } else {
    counts.num_ranks = count_of(options.find(ranks_of_mpi));
    for (const std::string_view name : per_node_mpi)
      if (const auto count = count_of(options.find(name))) counts.num_gpus = count;
    if (const GivenOption* map_by = options.find("--map-by"))
      if (const auto ranks = ranks_per_node(map_by->value)) counts.num_gpus = ranks->count;
    if (options.find("--pernode") != nullptr) counts.num_gpus = 1;
  }
  const auto quotient = [](const std::optional<int>& all, const std::optional<int>& each) {
    return all && each && *all % *each == 0 ? std::optional(*all / *each) : std::nullopt;
  };
  if (!counts.num_nodes) counts.num_nodes = quotient(counts.num_ranks, counts.num_gpus);
  if (!counts.num_gpus) counts.num_gpus = quotient(counts.num_ranks, counts.num_nodes);
  return counts;
}

}  // namespace dstune
