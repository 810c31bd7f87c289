#include "profile/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/file.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/model/parameter_table.hpp"
#include "moment.hpp"
#include "profile/profiler.hpp"

namespace dstune {
namespace {

using json::Value;

/// Of the time that the experiments will take, for measuring the machine: never more than
/// max_budget_s for a model of small_model parameters, and in proportion for larger ones.
constexpr double share_of_job = 0.05;
constexpr double min_budget_s = 0.5;
constexpr double max_budget_s = 5;
constexpr double small_model = 2e8;
constexpr double dry_run_budget_s = 1;
/// … and for a device that does not answer.
constexpr double dry_run_timeout_s = 120;
constexpr std::int64_t dry_run_bytes = std::int64_t{256} << 20;
/// Warm-up steps beside the least number: until they are steady.
constexpr double extra_warmup_steps = 3;
constexpr double min_timed_steps = 5;

/// The slowest machine that an experiment is waited for: a tenth of a slow core.
constexpr double min_flops_per_rank = 1e9;
constexpr double min_inactivity_timeout_s = 60;
/// … and its host, where all ranks at once have pages zeroed and pinned.
constexpr double min_host_bytes_per_s = 5e8;
/// Nobody here knows how long a plug-in's steps take; --trial-timeout says it.
constexpr double plugin_inactivity_timeout_s = 600;
/// Predictions are off by a tenth, machines that others use by a factor.
constexpr double inactivity_timeout_steps = 50;
constexpr double trial_timeout_factor = 20;
constexpr double min_trial_timeout_s = 300;
/// Where nothing is predicted, as of an experiment that is silent.
constexpr double default_drain_timeout_s = min_inactivity_timeout_s;
constexpr double drain_timeout_steps = 5;

std::vector<const Experiment*> planned_members(const Preparation& ready) {
  std::vector<const Experiment*> members;
  for (const PlannedMember& member : ready.space.members) {
    if (member.planned.status == PlanStatus::planned) members.push_back(&member.planned.experiment);
  }
  return members;
}

double budget_s(const Preparation& ready) {
  std::size_t ranks = 0;
  for (const auto& node : ready.training_ranks) ranks += node.size();
  double rank_seconds = 0;
  for (const Experiment* member : planned_members(ready))
    rank_seconds += member->shape.size() * ready.job.tuning.measure.trial_budget_s;
  const double job_s = rank_seconds / static_cast<double>(std::max<std::size_t>(1, ranks));
  const double size = static_cast<double>(parameter_count(ready.job.model)) / small_model;
  return std::clamp(share_of_job * job_s, min_budget_s, max_budget_s * std::max(1.0, size));
}

/// Whether an earlier job has left nothing to run.
bool is_all_known(const Preparation& ready) {
  for (std::size_t index = 0; index < ready.keys.size(); ++index) {
    if (ready.space.members[index].planned.status == PlanStatus::planned &&
        !ready.history.finished.contains(ready.keys[index]))
      return false;
  }
  return true;
}

/// Of everything that a profile depends on.
std::string key_of_profile(const Preparation& ready, const std::vector<ProfilingTask>& tasks) {
  Value orders = Value::array();
  for (ProfilingTask task : tasks) {
    task.budget_s = 0;
    orders.push_back(written(message::Profile{0, std::move(task), {}, 0}));
  }
  return record_key({{"model", to_json(ready.job.model)},
                     {"machine", ready.fingerprint},
                     {"measuring_version", measuring_version},
                     {"profile_version", DeviceProfile::current_version},
                     {"tasks", std::move(orders)}});
}

DeviceProfile remembered(const Preparation& ready) {
  const json::Document document = json::Document::of(ready.history.profile, "journal");
  return device_profile_from_json(document.node());
}

}  // namespace

bool is_predictable(const Preparation& ready) {
  return ready.job.workload.kind == WorkloadKind::transformer && ready.space.planned > 0;
}

JobPredictor::JobPredictor(const Preparation& ready, DeviceProfile profile)
    : measure_(ready.job.tuning.measure),
      workspaces_(*ready.kernels),
      predictor_(ready.job.model, std::move(profile), workspaces_) {}

bool JobPredictor::is_known(const Experiment& experiment) const {
  if (!uses_disk(experiment.config)) return true;
  const std::vector<TimeCurve>& kernels = profile().kernels;
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const TimeCurve& curve) { return curve.work.kind == WorkKind::disk_read; });
}

std::optional<double> JobPredictor::step_s(const Experiment& experiment) {
  if (!is_known(experiment)) return std::nullopt;
  return predictor_.predict(experiment).step_s;
}

std::optional<double> JobPredictor::throughput(const Experiment& experiment) {
  const auto step_s = this->step_s(experiment);
  if (!step_s) return std::nullopt;
  return static_cast<double>(global_batch(experiment.config, experiment.shape.size())) / *step_s;
}

std::optional<double> JobPredictor::experiment_s(const Experiment& experiment) {
  const auto step_s = this->step_s(experiment);
  if (!step_s) return std::nullopt;
  const double timed_s = std::max(measure_.trial_budget_s, min_timed_steps * *step_s);
  return (measure_.start_profile_step + extra_warmup_steps) * *step_s + timed_s;
}

void JobPredictor::observe(const Experiment& experiment, const Measurement& measurement) {
  if (!is_known(experiment)) return;
  const std::vector<double> times_s = timed_steps_s(measurement);
  if (measurement.status == Status::ok && !times_s.empty())
    predictor_.observe(experiment, mean_interval(times_s).mean);
}

MeasuredMachine measure_machine(const Preparation& ready, AttemptDriver& driver,
                                const std::function<bool()>& is_to_be_ended,
                                const std::optional<std::string>& profile_path,
                                double drain_timeout_s) {
  if (is_all_known(ready) && !profile_path) return {};
  const CpuWorkspaces workspaces(*ready.kernels);
  const auto members = planned_members(ready);
  const std::vector<ProfilingTask> tasks =
      plan_profiling(ready.job.model, members, workspaces, {.budget_s = budget_s(ready)});
  const std::string key = key_of_profile(ready, tasks);
  MeasuredMachine result;
  DeviceProfile profile;
  if (ready.history.profile_key == key) {
    profile = remembered(ready);
  } else {
    const SteadyClock::time_point began = SteadyClock::now();
    Profiler profiler(driver, ready.training_ranks,
                      {.drain_timeout_s = drain_timeout_s, .is_to_be_ended = is_to_be_ended});
    profile = profiler.run(tasks);
    result.non_arena_bytes = profiler.non_arena_bytes();
    result.gpu_non_arena_bytes = profiler.gpu_non_arena_bytes();
    if (profile.empty()) return result;
    profile.machine = ready.fingerprint;
    profile.model = ready.job.model.name;
    log::info("measured the machine in " + format_duration(seconds(SteadyClock::now() - began)));
    ready.journal->add(event::profile(key, to_json(profile)));
  }
  if (profile_path) write_file_atomically(*profile_path, to_json(profile).dump(1) + "\n");
  result.predictor = std::make_unique<JobPredictor>(ready, std::move(profile));
  return result;
}

std::unique_ptr<JobPredictor> measure_alone(const Preparation& ready, Device& device) {
  const CpuWorkspaces workspaces(device.kernels());
  std::vector<Experiment> alone;
  for (const Experiment* member : planned_members(ready)) {
    alone.push_back({.name = {}, .ds_config = {}, .shape = {1, 1}, .config = member->config});
  }
  std::vector<const Experiment*> members;
  for (const Experiment& member : alone) members.push_back(&member);
  const std::vector<ProfilingTask> tasks = plan_profiling(
      ready.job.model, members, workspaces,
      {.budget_s = dry_run_budget_s, .max_bytes = dry_run_bytes, .times_disks = false});
  if (tasks.empty()) return nullptr;
  SelfGroup group(0, device.queues());
  const Waiter waiter = Waiter().with_deadline(SteadyClock::now() + to_duration(dry_run_timeout_s));
  return std::make_unique<JobPredictor>(
      ready, profile_device(tasks.front(), ready.job.model, device, group, reference_seed, waiter));
}

double inactivity_timeout_s(const JobSpec& job, const std::optional<double>& trial_timeout_s,
                            const PlannedExperiment& planned,
                            const std::optional<double>& predicted_step_s) {
  const Experiment& experiment = planned.experiment;
  if (job.workload.kind == WorkloadKind::plugin) {
    return std::max(plugin_inactivity_timeout_s, trial_timeout_s.value_or(0));
  }
  if (job.workload.kind == WorkloadKind::synthetic) {
    return min_inactivity_timeout_s + 20 * job.workload.step_time_s;
  }
  const double inactivity_timeout_s =
      min_inactivity_timeout_s +
      static_cast<double>(planned.predicted.host_memory_bytes) / min_host_bytes_per_s;
  if (predicted_step_s) return inactivity_timeout_s + inactivity_timeout_steps * *predicted_step_s;
  const auto tokens = static_cast<double>(global_batch(experiment.config, experiment.shape.size()) *
                                          job.sequence_length);
  return inactivity_timeout_s + flops_per_token(job.model, job.sequence_length) * tokens /
                                    (min_flops_per_rank * experiment.shape.size());
}

double drain_timeout_s(const std::optional<double>& predicted_step_s) {
  return predicted_step_s ? min_drain_timeout_s + drain_timeout_steps * *predicted_step_s
                          : default_drain_timeout_s;
}

double default_trial_timeout_s(double predicted_s) {
  return min_trial_timeout_s + trial_timeout_factor * predicted_s;
}

Attempts::Limits TrialLimits::of(const PlannedExperiment& planned) const {
  const auto predicted_step_s =
      predictor_ != nullptr ? predictor_->step_s(planned.experiment) : std::nullopt;
  Attempts::Limits limits{.abort_grace_s = abort_grace_s_};
  limits.inactivity_timeout_s =
      inactivity_timeout_s(job_, trial_timeout_s_, planned, predicted_step_s);
  if (is_on_gpus_) limits.drain_timeout_s = drain_timeout_s(predicted_step_s);
  if (trial_timeout_s_) {
    limits.timeout_s = *trial_timeout_s_;
    limits.overdue = "took longer than --trial-timeout " + format_duration(limits.timeout_s);
  } else if (predictor_ != nullptr) {
    const auto predicted_s = predictor_->experiment_s(planned.experiment);
    if (predicted_s) limits.timeout_s = default_trial_timeout_s(*predicted_s);
    limits.overdue = "took longer than " + format_duration(limits.timeout_s) +
                     ", many times what was predicted; --trial-timeout allows more";
  }
  return limits;
}

}  // namespace dstune
