#include "dstune/predict/profiling_plan.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune {
namespace {

/// First, middle and last micro-step: more of them are repeats.
constexpr std::int64_t max_micro_steps = 3;

/// A guess of a time, only to weigh one kind of work against another.
double weight_of(const Work& work, const Policy::Profiling& policy) {
  const bool counts_operations = is_product(work.kind) ||
                                 work.kind == WorkKind::attention_forward ||
                                 work.kind == WorkKind::attention_backward;
  return 1e-6 +
         amount(work) / (counts_operations ? policy.operations_a_second : policy.bytes_a_second);
}

struct WorkOrder {
  static auto key(const Work& work) {
    return std::tuple(work.kind, work.type, work.out_type, work.flags, work.width, work.depth);
  }
  bool operator()(const Work& one, const Work& other) const { return key(one) < key(other); }
};
bool is_transfer(WorkKind kind) {
  return kind == WorkKind::disk_read || kind == WorkKind::disk_write;
}

using Sizes = std::map<std::int64_t, double>;
/// Weight by size of each kind of work.
using Demand = std::map<Work, Sizes, WorkOrder>;

void add_demand(const StepPlan& plan, const Policy::Profiling& policy, Demand& demand,
                double& total) {
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto work = work_of(plan, step.operation);
      // Transfers are timed on their own.
      if (!work || is_transfer(work->kind)) continue;
      const double weight = static_cast<double>(segment.repeat) * weight_of(*work, policy);
      demand[*work][work->size] += weight;
      total += weight;
    }
  }
}

/// The model of all runs: with no more layers than it takes.
ModelSpec cut_down(const ModelSpec& model, const ProfilingOptions& options) {
  ModelSpec cut = model;
  cut.num_layers = std::min(model.num_layers, options.policy->min_layers);
  while (cut.num_layers < model.num_layers && parameter_count(cut) < options.min_parameters)
    ++cut.num_layers;
  return cut;
}

/// The configuration that is run in a member's stead: no step of it is ever skipped.
ProfilingRun run_of(const Experiment& member, std::int64_t num_layers) {
  ProfilingRun run{num_layers, member.config, 0};
  run.config.accumulation_steps = std::min(run.config.accumulation_steps, max_micro_steps);
  run.config.loss_scale.fixed = 1;
  for (OffloadDevice* device : {&run.config.offload_optimizer, &run.config.offload_param})
    if (*device == OffloadDevice::nvme) *device = OffloadDevice::cpu;
  run.config.disk = {};
  run.config.optimizer = {};
  run.config.optimizer.kind = member.config.optimizer.kind;
  run.config.optimizer.momentum = member.config.optimizer.momentum != 0 ? 0.9 : 0;
  return run;
}

struct Candidate {
  ProfilingRun run;
  Demand offers;
};

/// How much of the weight of a size is unknown when these sizes are known: all, half beyond the
/// known ones, little between two.
double unknown_share(const Sizes& known, std::int64_t size, const Policy::Profiling& policy) {
  if (known.empty()) return 1;
  if (known.contains(size)) return 0;
  const auto above = known.upper_bound(size);
  if (above == known.begin() || above == known.end()) return policy.unknown_beyond;
  const double ratio =
      static_cast<double>(above->first) / static_cast<double>(std::prev(above)->first);
  return std::min(policy.most_unknown_between, policy.unknown_a_doubling * std::log2(ratio));
}

double unknown(const Sizes& demanded, const Sizes& known, const Policy::Profiling& policy) {
  double sum = 0;
  for (const auto& [size, weight] : demanded) sum += weight * unknown_share(known, size, policy);
  return sum;
}

/// The part of the demand that a run would make known.
double gain_of(const Demand& offers, const Demand& demand, const Demand& known,
               const Policy::Profiling& policy) {
  double gain = 0;
  for (const auto& [work, sizes] : offers) {
    const auto demanded = demand.find(work);
    if (demanded == demand.end()) continue;
    const auto found = known.find(work);
    const Sizes before = found == known.end() ? Sizes{} : found->second;
    Sizes then = before;
    then.insert(sizes.begin(), sizes.end());
    if (then.size() == before.size()) continue;
    gain += unknown(demanded->second, before, policy) - unknown(demanded->second, then, policy);
  }
  return gain;
}

/// Runs in the order in which each teaches the most for its time, until little is left to learn;
/// one at least.
std::vector<ProfilingRun> choose(const std::vector<Candidate>& candidates, const Demand& demand,
                                 double total, Demand& known, const ProfilingOptions& options) {
  std::vector<ProfilingRun> runs;
  while (runs.size() < options.max_runs) {
    const Candidate* best = &candidates.front();
    double best_gain = 0;
    for (const Candidate& candidate : candidates) {
      const double gain = gain_of(candidate.offers, demand, known, *options.policy);
      if (gain < options.policy->enough_is_known * total || gain / candidate.run.cost <= best_gain)
        continue;
      best = &candidate;
      best_gain = gain / candidate.run.cost;
    }
    if (best_gain == 0 && !runs.empty()) break;
    runs.push_back(best->run);
    for (const auto& [work, sizes] : best->offers) known[work].insert(sizes.begin(), sizes.end());
    if (best_gain == 0) break;
  }
  return runs;
}

/// The bytes of the smallest and the largest transfer of a plan join those of others.
void add_transfers(const StepPlan& plan, std::pair<std::int64_t, std::int64_t>& range) {
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto work = work_of(plan, step.operation);
      if (!work || !is_transfer(work->kind)) continue;
      const std::int64_t bytes = work->size * size_bytes(work->type);
      range.first = range.first == 0 ? bytes : std::min(range.first, bytes);
      range.second = std::max(range.second, bytes);
    }
  }
}

/// So many sizes from the one to the other, each by the same factor larger; in whole blocks, and
/// those that are the same once.
std::vector<std::int64_t> spread_sizes(std::int64_t smallest, std::int64_t largest, int count,
                                       std::int64_t block_bytes) {
  const auto least = static_cast<double>(smallest);
  const double range = std::max(1.0, static_cast<double>(largest) / least);
  std::vector<std::int64_t> sizes;
  for (int index = 0; index < count; ++index) {
    const double exponent = static_cast<double>(index) / (count - 1);
    const auto bytes = static_cast<std::int64_t>(least * std::pow(range, exponent));
    const std::int64_t whole = (bytes + block_bytes - 1) / block_bytes * block_bytes;
    if (sizes.empty() || whole > sizes.back()) sizes.push_back(whole);
  }
  return sizes;
}

/// Sizes of each collective of the demand.
std::vector<Work> sizes_to_time(const Demand& demand, const Policy::Profiling& policy) {
  std::vector<Work> timed;
  for (const auto& [work, sizes] : demand) {
    if (!is_collective(work.kind) || work.kind == WorkKind::exchange) continue;
    const auto smallest = std::max(sizes.begin()->first, policy.smallest_collective_bytes);
    const auto largest = std::min(sizes.rbegin()->first, policy.largest_collective_bytes);
    for (const std::int64_t bytes : spread_sizes(smallest, largest, policy.sizes_a_collective, 1)) {
      timed.push_back(work);
      timed.back().size = bytes;
    }
  }
  return timed;
}

/// Gives each task a part of the budget, by its runs.
void share_budget(std::vector<ProfilingTask>& tasks, double budget_s) {
  std::size_t num_runs = 0;
  for (const ProfilingTask& task : tasks) num_runs += task.runs.size();
  for (ProfilingTask& task : tasks)
    task.budget_s = budget_s * static_cast<double>(task.runs.size()) /
                    static_cast<double>(std::max<std::size_t>(1, num_runs));
}

}  // namespace

double known_share(const ModelSpec& model, std::span<const Experiment* const> members,
                   const WorkspaceSizes& workspaces, const DeviceProfile& profile,
                   const Policy::Profiling& policy) {
  StepPlanner planner(model, workspaces);
  Demand demand;
  double total = 0;
  const std::size_t looked_at = std::min(members.size(), policy.max_members);
  for (std::size_t index = 0; index < looked_at; ++index) {
    const Experiment& member = *members[index * members.size() / looked_at];
    if (model_violation(model, member.config, member.shape.size()).empty())
      add_demand(planner.plan(member.config, member.shape.size()), policy, demand, total);
  }
  const auto has_curve = [](const std::vector<TimeCurve>& curves, const Work& work) {
    return std::ranges::any_of(
        curves, [&](const TimeCurve& curve) { return is_same_curve(curve.work, work); });
  };
  double known = 0;
  for (const auto& [work, sizes] : demand) {
    const bool is_known = is_collective(work.kind)
                              ? std::ranges::any_of(profile.groups,
                                                    [&, &of = work](const GroupProfile& group) {
                                                      return has_curve(group.collectives, of);
                                                    })
                              : has_curve(profile.kernels, work);
    if (!is_known) continue;
    for (const auto& [size, weight] : sizes) known += weight;
  }
  return total > 0 ? known / total : 0;
}

ModelSpec profiling_model(const ModelSpec& model, const ProfilingRun& run) {
  ModelSpec cut = model;
  cut.num_layers = run.num_layers;
  return cut;
}

std::vector<ProfilingTask> plan_profiling(const ModelSpec& model,
                                          std::span<const Experiment* const> members,
                                          const WorkspaceSizes& workspaces,
                                          const ProfilingOptions& options) {
  const Policy::Profiling& policy = *options.policy;
  std::map<std::pair<int, GroupShape>, std::vector<const Experiment*>> by_shape;
  for (const Experiment* member : members)
    by_shape[{member->shape.size(), member->shape}].push_back(member);

  std::vector<ProfilingTask> tasks;
  Demand known;  // Known kernels: groups of every shape run the same.
  const ModelSpec cut = cut_down(model, options);
  StepPlanner whole_model(model, workspaces);
  StepPlanner cut_model(cut, workspaces);
  for (const auto& [key, all] : by_shape) {
    const GroupShape shape = key.second;
    const std::size_t looked_at = std::min(all.size(), options.max_members);
    Demand demand;
    double total = 0;
    std::vector<Candidate> candidates;
    DiskTiming disk;
    std::pair<std::int64_t, std::int64_t> transfers{0, 0};
    for (std::size_t index = 0; index < looked_at; ++index) {
      const Experiment& member = *all[index * all.size() / looked_at];
      // A group of another size may have no plan for it.
      if (!model_violation(model, member.config, shape.size()).empty()) continue;
      const StepPlan& plan = whole_model.plan(member.config, shape.size());
      add_demand(plan, policy, demand, total);
      if (uses_disk(member.config) && options.times_disks) {
        if (transfers.second == 0) disk.use = member.config.disk;
        add_transfers(plan, transfers);
      }
      Candidate candidate{run_of(member, cut.num_layers), {}};
      if (!model_violation(cut, candidate.run.config, shape.size()).empty()) continue;
      const StepPlan& short_plan = cut_model.plan(candidate.run.config, shape.size());
      if (short_plan.memory.arena_bytes + short_plan.host_memory.arena_bytes > options.max_bytes)
        continue;
      add_demand(short_plan, policy, candidate.offers, candidate.run.cost);
      candidates.push_back(std::move(candidate));
    }
    if (candidates.empty()) continue;
    if (transfers.second > 0)
      disk.bytes = spread_sizes(std::min(transfers.first, policy.largest_transfer_bytes),
                                std::min(transfers.second, policy.largest_transfer_bytes),
                                policy.sizes_of_transfers, disk_alignment_bytes);
    else
      disk.use = {};
    ProfilingTask task{shape, {}, {}, std::move(disk), 0};
    task.runs = choose(candidates, demand, total, known, options);
    if (shape.size() > 1) task.collectives = sizes_to_time(demand, policy);
    // Collectives of another shape are others.
    std::erase_if(known, [](const auto& one) { return is_collective(one.first.kind); });
    tasks.push_back(std::move(task));
  }
  share_budget(tasks, options.budget_s);
  return tasks;
}

}  // namespace dstune
