#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>

#include <sys/ioctl.h>
#include <unistd.h>

#include "dstune/report/dry_run.hpp"
#include "profile/prediction.hpp"
#include "start/preparation.hpp"

namespace dstune {
namespace {

/// Where every planned member was predicted: all of them on the job's ranks, or on as many as the
/// largest group needs.
std::optional<double> expected_duration_s(const Preparation& ready, JobPredictor& predictor) {
  double rank_seconds = 0;
  int ranks = 0;
  for (const auto& node : ready.training_ranks) ranks += static_cast<int>(node.size());
  for (const PlannedMember& member : ready.space.members) {
    if (member.planned.status != PlanStatus::planned) continue;
    const Experiment& experiment = member.planned.experiment;
    ranks = std::max(ranks, experiment.shape.size());
    const auto seconds = predictor.experiment_s(experiment);
    if (!seconds) return std::nullopt;
    rank_seconds += experiment.shape.size() * *seconds;
  }
  return rank_seconds / ranks;
}

void predict_times(const Preparation& ready, JobPredictor& predictor, DryRun& plan) {
  std::uint64_t num_predicted = 0;
  for (PlannedExperiment& planned : plan.experiments) {
    if (planned.status != PlanStatus::planned) continue;
    planned.predicted.throughput = predictor.throughput(planned.experiment);
    ++num_predicted;
  }
  if (num_predicted == plan.planned) plan.expected_s = expected_duration_s(ready, predictor);
}

DryRun dry_run_of(const PlannedSpace& space, std::int64_t device_memory_bytes) {
  DryRun plan{.experiments = {},
              .total = space.total,
              .planned = space.planned,
              .infeasible = space.infeasible,
              .pruned = space.pruned,
              .device_memory_bytes = device_memory_bytes};
  for (const PlannedMember& member : space.members) plan.experiments.push_back(member.planned);
  return plan;
}

/// Characters of a line of stdout, 0 where it is none that wraps. mpirun gives its ranks terminals
/// without a size: the user's may be told in COLUMNS.
std::size_t output_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  return columns != nullptr ? std::strtoul(columns, nullptr, 10) : 0;
}

}  // namespace

ExitCode show_plan(const Preparation& ready, const JobOptions& options, Device& device) {
  DryRun plan = dry_run_of(ready.space, ready.device_memory_bytes);
  plan.timeline = [&](const Experiment& experiment) {
    return memory_timeline_of(ready, experiment);
  };
  if (is_predictable(ready)) {
    if (const auto predictor = measure_alone(ready, device)) predict_times(ready, *predictor, plan);
  }
  if (options.json_output) {
    std::cout << dry_run_json(plan).dump() << std::endl;
  } else {
    std::cout << dry_run_text(plan, {output_width(), options.verbose}) << std::flush;
  }
  return plan.planned > 0 ? ExitCode::ok : ExitCode::nothing_feasible;
}

}  // namespace dstune
