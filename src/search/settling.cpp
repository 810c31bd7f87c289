#include "settling.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dstune {

namespace {

/// A ZeRO stage on groups of one shape: DeepSpeed's autotuner looks for sizes of each.
using StageOfShape = std::pair<GroupShape, int>;
StageOfShape stage_of(const PlannedMember& member) {
  const Experiment& experiment = member.planned.experiment;
  return {experiment.shape, experiment.config.zero_stage};
}

/// Returns the largest planned size of the baseline's configuration that is at most `size`; if
/// there is none, the smallest.
std::size_t member_with_size(const PlannedSpace& planned, std::int64_t size) {
  const std::size_t smallest = *planned.baseline;
  std::size_t chosen = smallest;
  for (std::size_t member = 0; member < planned.members.size(); ++member)
    if (planned.status(member) == PlanStatus::planned &&
        planned.micro_batch_chain(member) == planned.micro_batch_chain(smallest) &&
        planned.micro_batch(member) <= size &&
        planned.micro_batch(member) > planned.micro_batch(chosen))
      chosen = member;
  return chosen;
}

/// The baseline is run whatever the cap is: the last one before the cap makes room for it.
void keep_within_cap(PlannedSpace& planned, std::size_t baseline) {
  if (planned.status(baseline) == PlanStatus::planned) return;
  std::size_t last = planned.members.size();
  while (last > 0 && planned.status(last - 1) != PlanStatus::planned) --last;
  if (last == 0) return;
  PlannedExperiment& kept = planned.members[baseline].planned;
  PlannedExperiment& given_up = planned.members[last - 1].planned;
  std::swap(kept.status, given_up.status);
  std::swap(kept.reason, given_up.reason);
  std::swap(kept.prune_kind, given_up.prune_kind);
}

}  // namespace

void count(PlannedSpace& planned, const PlannedExperiment& member) {
  if (member.status == PlanStatus::planned) ++planned.planned;
  if (member.status == PlanStatus::infeasible) ++planned.infeasible;
  if (member.status == PlanStatus::pruned) count_pruned(planned, member.prune_kind);
}

void count_pruned(PlannedSpace& planned, PruneKind kind, std::uint64_t number) {
  planned.pruned += number;
  planned.prune_counts[kind] += number;
}

bool is_of_today(const JobSpec& job, const Experiment& experiment, bool is_searched) {
  const TrainingConfig& config = experiment.config;
  if (!job.todays_batch) return false;
  const TodaysBatch& today = *job.todays_batch;
  const bool has_size = is_searched || config.micro_batch == today.micro_batch;
  // Accumulation follows from the others where the global batch is written, or kept.
  const auto total = job.ds_config.find("train_batch_size");
  const bool has_steps = config.accumulation_steps == today.accumulation_steps ||
                         (total != job.ds_config.end() && total->is_number());
  return has_size && has_steps &&
         config.precision == job.command.precision.value_or(config.precision) &&
         (!job.command.recompute ||
          (config.recompute == Recompute::none) == !*job.command.recompute);
}

void settle_smaller_sizes(const JobSpec& job, PlannedSpace& planned) {
  if (planned.only_runs_tell) return;
  std::map<StageOfShape, bool> fits;
  for (const PlannedMember& member : std::as_const(planned.members))
    if (member.planned.status != PlanStatus::pruned)
      fits[stage_of(member)] |=
          !member.is_below_lowest && member.planned.status == PlanStatus::planned;
  std::set<int> stages;
  for (PlannedMember& member : planned.members) {
    if (!member.is_below_lowest || member.planned.status == PlanStatus::pruned) continue;
    if (fits[stage_of(member)]) {
      --(member.planned.status == PlanStatus::planned ? planned.planned : planned.infeasible);
      count_pruned(planned, PruneKind::smaller_size);
      member.planned.status = PlanStatus::pruned;
      member.planned.prune_kind = PruneKind::smaller_size;
      member.planned.reason =
          fmt::format("the config asks for a micro-batch of {} or more, of which one fits",
                      *lowest_micro_batch(job));
    } else {
      if (member.planned.status == PlanStatus::planned)
        stages.insert(member.planned.experiment.config.zero_stage);
      member.is_below_lowest = false;
    }
  }
  if (!stages.empty())
    planned.warnings.push_back(fmt::format(
        "/train_micro_batch_size_per_gpu: no size from {} on fits at stage {}: smaller ones are "
        "tried there, as DeepSpeed's autotuner does",
        *lowest_micro_batch(job), fmt::join(stages, ", ")));
}

void settle_baseline(const JobSpec& job, std::vector<PossibleBaseline> possible,
                     PlannedSpace& planned) {
  // The config's own micro-batch comes before those that may take its place.
  std::erase_if(possible,
                [&](const PossibleBaseline& one) { return planned.is_below_lowest(one.member); });
  if (possible.empty()) return;
  const PossibleBaseline first = std::ranges::min(possible);
  planned.baseline = first.member;
  const std::uint64_t number = first.is_other_than_today ? first.number : 0;
  const bool has_lowest = lowest_micro_batch(job).has_value();
  if (planned.micro_batch_chain(*planned.baseline) && !has_lowest) {
    // The smallest stays: it runs soon, and nowhere near the edge of memory.
    if (job.todays_batch)
      planned.baseline = member_with_size(planned, job.todays_batch->micro_batch);
    planned.baseline_grows = planned.is_unplanned && !job.todays_batch;
  }
  keep_within_cap(planned, *planned.baseline);
  if (job.todays_batch && first.is_other_than_today)
    planned.warnings.push_back(
        fmt::format("no member that can run does what the training command trains today: the "
                    "baseline is {}",
                    planned.experiment(*planned.baseline).name));
  else if (number > 0)
    planned.warnings.push_back(
        fmt::format("the member with the first candidate of every list can not run: the baseline "
                    "is the next one that can, {}",
                    planned.experiment(*planned.baseline).name));
}

bool needs_smaller_sizes(const JobSpec& job, const PlannedSpace& space) {
  const auto lowest = lowest_micro_batch(job);
  if (!lowest || *lowest <= job.tuning.min_train_micro_batch_size_per_gpu ||
      job.has_smaller_sizes || space.is_cut_short)
    return false;
  if (space.only_runs_tell) return true;
  std::map<StageOfShape, std::pair<bool, bool>> found;  // something fits; something does not
  for (const PlannedMember& member : space.members) {
    auto& [fits, does_not] = found[stage_of(member)];
    fits = fits || member.planned.status == PlanStatus::planned;
    does_not = does_not || member.planned.status == PlanStatus::infeasible;
  }
  return std::ranges::any_of(
      found, [](const auto& stage) { return !stage.second.first && stage.second.second; });
}

}  // namespace dstune
