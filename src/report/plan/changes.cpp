#include "changes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "placed.hpp"
#include "words.hpp"

namespace dstune {

namespace {

using plan_words::judged_bytes;
using plan_words::verdict_of;

constexpr auto change_kinds = numbered({"accumulation", "stage", "recompute", "offload_optimizer",
                                        "offload_param", "several", "gpus"});

/// So many configurations are judged that are no members, and groups grow up to so many ranks.
constexpr std::size_t max_judged = 48;
constexpr int max_ranks = 1024;
/// A micro-batch that is tried is at most 2 to this power as large as the space's.
constexpr int max_doublings = 6;
/// More ranks that save less than this share of the memory save none with still more.
constexpr double least_saved_share = 0.01;
constexpr std::array offloaded_shares{0.0, 0.25, 0.5, 0.75, 1.0};

/// A step takes so many times as long with a change, as a rule. It orders changes where no speed is
/// predicted. These are choices by hand:
/// - smaller micro-batches make smaller products;
/// - stages 1 and 2 move as many bytes as stage 0, stage 3 half as many again (ZeRO, 2020, 7.2);
/// - recompute of blocks adds a forward to a forward and a backward of twice its operations;
/// - offloaded states are updated on processors, and they cross the bus twice a step;
/// - offloaded parameters cross it in forward and backward.
struct UsualSlowdown {
  double accumulation = 1.05, stage_3 = 1.15;
  double selective = 1.1, block = 4.0 / 3;
  double offloaded_states = 1.5, offloaded_parameters = 2;
};
constexpr UsualSlowdown usual;

/// A configuration to be judged, and in words what makes it of another one.
struct Proposal {
  ChangeKind kind = ChangeKind::several;
  std::string text{};
  json::Value keys{};
  Placed placed{};
  double usual_slowdown = 1;
};
using Proposals = std::vector<Proposal>;

std::int64_t smallest_factor(std::int64_t number) {
  for (std::int64_t factor = 2; factor * factor <= number; ++factor)
    if (number % factor == 0) return factor;
  return number;
}

/// Smaller and smaller micro-batches with the same global batch.
Proposals with_accumulation(const Placed& from) {
  Proposals all;
  Placed to = from;
  TrainingConfig& config = to.config;
  while (config.micro_batch > 1) {
    const std::int64_t factor = smallest_factor(config.micro_batch);
    config.micro_batch /= factor;
    config.accumulation_steps *= factor;
    all.push_back({ChangeKind::accumulation,
                   fmt::format("micro-batch {} with accumulation {}", config.micro_batch,
                               config.accumulation_steps),
                   {{"/train_micro_batch_size_per_gpu", config.micro_batch},
                    {"/gradient_accumulation_steps", config.accumulation_steps}},
                   to,
                   usual.accumulation});
  }
  return all;
}

Proposals with_higher_stage(const Placed& from) {
  Proposals all;
  for (int stage = from.config.zero_stage + 1; stage <= 3; ++stage) {
    Placed to = from;
    to.config.zero_stage = stage;
    all.push_back({ChangeKind::stage,
                   fmt::format("stage {}", stage),
                   {{"/zero_optimization/stage", stage}},
                   to,
                   stage == 3 ? usual.stage_3 : 1});
  }
  return all;
}

Proposals with_recompute(const Placed& from) {
  Proposals all;
  for (const auto& [recompute, slowdown] :
       {std::pair(Recompute::selective, usual.selective), {Recompute::block, usual.block}}) {
    if (recompute <= from.config.recompute) continue;
    Placed to = from;
    to.config.recompute = recompute;
    all.push_back({ChangeKind::recompute,
                   fmt::format("recompute {}", to_text(recompute)),
                   {{"/dstune/activation_recompute", to_text(recompute)}},
                   to,
                   slowdown});
  }
  return all;
}

double offloaded_share(const TrainingConfig& config) {
  if (!is_optimizer_offloaded(config)) return 0;
  return config.zero_stage == 3 ? config.offload_ratio : 1;
}
double states_slowdown(double share) {
  return 1 + share * (usual.offloaded_states - 1);
}

/// Other shares of the optimizer's states on the host, the smallest first. Parts of them are stage
/// 3's alone, and a disk is left to who chose one.
Proposals with_offloaded_states(const Placed& from) {
  Proposals all;
  if (from.config.zero_stage == 0 || is_optimizer_on_disk(from.config)) return all;
  const double before = offloaded_share(from.config);
  for (const double share : offloaded_shares) {
    const bool is_part = share > 0 && share < 1;
    if (share == before || (is_part && from.config.zero_stage < 3)) continue;
    Placed to = from;
    to.config.offload_optimizer = share > 0 ? OffloadDevice::cpu : OffloadDevice::none;
    to.config.offload_ratio = share > 0 ? share : 1;
    json::Value keys = {
        {"/zero_optimization/offload_optimizer/device", to_text(to.config.offload_optimizer)}};
    if (from.config.zero_stage == 3 && share > 0)
      keys["/zero_optimization/offload_optimizer/ratio"] = share;
    const std::string text =
        share == 0 ? "the optimizer's states on the device"
                   : fmt::format("{} of the optimizer's states on the host",
                                 is_part ? fmt::format("{:.0f} %", 100 * share) : "all");
    all.push_back({ChangeKind::offload_optimizer, text, std::move(keys), to,
                   states_slowdown(share) / states_slowdown(before)});
  }
  return all;
}

Proposals with_offloaded_parameters(const Placed& from) {
  if (from.config.zero_stage < 3 || are_parameters_on_disk(from.config)) return {};
  const bool were_offloaded = are_parameters_offloaded(from.config);
  Placed to = from;
  to.config.offload_param = were_offloaded ? OffloadDevice::none : OffloadDevice::cpu;
  return {{ChangeKind::offload_param,
           were_offloaded ? "parameters on the device" : "parameters on the host",
           {{"/zero_optimization/offload_param/device", to_text(to.config.offload_param)}},
           to,
           were_offloaded ? 1 / usual.offloaded_parameters : usual.offloaded_parameters}};
}

/// Ever more changes that save memory, the usually cheapest first.
Proposals with_several(const Placed& from) {
  Proposals all;
  Proposal sum{.keys = json::Value::object(), .placed = from};
  const auto add_last = [&](Proposals more) {
    if (more.empty()) return;
    Proposal& next = more.back();
    sum.placed = next.placed;
    sum.text += (sum.text.empty() ? "" : " and ") + next.text;
    sum.keys.update(next.keys);
    sum.usual_slowdown *= next.usual_slowdown;
    all.push_back(sum);
  };
  add_last(with_accumulation(sum.placed));
  add_last(with_higher_stage(sum.placed));
  add_last(with_recompute(sum.placed));
  if (offloaded_share(sum.placed.config) < 1) add_last(with_offloaded_states(sum.placed));
  if (!are_parameters_offloaded(sum.placed.config)) add_last(with_offloaded_parameters(sum.placed));
  return all;
}

/// Judges configurations, members from the plan and others by what_if, each once.
class Judge {
 public:
  explicit Judge(const DryRun& plan) : plan_(&plan) {
    for (const PlannedExperiment& planned : plan.experiments)
      if (planned.status != PlanStatus::pruned)
        members_.try_emplace({planned.experiment.config, planned.experiment.shape}, &planned);
  }

  /// Nothing: nobody can tell.
  [[nodiscard]] std::optional<PlannedExperiment> judged(const Experiment& like,
                                                        const Placed& placed) {
    if (const auto found = members_.find(placed); found != members_.end()) return *found->second;
    if (const auto found = others_.find(placed); found != others_.end()) return found->second;
    if (!plan_->what_if || others_.size() == max_judged) return std::nullopt;
    Experiment experiment = like;
    experiment.name.clear();
    experiment.config = placed.config;
    experiment.shape = placed.shape;
    std::optional<PlannedExperiment>& result = others_[placed];
    if (const auto predicted = plan_->what_if(experiment))
      result = {std::move(experiment), PlanStatus::planned, "", *predicted};
    return result;
  }

  /// Returns the first that fits.
  [[nodiscard]] std::optional<PlanChange> first_that_fits(const Experiment& like,
                                                          Proposals proposals) {
    for (Proposal& proposal : proposals) {
      place_on(proposal.placed.shape, proposal.placed.config);
      auto found = judged(like, proposal.placed);
      if (found && verdict_of(*found) == MemoryVerdict::fits)
        return PlanChange{proposal.kind, std::move(proposal.text), std::move(proposal.keys),
                          std::move(*found), proposal.usual_slowdown};
    }
    return std::nullopt;
  }

 private:
  const DryRun* plan_;
  std::unordered_map<Placed, const PlannedExperiment*, PlacedHash> members_;
  std::unordered_map<Placed, std::optional<PlannedExperiment>, PlacedHash> others_;
};

/// The next larger group: whole nodes, and before that a whole node.
GroupShape doubled(const DryRun& plan, GroupShape shape) {
  const int node = plan.head.machine.num_gpus;
  if (shape.num_nodes == 1 && 2 * shape.num_gpus <= node) return {2 * shape.num_gpus, 1};
  return {shape.num_gpus, 2 * shape.num_nodes};
}
GroupShape halved(GroupShape shape) {
  if (shape.num_nodes > 1) return {shape.num_gpus, shape.num_nodes / 2};
  return {static_cast<int>(std::bit_floor(static_cast<unsigned>(shape.num_gpus - 1))), 1};
}

/// Doubles the ranks until it fits, at its own stage and else at stage 3, which alone divides all
/// that grows with the model. `tried` gets the numbers of ranks.
std::optional<PlanChange> more_ranks(const DryRun& plan, Judge& judge, const PlannedExperiment& of,
                                     std::vector<int>& tried) {
  for (const int stage : {of.experiment.config.zero_stage, 3}) {
    Placed to{of.experiment.config, of.experiment.shape};
    const bool is_other_stage = stage != to.config.zero_stage;
    to.config.zero_stage = stage;
    std::int64_t bytes = judged_bytes(of.predicted);
    for (to.shape = doubled(plan, to.shape); to.shape.size() <= max_ranks;
         to.shape = doubled(plan, to.shape)) {
      if (to.config.accumulation_steps % 2 == 0) to.config.accumulation_steps /= 2;
      place_on(to.shape, to.config);
      auto found = judge.judged(of.experiment, to);
      if (!found) break;
      tried.push_back(to.shape.size());
      if (verdict_of(*found) == MemoryVerdict::fits) {
        std::string text = plan_words::ranks_words(plan, to.shape.size());
        json::Value keys = {{"/dstune/resources/num_gpus", to.shape.num_gpus},
                            {"/dstune/resources/num_nodes", to.shape.num_nodes}};
        if (to.config.accumulation_steps != of.experiment.config.accumulation_steps) {
          text += fmt::format(" with accumulation {}", to.config.accumulation_steps);
          keys["/gradient_accumulation_steps"] = to.config.accumulation_steps;
        }
        if (is_other_stage) {
          text += fmt::format(" and stage {}", stage);
          keys["/zero_optimization/stage"] = stage;
        }
        return PlanChange{ChangeKind::gpus, text, keys, std::move(*found), 1};
      }
      const std::int64_t before = std::exchange(bytes, judged_bytes(found->predicted));
      if (static_cast<double>(bytes) > (1 - least_saved_share) * static_cast<double>(before)) break;
    }
    if (!is_other_stage && stage == 3) break;
  }
  return std::nullopt;
}

/// Halves the gap between ranks that do not fit and ranks that do: GPUs of a node, or whole nodes.
void narrow(Judge& judge, const Experiment& like, Placed to, GroupShape failing,
            PlanChanges& changes) {
  GroupShape fitting = to.shape;
  const bool has_nodes = failing.num_gpus == fitting.num_gpus;
  const auto count = [&](GroupShape& shape) -> int& {
    return has_nodes ? shape.num_nodes : shape.num_gpus;
  };
  while (count(fitting) - count(failing) > 1) {
    to.shape = fitting;
    count(to.shape) = (count(failing) + count(fitting)) / 2;
    place_on(to.shape, to.config);
    const auto found = judge.judged(like, to);
    if (!found) break;
    changes.tried_num_gpus.push_back(to.shape.size());
    (verdict_of(*found) == MemoryVerdict::fits ? fitting : failing) = to.shape;
  }
  changes.smallest_num_gpus = fitting.size();
}

/// Halves the ranks as long as it fits.
void fewer_ranks(Judge& judge, const PlannedExperiment& of, PlanChanges& changes) {
  Placed to{of.experiment.config, of.experiment.shape};
  changes.tried_num_gpus.push_back(to.shape.size());
  changes.smallest_num_gpus = to.shape.size();
  changes.smallest_with = of.experiment.name;
  while (to.shape.size() > 1) {
    const Placed fitting = to;
    to.shape = halved(to.shape);
    place_on(to.shape, to.config);
    const auto found = judge.judged(of.experiment, to);
    if (!found) break;
    changes.tried_num_gpus.push_back(to.shape.size());
    if (verdict_of(*found) != MemoryVerdict::fits)
      return narrow(judge, of.experiment, fitting, to.shape, changes);
    changes.smallest_num_gpus = to.shape.size();
  }
}

void find_smallest_num_gpus(const DryRun& plan, Judge& judge, const ChangeTask& task,
                            PlanChanges& changes) {
  if (task.fewest) {
    fewer_ranks(judge, plan.experiments[*task.fewest], changes);
  } else if (task.least && verdict_of(plan.experiments[*task.least]) != MemoryVerdict::unknown) {
    const PlannedExperiment& least = plan.experiments[*task.least];
    changes.tried_num_gpus.push_back(least.experiment.shape.size());
    changes.smallest_with = least.experiment.name;
    if (const auto found = more_ranks(plan, judge, least, changes.tried_num_gpus)) {
      const Experiment& fitting = found->planned.experiment;
      const int stage = fitting.config.zero_stage;
      // Half as many do not fit; at another stage nobody asked.
      GroupShape failing = fitting.shape;
      int& count = failing.num_nodes > 1 ? failing.num_nodes : failing.num_gpus;
      count = stage == least.experiment.config.zero_stage ? count / 2 : 0;
      narrow(judge, fitting, {fitting.config, fitting.shape}, failing, changes);
      if (stage != least.experiment.config.zero_stage)
        changes.smallest_with += fmt::format(" at stage {}", stage);
    }
  }
  std::ranges::sort(changes.tried_num_gpus);
  const auto rest = std::ranges::unique(changes.tried_num_gpus);
  changes.tried_num_gpus.erase(rest.begin(), rest.end());
}

/// Doubles the largest micro-batch as long as it fits.
void find_larger_micro_batch(const PlannedExperiment& of, Judge& judge, PlanChanges& changes) {
  Placed to{of.experiment.config, of.experiment.shape};
  for (int times = 0; times < max_doublings; ++times) {
    to.config.micro_batch *= 2;
    const auto found = judge.judged(of.experiment, to);
    if (!found || verdict_of(*found) != MemoryVerdict::fits) return;
    changes.larger_micro_batch = to.config.micro_batch;
  }
}

/// More ranks cost more than time: they come last.
void sort_by_cost(PlanChanges& changes) {
  const auto is_gpus = [](const PlanChange& change) { return change.kind == ChangeKind::gpus; };
  changes.is_by_speed = std::ranges::all_of(changes.changes, [&](const PlanChange& change) {
    return is_gpus(change) || ranked_throughput(change.planned.predicted);
  });
  std::ranges::stable_sort(changes.changes, {}, [&](const PlanChange& change) {
    const double cost = changes.is_by_speed && !is_gpus(change)
                            ? -*ranked_throughput(change.planned.predicted)
                            : change.usual_slowdown;
    return std::pair(is_gpus(change), cost);
  });
}

}  // namespace

const EnumTexts& texts_of(ChangeKind) {
  static constexpr EnumTexts texts{change_kinds};
  return texts;
}

PlanChanges try_changes(const DryRun& plan, const ChangeTask& task) {
  PlanChanges changes{.subject = task.subject};
  Judge judge(plan);
  if (task.subject) {
    const PlannedExperiment& subject = plan.experiments[*task.subject];
    const Experiment& experiment = subject.experiment;
    const Placed from{experiment.config, experiment.shape};
    const auto add = [&](std::optional<PlanChange> change) {
      if (change) changes.changes.push_back(std::move(*change));
    };
    for (const auto& family : {with_accumulation, with_higher_stage, with_recompute,
                               with_offloaded_states, with_offloaded_parameters})
      add(judge.first_that_fits(experiment, family(from)));
    if (changes.changes.empty()) add(judge.first_that_fits(experiment, with_several(from)));
    std::vector<int> tried;
    add(more_ranks(plan, judge, subject, tried));
    sort_by_cost(changes);
  }
  find_smallest_num_gpus(plan, judge, task, changes);
  if (task.largest) find_larger_micro_batch(plan.experiments[*task.largest], judge, changes);
  return changes;
}

}  // namespace dstune
