// What a row is worth: by its first run or its final rounds, calibrated, and how far runs differ.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dstune/base/error.hpp"
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

namespace {

/// What a step does, in the metric's unit up to a constant.
double work_of_step(const Experiment& experiment, Metric metric) {
  if (metric == Metric::latency) return 1;
  const int size = experiment.shape.size();
  const auto samples = static_cast<double>(global_batch(experiment.config, size));
  // Operations of one model and sequence length are in proportion to the samples.
  return metric == Metric::throughput ? samples : samples / size;
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

namespace {

/// Orders of magnitude, not measurements: what one of each costs may be so much. In the order of
/// Overhead; a hook runs a little Python, what a module does to gather is a lot of it, and a byte
/// more is a network of 1 GB/s.
constexpr Overheads likely_costs_s{20e-3, 0.1e-3, 0.1e-3, 1e-3, 1e-9};
/// Relative, of one run's time over another's.
constexpr double noise = 0.03;
/// Sweeps over the unknowns, one at a time; there are six.
constexpr int num_sweeps = 1000;

constexpr std::size_t num_unknowns = num_overheads + 1;  // the scale first
using Vector = std::array<double, num_unknowns>;

}  // namespace

TimeCalibration fit_time(const std::vector<CalibrationPoint>& points) {
  require(!points.empty(), "there is something to fit to");
  std::array<Vector, num_unknowns> left{};
  Vector right{};
  for (const CalibrationPoint& point : points) {
    // What each unknown adds to the point's relative time, which is to be 1.
    Vector row{point.measured_s / point.target_s};
    for (std::size_t each = 0; each < num_overheads; ++each)
      row[each + 1] = point.overheads[each] / point.target_s;
    for (std::size_t i = 0; i < num_unknowns; ++i) {
      right[i] += row[i];
      for (std::size_t j = 0; j < num_unknowns; ++j) left[i][j] += row[i] * row[j];
    }
  }
  const double scale_alone = right[0] / left[0][0];
  // One point tells nothing apart: the order of the configurations is left as it was measured.
  if (points.size() == 1) return {scale_alone, {}};
  Vector fitted{scale_alone};
  for (std::size_t i = 1; i < num_unknowns; ++i) {
    const double strength = noise / likely_costs_s[i - 1];
    left[i][i] += strength * strength;
  }
  for (int sweep = 0; sweep < num_sweeps; ++sweep) {
    for (std::size_t i = 0; i < num_unknowns; ++i) {
      double rest = right[i];
      for (std::size_t j = 0; j < num_unknowns; ++j)
        if (j != i) rest -= left[i][j] * fitted[j];
      fitted[i] = std::max(0.0, rest / left[i][i]);
    }
  }
  // A step is never overheads alone.
  if (fitted[0] == 0) return {scale_alone, {}};
  TimeCalibration result{fitted[0], {}};
  std::copy(fitted.begin() + 1, fitted.end(), result.costs_s.begin());
  return result;
}

}  // namespace dstune
