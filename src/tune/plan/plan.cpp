#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "control/controller.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/report/dry_run.hpp"
#include "dstune/tune/job.hpp"
#include "plan/plan_head.hpp"
#include "plan/plan_times.hpp"
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
  bool are_all_predicted = true;
  visit_members_to_run(ready.space, [&](const PlannedExperiment& member) {
    const int group_size = member.experiment.shape.size();
    ranks = std::max(ranks, group_size);
    const auto seconds = !ready.time.is_over() && has_plan(member)
                             ? predictor.experiment_s(member.experiment)
                             : std::nullopt;
    are_all_predicted = seconds.has_value();
    rank_seconds += group_size * seconds.value_or(0);
    return are_all_predicted;
  });
  return are_all_predicted ? std::optional(rank_seconds / ranks) : std::nullopt;
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

/// Warns of products that the device has no units for.
void warn_of_precision(const PlannedJob& ready) {
  if (!ready.job.cluster || !ready.job.cluster->device) return;
  const DeviceSpec& device = *ready.job.cluster->device;
  const auto peak = [&](Precision precision) {
    return device.peak_flops.at(static_cast<std::size_t>(precision));
  };
  if (peak(Precision::fp32) == 0 || peak(Precision::bf16) > 0) return;
  const bool is_bf16 =
      std::ranges::any_of(std::as_const(ready.space.members), [](const PlannedMember& member) {
        return member.planned.experiment.config.precision == Precision::bf16;
      });
  if (is_bf16) log::warning(fmt::format(log_text::slow_bf16, device.title));
}

/// The change that a configuration makes of a DeepSpeed config, as far as answers change any.
json::Value changed_config(const Experiment& experiment) {
  const TrainingConfig& config = experiment.config;
  json::Value changed = experiment.ds_config;
  json::Value& zero = changed["zero_optimization"];
  zero["stage"] = config.zero_stage;
  const auto offload = [&](const char* key, OffloadDevice device) -> json::Value* {
    if (device == OffloadDevice::none) {
      zero.erase(key);
      return nullptr;
    }
    if (!zero.contains(key) || !zero[key].is_object()) zero[key] = json::Value::object();
    zero[key]["device"] = to_text(device);
    return &zero[key];
  };
  if (json::Value* const states = offload("offload_optimizer", config.offload_optimizer)) {
    states->erase("ratio");
    if (config.offload_ratio < 1) (*states)["ratio"] = config.offload_ratio;
  }
  offload("offload_param", config.offload_param);
  return changed;
}

/// Tells whether a configuration that is no member can be trained: DeepSpeed takes it, the target
/// does, and its ranks are those of a machine whose memory is known for such groups.
bool can_be_trained(const PlannedJob& ready, const Experiment& experiment) {
  const JobSpec& job = ready.job;
  if (!target_refusal(job, experiment.config).empty()) return false;
  // Ranks of this host share its memory: what each has is known for the job's own groups.
  if (!job.cluster && std::ranges::find(job.shapes, experiment.shape) == job.shapes.end())
    return false;
  const json::Document document = json::Document::of(changed_config(experiment), "plan");
  json::Problems problems, unchecked;
  Settings settings(job.knobs());
  settings.apply(
      read_settings(job.knobs(), document.node(), problems, job.auto_values, &unchecked));
  return problems.all().empty() && violations_for(job, settings).empty();
}

/// Says why nobody knows whether members fit; empty where the plan judges them.
std::string why_no_verdict(const PlannedJob& ready) {
  if (!is_planned(ready.job)) return why_not_planned(ready.job);
  const bool is_own = ready.job.target.framework == TargetFramework::self;
  if (is_own && !ready.planner.forecasts.judges_memory_here)
    return "dstune.target is \"self\", and the memory of the built-in step is planned for this "
           "host, or for processors that --profile-out measured";
  return "";
}

/// Prints what would run to stdout, with times where something can tell them.
ExitCode show_plan(const PlannedJob& ready, const JobOptions& options, Device& device,
                   const RankDevice& rank) {
  DryRun plan{.experiments = {},
              .total = ready.space.total,
              .planned = ready.space.planned,
              .infeasible = ready.space.infeasible,
              .pruned = ready.space.pruned,
              .prune_counts = ready.space.prune_counts,
              .device_memory_bytes = ready.device_memory_bytes,
              .deepspeed = deepspeed_text(ready.job),
              .deepspeed_version = to_text(ready.job.deepspeed_version),
              .from_command = ready.job.from_command,
              .assumptions = ready.job.assumptions,
              .head = plan_head(ready, options, rank),
              .model_profile = profile_of_model(ready.job, ready.space),
              .sources = plan_sources(ready),
              .runs_here = !ready.job.cluster};
  for (const PlannedMember& member : std::as_const(ready.space.members))
    plan.experiments.push_back(member.planned);
  warn_of_precision(ready);
  plan.no_verdict = why_no_verdict(ready);
  plan.timeline = [&](const Experiment& experiment) {
    return ready.time.is_over() ? std::nullopt : memory_timeline_of(ready, experiment);
  };
  const auto predictor = predictor_of_plan(ready, device, rank.description, plan);
  if (predictor) predict_times(ready, *predictor, plan);
  SinglePlanner single(ready.job, *ready.workspaces, ready.planner);
  plan.what_if = [&](const Experiment& experiment) -> std::optional<Prediction> {
    if (!is_planned(ready.job) || ready.time.is_over() || !can_be_trained(ready, experiment))
      return std::nullopt;
    PlannedExperiment planned = single.plan(experiment);
    if (!has_plan(planned)) return std::nullopt;
    if (predictor) predictor->predict(planned.experiment, planned.predicted);
    return planned.predicted;
  };
  if (options.json_output) {
    output() << json::ascii_text(dry_run_json(plan)) << std::endl;
  } else {
    output() << printable_lines(
                    dry_run_text(plan, {output_width(), options.verbose, options.shows_all}))
             << std::flush;
  }
  if (ready.space.is_cut_short || ready.time.is_over()) {
    log::warning(log_text::plan_stopped_early);
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
    return show_plan(ready, options, *found.device, devices.front());
  });
}

}  // namespace dstune
