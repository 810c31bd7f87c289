#include "dstune/search/planner.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <unordered_map>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/plan/target_memory.hpp"
#include "memory_predictor.hpp"

namespace dstune {

namespace {

constexpr std::uint64_t most_looked_at = 300'000;

/// The largest first.
std::string parts_text(const std::map<std::string, std::int64_t>& parts) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) sorted.emplace_back(bytes, name);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [bytes, name] : sorted) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(bytes));
  }
  return text;
}

void count(PlannedSpace& planned, PlanStatus status) {
  if (status == PlanStatus::planned) ++planned.planned;
  if (status == PlanStatus::infeasible) ++planned.infeasible;
  if (status == PlanStatus::pruned) ++planned.pruned;
}

/// Draws an order from the seed. The sizes of a micro-batch chain stay in theirs, on the places
/// that the chain drew.
void shuffle(std::vector<PlannedMember>& members, std::int64_t seed) {
  std::vector<std::size_t> order(members.size());
  for (std::size_t index = 0; index < order.size(); ++index) order[index] = index;
  // Fisher and Yates by hand: std::shuffle's order differs between standard libraries.
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random() % left]);
  }
  std::map<int, std::vector<std::size_t>> places_of_chain;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const int chain = members[order[place]].micro_batch_chain;
    if (chain >= 0) places_of_chain[chain].push_back(place);
  }
  for (const auto& [chain, places] : places_of_chain) {
    std::vector<std::size_t> sorted;
    for (const auto place : places) sorted.push_back(order[place]);
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t index = 0; index < places.size(); ++index)
      order[places[index]] = sorted[index];
  }
  std::vector<PlannedMember> shuffled;
  shuffled.reserve(members.size());
  for (const auto index : order) shuffled.push_back(std::move(members[index]));
  members = std::move(shuffled);
}

/// Prunes what lies past the cap and counts. Returns how many trials are left.
std::uint64_t apply_cap(const std::optional<int>& num_trials, PlannedSpace& planned) {
  std::uint64_t left = num_trials ? static_cast<std::uint64_t>(*num_trials) : UINT64_MAX;
  for (auto& [member, chain] : planned.members) {
    if (member.status == PlanStatus::planned && left == 0) {
      member.status = PlanStatus::pruned;
      member.reason = fmt::format("past the cap of {} trials", *num_trials);
    }
    if (member.status == PlanStatus::planned) --left;
    count(planned, member.status);
  }
  return left;
}

/// Counts the members that are not listed.
void count_rest(const SearchSpace& space, std::uint64_t num_listed, std::uint64_t trials_left,
                PlannedSpace& planned) {
  std::uint64_t number = 0;
  std::uint64_t num_pruned = 0;
  if (trials_left > 0) {
    space.visit(std::min(space.size(), most_looked_at), [&](const Member& member) {
      if (number++ >= num_listed && member.is_pruned) ++num_pruned;
      return true;
    });
  }
  const std::uint64_t rest = space.size() - num_listed;
  const std::uint64_t kept = std::min(rest - num_pruned, trials_left);
  planned.planned += kept;
  planned.pruned += rest - kept;
}

}  // namespace

void decide_feasibility(const JobSpec& job, std::int64_t device_memory_bytes,
                        MemoryPredictor& predictor, PlannedExperiment& planned) {
  planned.predicted = predictor.predict(planned.experiment);
  if (job.workload.kind != WorkloadKind::transformer) return;
  const auto& predicted = planned.predicted;
  const auto infeasible = [&](const std::string& reason) {
    planned.status = PlanStatus::infeasible;
    planned.reason += (planned.reason.empty() ? "" : "; ") + reason;
  };
  if (predicted.peak_memory_bytes > device_memory_bytes) {
    infeasible(fmt::format("needs {} of {} on the device ({})",
                           format_bytes(predicted.peak_memory_bytes),
                           format_bytes(device_memory_bytes), parts_text(predicted.categories)));
  }
  if (predicted.target_memory_bytes > device_memory_bytes) {
    const auto target = target_memory(job.model, planned.experiment.config,
                                      planned.experiment.shape.size(), job.target);
    infeasible(fmt::format("needs {} of {} in the training that it is for ({})",
                           format_bytes(target.total_bytes), format_bytes(device_memory_bytes),
                           parts_text(target.parts)));
  }
}

PlannedSpace plan_space(const JobSpec& job, const SearchSpace& space,
                        const WorkspaceSizes& workspaces, const PlannerOptions& options) {
  PlannedSpace planned;
  planned.total = space.size();
  const auto listed = planned.total > options.most_members ? options.listed : planned.total;
  MemoryPredictor predictor(job, workspaces);
  space.visit(listed, [&](Member&& member) {
    PlannedMember next;
    next.micro_batch_chain = member.micro_batch_chain;
    next.planned.experiment = std::move(member.experiment);
    if (member.is_pruned) {
      next.planned.status = PlanStatus::pruned;
      next.planned.reason = std::move(member.reason);
    } else {
      decide_feasibility(job, options.device_memory_bytes, predictor, next.planned);
    }
    planned.members.push_back(std::move(next));
    return true;
  });
  if (job.tuning.tuner_type == "random") shuffle(planned.members, job.tuning.seed);
  const auto trials_left = apply_cap(job.tuning.num_trials, planned);
  if (listed < planned.total) {
    count_rest(space, listed, trials_left, planned);
    planned.warnings.push_back(
        fmt::format("the space has {} members: only the first {} are planned and can run; shorten "
                    "its lists to reach the others",
                    planned.total, listed));
  }
  return planned;
}

Prediction predict_memory(const JobSpec& job, const Experiment& experiment,
                          const WorkspaceSizes& workspaces) {
  return MemoryPredictor(job, workspaces).predict(experiment);
}

}  // namespace dstune
