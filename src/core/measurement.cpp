/// A measurement's value in each metric, and the members of values that journals keep and ranks
/// exchange.

#include "dstune/core/measurement.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "dstune/base/archive.hpp"
#include "dstune/base/error.hpp"
#include "dstune/core/interval.hpp"

namespace dstune {

namespace {

using json::amount;
using json::Nothing;
using json::Of;

constexpr double us_per_s = 1e6;
constexpr json::Form where_positive{.low = 0, .nothing = Nothing::omitted};
constexpr json::Form not_earlier{.low = 0, .may_be_missing = true};

/// Whatever a clock said or a failure left half done, the journal must be readable: an amount that
/// is negative or no number is 0.
Measurement readable(Measurement measurement) {
  const auto hint = [](double& number) {
    if (!std::isfinite(number) || number < 0) number = 0;
  };
  for (double& seconds : measurement.step_times_s) hint(seconds);
  for (auto& [phase, seconds] : measurement.overhead_s) hint(seconds);
  hint(measurement.forward_s);
  hint(measurement.backward_s);
  hint(measurement.update_s);
  hint(measurement.flops_per_step);
  measurement.warmup_steps =
      std::clamp(measurement.warmup_steps, 0, static_cast<int>(measurement.step_times_s.size()));
  return measurement;
}

/// The members that records and repeats have in common.
template <class Archive, class Run>
void members_of_run(Archive& archive, Run& run) {
  if constexpr (Archive::is_reading)
    archive("measurement", run.measurement, {.missing = "\"measurement\" is missing"});
  else
    archive("measurement", readable(run.measurement));
  archive("started_at", run.started_at);
  archive("finished_at", run.finished_at);
  archive("alone", run.is_alone);
}

/// The default of a configuration's member that earlier releases do not write.
template <class Member>
Member usual_of(std::string_view wanted) {
  const TrainingConfig unset;
  Member usual{};
  for_each_later_member(unset, [&](std::string_view name, const auto& member) {
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, Member>)
      if (name == wanted) usual = member;
  });
  return usual;
}

}  // namespace

template <class Archive>
void members(Archive& archive, Of<Archive, TrainingConfig>& config) {
  for_each_written_member(config, [&](std::string_view name, auto& member) {
    // Keys of journals are those of this text, which has always had a number that nothing reads.
    if (name == "overlap_comm")
      archive.constant("allgather_bucket_size", 500'000'000, "expected 500000000");
    archive(name, member);
  });
  for_each_later_member(config, [&](const char* name, auto& member) {
    using Member = std::decay_t<decltype(member)>;
    if (Archive::is_reading || member != usual_of<Member>(name))
      archive(name, member, {.may_be_missing = true});
  });
}

template <class Archive>
void members(Archive& archive, Of<Archive, GpuCondition>& gpu) {
  archive("sm_clock_mhz", gpu.sm_clock_mhz, amount);
  archive("max_sm_clock_mhz", gpu.max_sm_clock_mhz, amount);
  archive("temperature_c", gpu.temperature_c, amount);
  archive("power_w", gpu.power_w, amount);
  archive("throttled_by", gpu.throttled_by);
}

template <class Archive>
void members(Archive& archive, Of<Archive, PeakMemory>& peak) {
  archive("total", peak.total_bytes, amount);
  archive("categories", peak.category_bytes, amount);
  archive("process", peak.process_bytes, amount);
  archive("host", peak.host_bytes, not_earlier);
  // Only GPUs have these.
  archive("gpu", peak.gpu_bytes, where_positive);
  archive("communicators", peak.communicator_bytes, where_positive);
  archive("graphs", peak.graph_bytes, where_positive);
}

template <class Archive>
void members(Archive& archive, Of<Archive, Measurement>& measurement) {
  archive.rules(json::strict);
  constexpr json::Form micro_seconds{.low = 0, .scale = us_per_s};
  archive("status", measurement.status);
  archive("reason", measurement.reason);
  archive("fwd", measurement.forward_s, micro_seconds);
  archive("bwd", measurement.backward_s, micro_seconds);
  archive("step", measurement.update_s, micro_seconds);
  archive("flops_per_step", measurement.flops_per_step, amount);
  archive("step_times_s", measurement.step_times_s, amount);
  archive("warmup_steps", measurement.warmup_steps,
          {.low = 0, .high = static_cast<double>(measurement.step_times_s.size())});
  archive("skipped_steps", measurement.skipped_steps, not_earlier);
  // JSON has no NaN: a loss that is no number is null.
  archive("losses", measurement.losses, {.nothing = Nothing::null});
  archive("peak_memory_bytes", measurement.peak_memory);
  archive.section("group", [&](auto& group) {
    group("world_ranks", measurement.world_ranks, amount);
    group("hosts", measurement.hosts);
  });
  archive("rank_forward_s", measurement.rank_forward_s, where_positive);
  archive("energy_j", measurement.energy_j, amount);
  archive("overhead_s", measurement.overhead_s, amount);
  archive("gpu", measurement.gpu);
  archive("fallbacks", measurement.fallbacks, {.nothing = Nothing::omitted});
  archive("not_comparable", measurement.not_comparable, {.nothing = Nothing::omitted});
  archive("notes", measurement.notes, {.nothing = Nothing::omitted});
}

template <class Archive>
void members(Archive& archive, Of<Archive, Prediction>& predicted) {
  archive("throughput", predicted.throughput, {.nothing = Nothing::null});
  archive("target_throughput", predicted.target_throughput);
  archive("peak_memory_bytes", predicted.peak_memory_bytes);
  archive("host_memory_bytes", predicted.host_memory_bytes);
  archive("disk_bytes", predicted.disk_bytes);
  archive("target_memory_bytes", predicted.target_memory_bytes);
  archive("process_memory_bytes", predicted.process_memory_bytes, {.nothing = Nothing::null});
  archive("gpu_memory_bytes", predicted.gpu_memory_bytes, {.nothing = Nothing::omitted});
}

template <class Archive>
void members(Archive& archive, Of<Archive, Record>& record) {
  archive.rules(json::lenient);
  archive("name", record.experiment.name);
  archive("attempt", record.attempt);
  archive("num_gpus", record.experiment.shape.num_gpus);
  archive("num_nodes", record.experiment.shape.num_nodes);
  archive("ds_config", record.experiment.ds_config);
  archive("config", record.experiment.config);
  archive.section("predicted", [&](auto& predicted) {
    members(predicted, record.predicted);
    predicted("categories", record.predicted.categories);
    predicted("host_categories", record.predicted.host_categories);
  });
  members_of_run(archive, record);
}

template <class Archive>
void members(Archive& archive, Of<Archive, Repeat>& repeat) {
  archive.rules(json::lenient);
  archive("purpose", repeat.kind);
  archive("round", repeat.round);
  members_of_run(archive, repeat);
}

template void members(json::Writer&, const TrainingConfig&);
template void members(json::Reader&, TrainingConfig&);
template void members(json::Writer&, const GpuCondition&);
template void members(json::Reader&, GpuCondition&);
template void members(json::Writer&, const Measurement&);
template void members(json::Reader&, Measurement&);
template void members(json::Writer&, const Prediction&);
template void members(json::Reader&, Prediction&);
template void members(json::Writer&, const Record&);
template void members(json::Reader&, Record&);
template void members(json::Writer&, const Repeat&);
template void members(json::Reader&, Repeat&);

json::Value to_json(const GpuCondition& gpu) {
  return json::write(gpu);
}

std::string_view unit_text(Metric metric) {
  switch (metric) {
    case Metric::throughput:
      return "samples/s";
    case Metric::throughput_per_gpu:
      return "samples/s per GPU";
    case Metric::latency:
      return "µs per optimizer step";
    case Metric::flops:
      return "FLOP/s per GPU";
  }
  throw LogicError("unknown metric");
}

bool is_minimised(Metric metric) {
  return metric == Metric::latency;
}

std::vector<double> timed_steps_s(const Measurement& measurement) {
  std::vector<double> timed_s;
  auto skipped = measurement.skipped_steps.begin();
  const auto steps = static_cast<std::int64_t>(measurement.step_times_s.size());
  for (std::int64_t step = measurement.warmup_steps; step < steps; ++step) {
    while (skipped != measurement.skipped_steps.end() && *skipped < step) ++skipped;
    if (skipped != measurement.skipped_steps.end() && *skipped == step) continue;
    timed_s.push_back(measurement.step_times_s[static_cast<std::size_t>(step)]);
  }
  return timed_s;
}

std::optional<MetricValue> metric_value(const Measurement& measurement, Metric metric,
                                        std::int64_t global_batch, int group_size,
                                        StepEstimate step, const Policy::Intervals& policy) {
  if (measurement.status != Status::ok) return std::nullopt;
  return value_so_far(measurement, metric, global_batch, group_size, step, policy);
}

std::optional<MetricValue> value_so_far(const Measurement& measurement, Metric metric,
                                        std::int64_t global_batch, int group_size,
                                        StepEstimate estimate, const Policy::Intervals& policy) {
  const bool is_timed = measurement.status == Status::ok || measurement.status == Status::raced_out;
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (!is_timed || timed_s.empty()) return std::nullopt;
  const Interval step = step_interval(timed_s, estimate, policy);
  if (step.mean <= 0) return std::nullopt;
  if (metric == Metric::latency) {
    return MetricValue{step.mean * us_per_s, step.low * us_per_s, step.high * us_per_s};
  }

  double work = static_cast<double>(global_batch);  // of one step, in the metric's unit
  if (metric == Metric::throughput_per_gpu) work /= group_size;
  if (metric == Metric::flops) work = measurement.flops_per_step / group_size;
  const double fastest = step.low > 0 ? work / step.low : std::numeric_limits<double>::infinity();
  return MetricValue{work / step.mean, work / step.high, fastest};
}

std::optional<double> joules_per_sample(const Measurement& measurement, std::int64_t global_batch) {
  const auto steps =
      static_cast<std::int64_t>(measurement.step_times_s.size()) - measurement.warmup_steps;
  if (!measurement.energy_j || steps <= 0) return std::nullopt;
  return *measurement.energy_j / static_cast<double>(steps * global_batch);
}

}  // namespace dstune
