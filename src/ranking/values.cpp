// What a row is worth: by its first run or its final rounds, here and in the target's time, and how
// far runs differ.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

namespace {

/// Mean step times of the repeats of a kind that ended ok.
std::vector<double> means_s(const Row& row, RepeatKind kind) {
  std::vector<double> means;
  for (const Repeat& repeat : row.repeats) {
    if (repeat.kind != kind) continue;
    if (const double mean_s = mean_step_s(repeat.measurement); mean_s > 0) means.push_back(mean_s);
  }
  return means;
}

}  // namespace

double half_width(const MetricValue& value) {
  const bool is_bounded = value.ci_low > 0 && std::isfinite(value.ci_high);
  return is_bounded ? std::log(value.ci_high / value.ci_low) / 2
                    : std::numeric_limits<double>::infinity();
}

std::optional<MetricValue> metric_value(const Measurement& measurement, Metric metric,
                                        const Experiment& experiment) {
  const int group_size = experiment.shape.size();
  return metric_value(measurement, metric, global_batch(experiment.config, group_size), group_size);
}

std::optional<MetricValue> value_so_far(const Measurement& measurement, Metric metric,
                                        const Experiment& experiment) {
  const int group_size = experiment.shape.size();
  return value_so_far(measurement, metric, global_batch(experiment.config, group_size), group_size);
}

double mean_step_s(const Measurement& measurement) {
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (measurement.status != Status::ok || timed_s.empty()) return 0;
  return std::accumulate(timed_s.begin(), timed_s.end(), 0.0) / static_cast<double>(timed_s.size());
}

int num_final_rounds(const Row& row) {
  return static_cast<int>(means_s(row, RepeatKind::final_round).size());
}

std::optional<MetricValue> verified_value(const Row& row, Metric metric) {
  if (!row.verified) return std::nullopt;
  Measurement verified = *row.verified;
  // DeepSpeed counts operations in its own way: the model's formula makes the two comparable.
  if (row.record) verified.flops_per_step = row.record->measurement.flops_per_step;
  return metric_value(verified, metric, row.planned.experiment);
}

bool Scoreboard::is_final(std::size_t row) const {
  return finals_.is_done && num_final_rounds(rows_[row]) > 0;
}

std::optional<double> Scoreboard::finite_value(std::size_t row) const {
  const auto value = ranked_value(row);
  if (!value || !std::isfinite(value->value)) return std::nullopt;
  return value->value;
}

std::optional<MetricValue> Scoreboard::first_value(std::size_t row, Metric metric) const {
  if (metric == setup_.metric) return first_values_[row];
  const std::optional<Record>& record = rows_[row].record;
  return record ? metric_value(record->measurement, metric, record->experiment) : std::nullopt;
}

std::optional<MetricValue> Scoreboard::measured_value(std::size_t row, Metric metric) const {
  if (!rows_[row].record) return std::nullopt;
  return is_final(row) ? final_value(row, metric) : first_value(row, metric);
}

std::optional<MetricValue> Scoreboard::ranked_value(std::size_t row) const {
  const auto measured = measured_value(row, setup_.metric);
  return measured ? std::optional(in_target(row, *measured)) : std::nullopt;
}

namespace {

const Experiment& experiment_of(const Row& row) {
  return row.record ? row.record->experiment : row.planned.experiment;
}

/// What a step does, in the metric's unit; the metric is none that is minimised.
double work_of_step(const Row& row, Metric metric) {
  const Experiment& experiment = experiment_of(row);
  const int size = experiment.shape.size();
  if (metric == Metric::flops)
    return row.record ? row.record->measurement.flops_per_step / size : 0;
  const auto samples = static_cast<double>(global_batch(experiment.config, size));
  return metric == Metric::throughput ? samples : samples / size;
}

}  // namespace

MetricValue Scoreboard::in_target(std::size_t index, const MetricValue& measured) const {
  if (!calibration_) return measured;
  const Row& row = rows_[index];
  const Precision precision = row.planned.experiment.config.precision;
  const auto there = [&](double value) {
    // An interval may have no end.
    if (!(value > 0) || !std::isfinite(value)) return value;
    if (is_minimised(setup_.metric))
      return 1e6 * calibration_->target_s(1e-6 * value, precision, row.overheads);
    const double work = work_of_step(row, setup_.metric);
    return work / calibration_->target_s(work / value, precision, row.overheads);
  };
  return {there(measured.value), there(measured.ci_low), there(measured.ci_high)};
}

std::optional<TargetTime> Scoreboard::target_time(std::size_t index) const {
  const Row& row = rows_[index];
  if (!calibration_ || !row.record) return std::nullopt;
  auto measured = measured_value(index, Metric::throughput);
  // What was raced out was timed, too.
  if (!measured)
    measured = value_so_far(row.record->measurement, Metric::throughput, row.record->experiment);
  if (!measured || !(measured->value > 0)) return std::nullopt;
  const Precision precision = row.planned.experiment.config.precision;
  const double samples = work_of_step(row, Metric::throughput);
  TargetTime target;
  const double step_s = samples / measured->value;
  target.throughput = samples / calibration_->target_s(step_s, precision, row.overheads);
  target.scale = calibration_->scale_of(precision);
  target.costs_s = calibration_->added_s(step_s, precision, row.overheads);
  return target;
}

std::optional<MetricValue> Scoreboard::reported_value(std::size_t row) const {
  auto value = ranked_value(row);
  // A finalist's interval is made of its runs.
  if (!value || is_final(row)) return value;
  const double factor = std::exp(half_width_of_run_);
  value->ci_low = std::min(value->ci_low, value->value / factor);
  value->ci_high = std::max(value->ci_high, value->value * factor);
  return value;
}

std::optional<MetricValue> Scoreboard::final_value(std::size_t row, Metric metric) const {
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (const Repeat& repeat : rows_[row].repeats) {
    if (repeat.kind != RepeatKind::final_round || !(mean_step_s(repeat.measurement) > 0)) continue;
    const auto value = metric_value(repeat.measurement, metric, rows_[row].planned.experiment);
    if (!value || !(value->value > 0)) continue;
    sum += std::log(value->value);
    squares += std::pow(half_width(*value), 2);
    ++count;
  }
  if (count == 0) return std::nullopt;
  const Spread spread = spread_of_finals();
  const double of_steps = std::sqrt(squares) / count;
  const double of_runs =
      spread.degrees_of_freedom > 0
          ? student_t(0.95, spread.degrees_of_freedom) * spread.deviation / std::sqrt(count)
          : 0;
  const double half = std::max(of_steps, of_runs);
  const double value = std::exp(sum / count);
  return MetricValue{value, value * std::exp(-half), value * std::exp(half)};
}

std::vector<std::vector<double>> Scoreboard::means_in_search() const {
  std::vector<std::vector<double>> means;
  for (const std::size_t index : repeated_) {
    const Row& row = rows_[index];
    std::vector<double> of_row = means_s(row, RepeatKind::spread);
    if (of_row.empty() || !row.record) continue;
    if (const double first_s = mean_step_s(row.record->measurement); first_s > 0)
      of_row.push_back(first_s);
    means.push_back(std::move(of_row));
  }
  return means;
}

std::vector<std::vector<double>> Scoreboard::means_of_finals() const {
  std::vector<std::vector<double>> means;
  for (const std::size_t row : finals_.finalists)
    if (auto of_row = means_s(rows_[row], RepeatKind::final_round); !of_row.empty())
      means.push_back(std::move(of_row));
  return means;
}

Spread Scoreboard::spread_in_search() const {
  return spread_of(means_in_search());
}

Spread Scoreboard::spread_of_finals() const {
  return spread_of(means_of_finals());
}

}  // namespace dstune
