#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "start/placement_parts.hpp"

namespace dstune {
namespace {

/// Sites keep up to an eighth of a node's cores for the system. What is left to others beyond that
/// is a job's.
constexpr double most_of_a_node = 0.75;
/// Threads of others on a node that disturb, and their share of its cores.
constexpr double busy_threads = 2, busy_share = 1.0 / 16;

/// Shares of cores do not add up to whole numbers exactly.
constexpr double rounding = 1e-6;

/// The job's cores in the batch system's counting, which has cores or hardware threads: the smaller
/// of the two meanings. The host's where it does not say.
double given_cores(const RankPlace& rank, const LaunchFacts& facts) {
  if (facts.cpus_a_node == 0) return rank.host_cores;
  const double threads_a_core = std::max(1.0, 1.0 * rank.host_processors / rank.host_cores);
  return std::min<double>(rank.host_cores, facts.cpus_a_node / threads_a_core);
}

struct MachineCores {
  std::map<int, int> users{};  ///< of each core that is used
  double of_job = 0;

  [[nodiscard]] double used() const { return static_cast<double>(users.size()); }
  /// A core that several ranks may use is split evenly among them.
  [[nodiscard]] double share_of(const RankPlace& rank) const {
    double share = 0;
    for (const int core : rank.cores) share += 1.0 / users.at(core);
    return share;
  }
};

MachineCores cores_of(const NodeRanks& machine, const LaunchFacts& facts) {
  MachineCores cores;
  for (const RankPlace* const rank : machine.ranks) {
    for (const int core : rank->cores) ++cores.users[core];
    // A step of Slurm has a part of its job's cores, and may have all of them.
    const bool is_step = facts.batch == BatchSystem::slurm && facts.cpus_a_node > 0;
    const double given = given_cores(*rank, facts);
    cores.of_job = std::max(cores.of_job, is_step ? given : std::min(rank->job_cores, given));
  }
  cores.of_job = std::max(cores.of_job, cores.used());
  return cores;
}

/// `cores`: for each rank; 0 where there are fewer cores than ranks.
std::string cores_hint(const LaunchFacts& facts, int cores) {
  if (cores == 0) return log_text::no_binding;
  switch (facts.launcher) {
    case Launcher::srun:
      return fmt::format(log_text::cores_by_srun, cores);
    case Launcher::open_mpi:
      return fmt::format(log_text::cores_by_open_mpi, cores);
    case Launcher::hydra:
      return fmt::format(log_text::cores_by_hydra, cores);
    case Launcher::unknown:
      break;
  }
  return fmt::format(log_text::cores_of_rank, cores);
}

const char* whole_nodes_words(BatchSystem batch) {
  switch (batch) {
    case BatchSystem::slurm:
      return "#SBATCH --exclusive";
    case BatchSystem::pbs:
      return "#PBS -l place=scatter:excl";
    case BatchSystem::lsf:
      return "#BSUB -x";
    case BatchSystem::flux:
      return "flux batch --exclusive";
    case BatchSystem::none:
      break;
  }
  return "";
}

}  // namespace

void find_bound_cores(const std::vector<NodeRanks>& machines, const LaunchFacts& facts,
                      std::vector<PlacementFinding>& found) {
  FoundOn one(machines.size()), same(machines.size());
  int one_of = 0, same_used = 0, same_of = 0;
  std::size_t one_ranks = 0;
  int one_hint = 1, same_hint = 1;
  bool is_on_gpu = false;
  for (const NodeRanks& machine : machines) {
    const MachineCores cores = cores_of(machine, facts);
    const auto ranks = static_cast<double>(machine.ranks.size());
    const int for_each = static_cast<int>(std::floor(cores.of_job / ranks));
    const bool has_idle = cores.of_job - cores.used() >= 1;
    double least = cores.of_job;
    for (const RankPlace* const rank : machine.ranks)
      least = std::min(least, cores.share_of(*rank));
    if (has_idle && least < 1 - rounding) {
      if (!same.add(machine)) continue;
      same_used = static_cast<int>(cores.users.size());
      same_of = static_cast<int>(cores.of_job);
      same_hint = for_each;
    } else if (has_idle && least < 1 + rounding && for_each > 1 && !facts.asks_one_thread &&
               one.add(machine)) {
      one_of = static_cast<int>(cores.of_job);
      one_ranks = machine.ranks.size();
      one_hint = for_each;
      is_on_gpu = !machine.ranks.front()->gpu.empty();
    }
  }
  if (one.has_any())
    found.push_back(
        {PlacementKind::one_core,
         fmt::format(log_text::one_core, one.text(), one_of, format_count(one_ranks, "rank"),
                     is_on_gpu ? "offloaded work has the speed of one core"
                               : "measured speed is that of one core",
                     cores_hint(facts, one_hint))});
  if (same.has_any())
    found.push_back(
        {PlacementKind::same_core, fmt::format(log_text::same_core, same.text(), same_used, same_of,
                                               cores_hint(facts, same_hint))});
}

void find_shared_nodes(const std::vector<NodeRanks>& machines, const LaunchFacts& facts,
                       std::vector<PlacementFinding>& found) {
  // Nobody asks for whole nodes elsewhere, and the summary has the load of each job.
  if (facts.batch == BatchSystem::none) return;
  FoundOn busy(machines.size()), part(machines.size());
  double threads = 0;
  int of_job = 0, of_host = 0;
  for (const NodeRanks& machine : machines) {
    const RankPlace& first = *machine.ranks.front();
    // Ranks look at slightly different moments.
    double others = first.load_beside;
    for (const RankPlace* const rank : machine.ranks) others = std::min(others, rank->load_beside);
    if (others >= std::max(busy_threads, busy_share * first.host_cores)) {
      if (busy.add(machine)) threads = others;
      continue;
    }
    double allowed = 0;
    for (const RankPlace* const rank : machine.ranks) allowed = std::max(allowed, rank->job_cores);
    // A step's group may be smaller than its job's part.
    const bool says_slurm = facts.batch == BatchSystem::slurm && facts.cpus_a_node > 0;
    const double has = says_slurm ? std::min<double>(first.host_cores, facts.cpus_a_node) : allowed;
    if (has > most_of_a_node * first.host_cores || !part.add(machine)) continue;
    of_job = static_cast<int>(has);
    of_host = first.host_cores;
  }
  const std::string hint = fmt::format(log_text::whole_nodes, whole_nodes_words(facts.batch));
  if (busy.has_any())
    found.push_back({PlacementKind::shared_node,
                     fmt::format(log_text::busy_nodes, busy.text(), threads, hint)});
  else if (part.has_any())
    found.push_back({PlacementKind::shared_node,
                     fmt::format(log_text::part_of_nodes, of_job, of_host, part.text(), hint)});
}

}  // namespace dstune
