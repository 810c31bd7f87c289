#include <algorithm>
#include <cstdlib>
#include <optional>

#include <sys/ioctl.h>
#include <unistd.h>

#include "control/controller.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/report/dry_run.hpp"
#include "dstune/tune/job.hpp"
#include "profile/prediction.hpp"
#include "start/planned_job.hpp"
#include "start/rank_devices.hpp"

namespace dstune {
namespace {

/// Returns the job's duration in seconds where every planned member was predicted. All of them run
/// on the job's ranks, or on as many as the largest group needs.
std::optional<double> expected_duration_s(const PlannedJob& ready, JobPredictor& predictor) {
  double rank_seconds = 0;
  int ranks = num_ranks(ready.training_ranks);
  for (const PlannedExperiment* member : members_to_run(ready.space)) {
    if (ready.time.is_over()) return std::nullopt;
    const int group_size = member->experiment.shape.size();
    ranks = std::max(ranks, group_size);
    if (!has_plan(*member)) return std::nullopt;
    const auto seconds = predictor.experiment_s(member->experiment);
    if (!seconds) return std::nullopt;
    rank_seconds += group_size * *seconds;
  }
  return rank_seconds / ranks;
}

/// Predicts as many as there is time for.
void predict_times(const PlannedJob& ready, JobPredictor& predictor, DryRun& plan) {
  std::uint64_t num_predicted = 0;
  for (PlannedExperiment& planned : plan.experiments) {
    if (planned.status != PlanStatus::planned || ready.time.is_over()) continue;
    if (has_plan(planned)) predictor.predict(planned.experiment, planned.predicted);
    ++num_predicted;
  }
  if (num_predicted == plan.planned) plan.expected_s = expected_duration_s(ready, predictor);
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

/// Prints what would run to stdout, with times where the device can tell them.
ExitCode show_plan(const PlannedJob& ready, const JobOptions& options, Device& device) {
  DryRun plan{.experiments = {},
              .total = ready.space.total,
              .planned = ready.space.planned,
              .infeasible = ready.space.infeasible,
              .pruned = ready.space.pruned,
              .device_memory_bytes = ready.device_memory_bytes,
              .deepspeed = deepspeed_text(ready.job),
              .deepspeed_version = to_text(ready.job.deepspeed_version),
              .from_command = ready.job.from_command,
              .assumptions = ready.job.assumptions};
  for (const PlannedMember& member : ready.space.members)
    plan.experiments.push_back(member.planned);
  plan.timeline = [&](const Experiment& experiment) {
    return ready.time.is_over() ? std::nullopt : memory_timeline_of(ready, experiment);
  };
  const bool has_times =
      is_predictable(ready) || (ready.job.is_by_engine() && is_planned(ready.job));
  // Nothing of this machine stands in for another.
  if (has_times && !ready.job.cluster && !ready.time.is_over()) {
    if (const auto predictor = measure_alone(ready, device)) {
      if (ready.target) predictor->calibrate(ready.target->time);
      predict_times(ready, *predictor, plan);
    }
  }
  if (options.json_output) {
    output() << json::ascii_text(dry_run_json(plan)) << std::endl;
  } else {
    output() << printable_lines(
                    dry_run_text(plan, {output_width(), options.verbose, options.shows_all}))
             << std::flush;
  }
  if (ready.space.is_cut_short || ready.time.is_over()) {
    log::warning("stopped early: the time limit; what was planned until then is shown");
    return ExitCode::stopped_early;
  }
  return plan.planned > 0 ? ExitCode::ok : ExitCode::nothing_feasible;
}

}  // namespace

ExitCode plan_job(const JobOptions& options) {
  return guarded([&] {
    const Topology topology = launched_topology();
    const FoundDevice found = find_device_of_plan(topology, options);
    const std::vector<RankDevice> devices(static_cast<std::size_t>(topology.world_size),
                                          describe(topology, found));
    if (options.verbose) log_ranks(topology, devices);
    const PlannedJob ready = plan_of_job(options, topology, devices, found.device->kernels());
    return show_plan(ready, options, *found.device);
  });
}

}  // namespace dstune
