// What a row is worth: by its first run or its final rounds, calibrated, and how far runs differ.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "parts.hpp"

namespace dstune {

namespace {

bool is_final_round(const Repeat& repeat) {
  return repeat.kind == RepeatKind::final_round && mean_step_s(repeat.measurement) > 0;
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
  return static_cast<int>(std::count_if(row.repeats.begin(), row.repeats.end(), is_final_round));
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
  if (!measured || !calibration_) return measured;
  const auto latency_us = measured_value(row, Metric::latency);
  const bool is_time = is_minimised(setup_.metric);
  // Every other metric counts something over the time of a step.
  const auto calibrated = [&](double value) {
    const double measured_s =
        latency_us->value * 1e-6 * (is_time ? value / measured->value : measured->value / value);
    const double target_s = calibration_->target_s(measured_s, rows_[row].overheads);
    return is_time ? value * target_s / measured_s : value * measured_s / target_s;
  };
  const auto end = [&](double value) {
    return std::isfinite(value) && value > 0 ? calibrated(value) : value;
  };
  return MetricValue{calibrated(measured->value), end(measured->ci_low), end(measured->ci_high)};
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
    if (!is_final_round(repeat)) continue;
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
    std::vector<double> of_row;
    for (const Repeat& repeat : row.repeats)
      if (repeat.kind == RepeatKind::spread && mean_step_s(repeat.measurement) > 0)
        of_row.push_back(mean_step_s(repeat.measurement));
    if (of_row.empty() || !row.record) continue;
    if (const double first_s = mean_step_s(row.record->measurement); first_s > 0)
      of_row.push_back(first_s);
    means.push_back(std::move(of_row));
  }
  return means;
}

std::vector<std::vector<double>> Scoreboard::means_of_finals() const {
  std::vector<std::vector<double>> means;
  for (const std::size_t index : finals_.finalists) {
    std::vector<double> of_row;
    for (const Repeat& repeat : rows_[index].repeats)
      if (is_final_round(repeat)) of_row.push_back(mean_step_s(repeat.measurement));
    if (!of_row.empty()) means.push_back(std::move(of_row));
  }
  return means;
}

Spread Scoreboard::spread_in_search() const {
  return spread_of(means_in_search());
}

Spread Scoreboard::spread_of_finals() const {
  return spread_of(means_of_finals());
}

namespace {

/// What a step does, in the metric's unit up to a constant.
double work_of_step(const Experiment& experiment, Metric metric) {
  const int size = experiment.shape.size();
  const auto samples = static_cast<double>(global_batch(experiment.config, size));
  switch (metric) {
    case Metric::latency:
      return 1;
    case Metric::throughput:
      return samples;
    case Metric::throughput_per_gpu:
    case Metric::flops:  // of one model and sequence length: in proportion to the samples
      return samples / size;
  }
  return samples;
}

}  // namespace

IncumbentEstimate incumbent_estimate(const Scoreboard& board, const Experiment& challenger) {
  if (!board.best()) return {};
  const Row& incumbent = board.row(*board.best());
  std::vector<double> means_s;
  double square_error = 0;
  const auto add = [&](const Measurement& measurement) {
    const std::vector<double> timed_s = timed_steps_s(measurement);
    if (measurement.status != Status::ok || timed_s.size() < 2) return;
    const MeanEstimate step = estimate_mean(timed_s);
    if (step.mean <= 0) return;
    means_s.push_back(step.mean);
    square_error += std::pow(step.standard_error / step.mean, 2);
  };
  add(incumbent.record->measurement);
  for (const Repeat& repeat : incumbent.repeats)
    if (repeat.kind == RepeatKind::spread) add(repeat.measurement);
  if (means_s.empty()) return {};
  square_error /= static_cast<double>(means_s.size());
  const double work = work_of_step(challenger, board.metric()) /
                      work_of_step(incumbent.planned.experiment, board.metric());
  for (double& mean_s : means_s) mean_s *= work;
  return estimate_incumbent(means_s, square_error, pooled_spread(board.spread_in_search()));
}

}  // namespace dstune
