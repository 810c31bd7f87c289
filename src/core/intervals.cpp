#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "dstune/core/measurement.hpp"

namespace dstune {

namespace {

/// Two-sided 95 % quantiles of Student's t for 1 to 15 degrees of freedom.
constexpr std::array<double, 15> student_t95 = {12.70620, 4.30265, 3.18245, 2.77645, 2.57058,
                                                2.44691,  2.36462, 2.30600, 2.26216, 2.22814,
                                                2.20099,  2.17881, 2.16037, 2.14479, 2.13145};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Half the width of the interval around `mean`, from values that are taken as independent.
double half_width(const std::vector<double>& values, double mean) {
  const auto count = static_cast<double>(values.size());
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return student_t95.at(values.size() - 2) * std::sqrt(squares / (count - 1) / count);
}

/// Means of 8 to 16 runs of neighbours, equally long but for one sample. Long runs before many:
/// they are what makes the means independent.
std::vector<double> batch_means(const std::vector<double>& samples) {
  constexpr std::size_t wanted_length = 32;
  const std::size_t batches = std::clamp<std::size_t>(samples.size() / wanted_length, 8, 16);
  std::vector<double> means;
  for (std::size_t i = 0; i < batches; ++i) {
    const auto begin = static_cast<std::ptrdiff_t>(i * samples.size() / batches);
    const auto end = static_cast<std::ptrdiff_t>((i + 1) * samples.size() / batches);
    means.push_back(mean_of({samples.begin() + begin, samples.begin() + end}));
  }
  return means;
}

}  // namespace

Interval mean_interval(const std::vector<double>& samples) {
  require(!samples.empty(), "an interval is made of at least one sample");
  const double mean = mean_of(samples);
  if (samples.size() == 1) return {mean, 0, std::numeric_limits<double>::infinity()};
  constexpr std::size_t fewest_for_batches = 16;
  const double half = samples.size() < fewest_for_batches ? half_width(samples, mean)
                                                          : half_width(batch_means(samples), mean);
  return {mean, std::max(0.0, mean - half), mean + half};
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
                                        std::int64_t global_batch, int group_size) {
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (measurement.status != Status::ok || timed_s.empty()) return std::nullopt;
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

}  // namespace dstune
