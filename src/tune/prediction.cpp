#include "prediction.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "calibration.hpp"
#include "calibrator.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/model/parameter_table.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

using json::Value;

/// Of the time that the experiments will take, for measuring the machine: never more than
/// most_budget_s for a model of small_model parameters, and in proportion for larger ones.
constexpr double share_of_job = 0.05;
constexpr double least_budget_s = 0.5;
constexpr double most_budget_s = 5;
constexpr double small_model = 2e8;
constexpr double dry_run_budget_s = 1;
/// … and for a device that does not answer.
constexpr double dry_run_patience_s = 120;
constexpr std::int64_t dry_run_bytes = std::int64_t{256} << 20;
/// Warm-up steps beside the least number: until they are steady.
constexpr double extra_warmup_steps = 3;
constexpr double fewest_timed_steps = 5;

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
  return std::clamp(share_of_job * job_s, least_budget_s, most_budget_s * std::max(1.0, size));
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
std::string calibration_key(const Preparation& ready, const std::vector<CalibrationTask>& tasks) {
  Value orders = Value::array();
  for (CalibrationTask task : tasks) {
    task.budget_s = 0;
    const Bytes bytes = encode(message::Calibrate{0, std::move(task), {}, 0});
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    orders.push_back(Value::from_cbor(begin, begin + bytes.size()));
  }
  return record_key({{"model", to_json(ready.job.model)},
                     {"machine", ready.fingerprint},
                     {"measuring_version", measuring_version},
                     {"profile_version", DeviceProfile::current_version},
                     {"tasks", std::move(orders)}});
}

DeviceProfile remembered(const Preparation& ready) {
  const json::Document document = json::Document::parse(ready.history.profile.dump(), "journal");
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
  const double timed_s = std::max(measure_.trial_budget_s, fewest_timed_steps * *step_s);
  return (measure_.start_profile_step + extra_warmup_steps) * *step_s + timed_s;
}

void JobPredictor::observe(const Experiment& experiment, const Measurement& measurement) {
  if (!is_known(experiment)) return;
  const std::vector<double> times_s = timed_steps_s(measurement);
  if (measurement.status == Status::ok && !times_s.empty())
    predictor_.observe(experiment, mean_interval(times_s).mean);
}

MeasuredMachine measure_machine(const Preparation& ready, Mailbox& mailbox,
                                const std::function<bool(int)>& is_dead,
                                const std::function<bool()>& is_to_be_ended,
                                const std::optional<std::string>& profile_path, double rest_s) {
  if (is_all_known(ready) && !profile_path) return {};
  const CpuWorkspaces workspaces(*ready.kernels);
  const auto members = planned_members(ready);
  const std::vector<CalibrationTask> tasks =
      plan_calibration(ready.job.model, members, workspaces, {.budget_s = budget_s(ready)});
  const std::string key = calibration_key(ready, tasks);
  MeasuredMachine result;
  DeviceProfile profile;
  if (ready.history.profile_key == key) {
    profile = remembered(ready);
  } else {
    const SteadyClock::time_point began = SteadyClock::now();
    Calibrator calibrator(mailbox, ready.training_ranks,
                          {.rest_s = rest_s, .is_dead = is_dead, .is_to_be_ended = is_to_be_ended});
    profile = calibrator.run(tasks);
    result.outside_bytes = calibrator.outside_bytes();
    result.gpu_outside_bytes = calibrator.gpu_outside_bytes();
    result.next_attempt = calibrator.next_attempt();
    result.is_everybody_back = calibrator.is_everybody_back();
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
  const std::vector<CalibrationTask> tasks = plan_calibration(
      ready.job.model, members, workspaces,
      {.budget_s = dry_run_budget_s, .most_bytes = dry_run_bytes, .times_disks = false});
  if (tasks.empty()) return nullptr;
  SelfGroup group(0, device.queues());
  const Waiter waiter =
      Waiter().with_deadline(SteadyClock::now() + to_duration(dry_run_patience_s));
  return std::make_unique<JobPredictor>(
      ready, calibrate(tasks.front(), ready.job.model, device, group, reference_seed, waiter));
}

}  // namespace dstune
