#include "profile/prediction.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/file.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/model/parameter_table.hpp"
#include "profile/profiler.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

using json::Value;

double budget_s(const PlannedJob& ready) {
  double rank_seconds = 0;
  visit_planned(ready, [&](const Experiment& member) {
    rank_seconds += member.shape.size() * ready.job.tuning.measure.trial_budget_s;
  });
  const double job_s = rank_seconds / std::max(1, num_ranks(ready.training_ranks));
  const double size = static_cast<double>(parameter_count(ready.job.model)) /
                      default_policy().profiling.small_model;
  return std::clamp(default_policy().profiling.share_of_job * job_s,
                    default_policy().profiling.min_budget_s,
                    default_policy().profiling.max_budget_s * std::max(1.0, size));
}

/// Tells whether an earlier job has left nothing to run.
bool is_all_known(const OpenJob& ready) {
  for (std::size_t index = 0; index < ready.keys.size(); ++index) {
    if (ready.space.status(index) == PlanStatus::planned &&
        !ready.history.finished.contains(ready.keys[index]))
      return false;
  }
  return true;
}

/// Returns a key of everything that a profile depends on.
std::string key_of_profile(const OpenJob& ready, const std::vector<ProfilingTask>& tasks) {
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

void multiply_once(const kernels::Table& table, kernels::DType type) {
  constexpr std::int64_t size = 64;
  const kernels::MatmulShape shape{.m = size, .n = size, .k = size, .type = type, .out_type = type};
  std::vector<float> a(size * size), b(size * size), c(size * size);
  std::vector<std::byte> workspace(table.matmul_workspace_bytes(shape));
  table.matmul(shape, a.data(), b.data(), nullptr, c.data(), workspace.data());
}

/// Pages of shared windows that a member of a group inside a node comes to touch: everybody's
/// staging memory.
std::int64_t staging_bytes(std::size_t group_size) {
  return group_size == 1
             ? 0
             : static_cast<std::int64_t>(group_size * GroupTable::Options{}.staging_bytes);
}

}  // namespace

std::int64_t gpu_bytes_beside_arena(Device& device) {
  const auto taken_bytes = device.taken_bytes();
  return taken_bytes ? *taken_bytes - device.arena().capacity_bytes() : 0;
}

BytesBefore bytes_before_experiments(const Communicator& world, Device& device) {
  for (const kernels::DType type : {kernels::DType::f32, kernels::DType::bf16, kernels::DType::f16})
    multiply_once(device.host_kernels(), type);
  std::array<std::int64_t, 2> numbers{process_resident_bytes(), gpu_bytes_beside_arena(device)};
  BytesBefore before;
  for (const Bytes& bytes : world.all_gather(std::as_bytes(std::span(numbers)))) {
    std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
    before.resident.push_back(numbers[0]);
    before.gpu.push_back(numbers[1]);
  }
  return before;
}

void NonArenaMemory::start_again(const std::map<int, std::int64_t>& non_arena_bytes) {
  for (const auto& [rank, bytes] : non_arena_bytes)
    resident_bytes_[static_cast<std::size_t>(rank)] = bytes;
  has_staged_ = has_staged_ || !non_arena_bytes.empty();
}

std::int64_t NonArenaMemory::bytes_at_start(const std::vector<int>& world_ranks) const {
  std::int64_t most = 0;
  for (const int rank : world_ranks)
    most = std::max(most, resident_bytes_[static_cast<std::size_t>(rank)]);
  return most + (has_staged_ ? 0 : staging_bytes(world_ranks.size()));
}

std::int64_t NonArenaMemory::bytes(const std::vector<int>& world_ranks) const {
  const auto found = growth_bytes_.find(world_ranks.size());
  return bytes_at_start(world_ranks) + (found == growth_bytes_.end() ? 0 : found->second);
}

void NonArenaMemory::observe(const std::vector<int>& world_ranks, std::int64_t bytes) {
  growth_bytes_[world_ranks.size()] = bytes - bytes_at_start(world_ranks);
}

void ProcessMemoryPredictor::start_again(const BytesAfter& bytes) {
  processes.start_again(bytes.resident);
  if (gpus) gpus->start_again(bytes.gpu);
}

void ProcessMemoryPredictor::predict(Record& record) {
  Prediction& predicted = record.predicted;
  const PeakMemory& measured = record.measurement.peak_memory;
  const std::vector<int>& ranks = record.measurement.world_ranks;
  if (predicted.peak_memory_bytes == 0) return;
  const auto predict = [&](NonArenaMemory& outside, std::int64_t planned_bytes,
                           std::int64_t measured_bytes, std::int64_t arena_bytes) {
    const std::int64_t bytes = outside.bytes(ranks) + planned_bytes;
    if (measured_bytes > 0) outside.observe(ranks, measured_bytes - arena_bytes);
    return bytes;
  };
  const bool is_on_host = !devices_have_own_memory;
  predicted.process_memory_bytes =
      predict(processes, is_on_host ? predicted.peak_memory_bytes : predicted.host_memory_bytes,
              measured.process_bytes, is_on_host ? measured.total_bytes : measured.host_bytes);
  if (gpus)
    predicted.gpu_memory_bytes =
        predict(*gpus, predicted.peak_memory_bytes - predicted.host_memory_bytes,
                measured.gpu_bytes, measured.total_bytes - measured.host_bytes);
}

std::optional<std::int64_t> free_gpu_memory(const std::vector<RankDevice>& devices,
                                            const std::vector<std::int64_t>& before_bytes,
                                            const std::map<int, std::int64_t>& after_bytes) {
  std::optional<std::int64_t> free_memory_bytes;
  for (const auto& [rank, after] : after_bytes) {
    const auto index = static_cast<std::size_t>(rank);
    const RankDevice& device = devices[index];
    const auto has_same_gpu = [&](const RankDevice& other) { return other.gpu == device.gpu; };
    if (before_bytes[index] == 0 || std::ranges::count_if(devices, has_same_gpu) > 1)
      return std::nullopt;
    const std::int64_t left_bytes = device.free_bytes - (after - before_bytes[index]);
    free_memory_bytes = std::min(free_memory_bytes.value_or(left_bytes), left_bytes);
  }
  return free_memory_bytes;
}

std::vector<std::size_t> drop_what_does_not_fit(PlannedSpace& space, std::int64_t free_memory_bytes,
                                                const std::function<bool(std::size_t)>& has_run) {
  std::vector<std::size_t> dropped;
  auto member = std::as_const(space.members).begin();
  for (std::size_t index = 0; index < space.members.size(); ++index, ++member) {
    if (space.status(index) != PlanStatus::planned) continue;
    const PlannedExperiment& planned = member->planned;
    const std::int64_t needed_bytes =
        planned.predicted.peak_memory_bytes - planned.predicted.host_memory_bytes;
    if (needed_bytes <= free_memory_bytes || has_run(index)) continue;
    space.decide(index, PlanStatus::infeasible, planned.prune_kind,
                 fmt::format("needs {}, but libraries and communicators leave {} of the device",
                             format_bytes(needed_bytes), format_bytes(free_memory_bytes)));
    --space.planned;
    ++space.infeasible;
    dropped.push_back(index);
  }
  return dropped;
}

void visit_planned(const PlannedJob& ready, const std::function<void(const Experiment&)>& visitor) {
  visit_members_to_run(ready.space, [&](const PlannedExperiment& member) {
    if (has_plan(member)) visitor(member.experiment);
    return true;
  });
}

bool is_predictable(const PlannedJob& ready) {
  return ready.job.has_own_step() && ready.space.planned > 0;
}

namespace {

/// The training whose times published rates tell: where nothing was measured.
std::optional<TargetSpec> target_by_rates(const PlannedJob& ready,
                                          const std::optional<DeviceProfile>& profile) {
  if (!ready.job.cluster || !profile || !profile->kernels.empty()) return std::nullopt;
  return ready.job.target;
}

}  // namespace

JobPredictor::JobPredictor(const PlannedJob& ready, const std::optional<DeviceProfile>& profile)
    : measure_(ready.job.tuning.measure),
      workspaces_(ready.workspaces),
      predictor_(ready.job.model, profile, *workspaces_, default_policy().predicting,
                 target_by_rates(ready, profile)) {}

bool JobPredictor::is_known(const Experiment& experiment) const {
  const std::optional<DeviceProfile>& profile = predictor_.profile();
  if (!profile || !uses_disk(experiment.config)) return profile.has_value();
  const std::vector<TimeCurve>& kernels = profile->kernels;
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const TimeCurve& curve) { return curve.work.kind == WorkKind::disk_read; });
}

std::optional<double> JobPredictor::step_s(const Experiment& experiment) {
  if (!is_known(experiment)) return std::nullopt;
  return predictor_.predict(experiment);
}

std::optional<double> JobPredictor::experiment_s(const Experiment& experiment) {
  const auto step_s = this->step_s(experiment);
  if (!step_s) return std::nullopt;
  const double timed_s =
      std::max(measure_.slice_s(),
               static_cast<double>(default_policy().measuring.min_timed_steps) * *step_s);
  const int asked_for = measure_.asks_for_warmup ? measure_.start_profile_step : 0;
  return (asked_for + default_policy().timeouts.extra_warmup_steps) * *step_s + timed_s;
}

void JobPredictor::predict(const Experiment& experiment, Prediction& predicted) {
  predicted.throughput = predicted.target_throughput = std::nullopt;
  predicted.throughput_low = predicted.throughput_high = std::nullopt;
  const auto samples = static_cast<double>(batch_of(experiment));
  if (const auto target = predictor_.target_time(experiment)) {
    predicted.target_throughput = samples / target->seconds;
    predicted.throughput_low = samples / target->high_s;
    predicted.throughput_high = samples / target->low_s;
    return;
  }
  const auto step_s = this->step_s(experiment);
  if (!step_s) return;
  const TrainingConfig& config = experiment.config;
  predicted.throughput = samples / *step_s;
  if (calibration_)
    predicted.target_throughput =
        samples / calibration_->target_s(*step_s, config.precision, overheads(experiment));
  if (!band_) return;
  predicted.throughput_low = *ranked_throughput(predicted) * band_->first;
  predicted.throughput_high = *ranked_throughput(predicted) * band_->second;
}

Overheads JobPredictor::overheads(const Experiment& experiment) {
  const Overheads counts = predictor_.overheads(experiment);
  return linked_ ? with_link(counts, predictor_.traffic(experiment), *linked_,
                             experiment.config.precision)
                 : counts;
}

void JobPredictor::observe(const Experiment& experiment, const Measurement& measurement) {
  if (!is_known(experiment)) return;
  const std::vector<double> times_s = timed_steps_s(measurement);
  if (measurement.status == Status::ok && !times_s.empty())
    predictor_.observe(experiment, mean_interval(times_s).mean);
}

namespace {

/// "NVIDIA H100 80GB HBM3" of "cuda (NVIDIA H100 80GB HBM3, …)". A name may have brackets.
std::string device_name(const std::string& description) {
  const std::size_t begin = description.find('(');
  if (begin == description.npos) return description;
  const std::size_t end = std::min(description.find(',', begin), description.rfind(')'));
  return description.substr(begin + 1, end - begin - 1);
}

/// The machine that was measured, so that a plan elsewhere knows it.
Cluster cluster_of(const OpenJob& ready) {
  Cluster cluster;
  const std::string description = ready.fingerprint.at("devices").front().get<std::string>();
  cluster.device = DeviceSpec{.name = device_name(description),
                              .title = description,
                              .memory_bytes = ready.device_memory_bytes};
  std::size_t most = 1;
  for (const auto& ranks : ready.training_ranks) most = std::max(most, ranks.size());
  cluster.gpus_per_node = static_cast<int>(most);
  cluster.num_nodes = static_cast<int>(ready.training_ranks.size());
  cluster.host_memory_bytes = ready.host_memory_bytes.value_or(0) * static_cast<std::int64_t>(most);
  return cluster;
}

}  // namespace

namespace {

/// The members that profiling looks at: so many of a shape, evenly over the space.
std::vector<Experiment> profiled_members(const PlannedJob& ready) {
  const std::size_t most = default_policy().profiling.max_members;
  std::map<GroupShape, std::size_t> sizes;
  visit_planned(ready, [&](const Experiment& member) { ++sizes[member.shape]; });
  std::map<GroupShape, std::set<std::size_t>> chosen;
  for (const auto& [shape, size] : sizes)
    for (std::size_t index = 0; index < std::min(size, most); ++index)
      chosen[shape].insert(index * size / std::min(size, most));
  std::vector<Experiment> members;
  std::map<GroupShape, std::size_t> places;
  visit_planned(ready, [&](const Experiment& member) {
    if (chosen[member.shape].contains(places[member.shape]++)) members.push_back(member);
  });
  return members;
}

}  // namespace

MeasuredMachine measure_machine(const OpenJob& ready, AttemptDriver& driver,
                                const std::function<bool()>& is_to_be_ended,
                                const std::optional<std::string>& profile_path,
                                double drain_timeout_s) {
  if (is_all_known(ready) && !profile_path) return {};
  const WorkspaceSizes& workspaces = *ready.workspaces;
  const std::vector<Experiment> looked_at = profiled_members(ready);
  std::vector<const Experiment*> members;
  for (const Experiment& member : looked_at) members.push_back(&member);
  const std::vector<ProfilingTask> tasks =
      plan_profiling(ready.job.model, members, workspaces, {.budget_s = budget_s(ready)});
  const std::string key = key_of_profile(ready, tasks);
  MeasuredMachine result;
  DeviceProfile profile;
  if (ready.history.profile_key == key) {
    const json::Document document = json::Document::of(ready.history.profile, "journal");
    profile = device_profile_from_json(document.node());
  } else {
    Profiler profiler(driver, ready.training_ranks,
                      {.drain_timeout_s = drain_timeout_s, .is_to_be_ended = is_to_be_ended});
    profile = profiler.run(tasks);
    result.bytes_after = profiler.bytes_after();
    if (profile.empty()) return result;
    profile.machine = ready.fingerprint;
    profile.model = ready.job.model.name;
    ready.journal->add(event::profile(key, to_json(profile)));
  }
  if (ready.target && ready.target->num_engines > 0) profile.target = ready.target;
  if (profile_path) {
    profile.cluster = cluster_of(ready);
    write_file_atomically(*profile_path, to_json(profile).dump(1) + "\n");
    profile.cluster.reset();
  }
  result.predictor = std::make_unique<JobPredictor>(ready, std::move(profile));
  return result;
}

double price_link(TimeCalibration& time, const DeviceProfile& profile, JobPredictor& predictor) {
  // On GPUs bytes are NCCL's, as in the step here.
  if (time.is_device_behind_host) return 0;
  const double byte_s = link_byte_s(profile);
  if (byte_s <= 0) return 0;
  of(time.costs_s, Overhead::link_byte) = byte_s;
  predictor.count_link(time);
  return byte_s;
}

void price_link(OpenJob& ready, JobPredictor& predictor) {
  if (!ready.target) return;
  std::optional<DeviceProfile> profile = predictor.profile();
  // Nothing is measured again where all is known, and values are as they were.
  if (!profile && !ready.history.profile_key.empty()) {
    const json::Document document = json::Document::of(ready.history.profile, "journal");
    profile = device_profile_from_json(document.node());
  }
  const double byte_s = profile ? price_link(ready.target->time, *profile, predictor) : 0;
  if (byte_s > 0) log::info(fmt::format(log_text::link_measured, 1e-6 / byte_s));
}

void predict_engine_members(PlannedJob& ready, Device& device) {
  const auto predictor = measure_alone(ready, device).predictor;
  if (!predictor) return;
  predictor->calibrate(target_constants(device.is_asynchronous()).time);
  for (PlannedMember& member : ready.space.members) {
    PlannedExperiment& planned = member.planned;
    if (planned.status != PlanStatus::planned || !has_plan(planned) || ready.time.is_over())
      continue;
    predictor->predict(planned.experiment, planned.predicted);
    // The engine measures the target's own time.
    planned.predicted.throughput = std::exchange(planned.predicted.target_throughput, {});
  }
}

Attempts::Limits TrialLimits::of(const PlannedExperiment& planned) const {
  const auto predicted_step_s =
      predictor != nullptr ? predictor->step_s(planned.experiment) : std::nullopt;
  const RunLimits of_run =
      instrument.limits({job, planned, trial_timeout_s, predicted_step_s, is_on_gpus});
  Attempts::Limits limits{.inactivity_timeout_s = of_run.inactivity_timeout_s,
                          .abort_grace_s = abort_grace_s,
                          .drain_timeout_s = of_run.drain_timeout_s};
  if (trial_timeout_s) {
    limits.timeout_s = *trial_timeout_s;
    limits.overdue = "took longer than --trial-timeout " + format_duration(limits.timeout_s);
  } else if (predictor != nullptr) {
    const auto predicted_s = predictor->experiment_s(planned.experiment);
    if (predicted_s)
      limits.timeout_s = default_policy().timeouts.min_trial_timeout_s +
                         default_policy().timeouts.trial_timeout_factor * *predicted_s;
    limits.overdue = "took longer than " + format_duration(limits.timeout_s) +
                     ", many times what was predicted; --trial-timeout allows more";
  }
  return limits;
}

}  // namespace dstune
