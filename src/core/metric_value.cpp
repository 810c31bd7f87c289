#include <limits>

#include "dstune/core/interval.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

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
                                        std::int64_t global_batch, int group_size) {
  if (measurement.status != Status::ok) return std::nullopt;
  return value_so_far(measurement, metric, global_batch, group_size);
}

std::optional<MetricValue> value_so_far(const Measurement& measurement, Metric metric,
                                        std::int64_t global_batch, int group_size) {
  const bool is_timed = measurement.status == Status::ok || measurement.status == Status::raced_out;
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (!is_timed || timed_s.empty()) return std::nullopt;
  const Interval step = mean_interval(timed_s);
  if (step.mean <= 0) return std::nullopt;
  if (metric == Metric::latency) {
    constexpr double us_per_s = 1e6;
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
