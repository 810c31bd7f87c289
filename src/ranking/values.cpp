// The value of a member: by its first run or its final rounds, here and in the target's time. The
// differences between runs are here, too.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

namespace {

/// Mean step times of the repeats that ended ok, of those in the finals or of the others.
/// `load_of`: of a run, by its number.
template <class LoadOf>
std::vector<double> means_s(const Row& row, bool of_finals, const LoadOf& load_of) {
  std::vector<double> means;
  for (std::size_t each = 0; each < row.repeats.size(); ++each) {
    const Repeat& repeat = row.repeats[each];
    if ((repeat.kind == RepeatKind::final_round) != of_finals) continue;
    if (const double mean_s = mean_step_s(repeat.measurement); mean_s > 0)
      means.push_back(mean_s * std::exp(-load_of(each + 1).expected));
  }
  return means;
}

/// Returns a value as it would be without the load.
MetricValue without_load(const MetricValue& value, Metric metric, const Load& load) {
  if (load.expected == 0 && load.deviation == 0) return value;
  constexpr double two_sided_95 = 1.96;
  const double sign = is_minimised(metric) ? -1 : 1;
  const double factor = std::exp(sign * load.expected);
  const double width = std::exp(two_sided_95 * load.deviation);
  return {value.value * factor, value.ci_low * factor / width, value.ci_high * factor * width};
}

}  // namespace

std::optional<MetricValue> metric_value(const Measurement& measurement, Metric metric,
                                        const Experiment& experiment, StepEstimate step,
                                        const Policy::Intervals& policy) {
  return metric_value(measurement, metric, batch_of(experiment), experiment.shape.size(), step,
                      policy);
}

std::optional<MetricValue> value_so_far(const Measurement& measurement, Metric metric,
                                        const Experiment& experiment, StepEstimate step,
                                        const Policy::Intervals& policy) {
  return value_so_far(measurement, metric, batch_of(experiment), experiment.shape.size(), step,
                      policy);
}

double mean_step_s(const Measurement& measurement) {
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (measurement.status != Status::ok || timed_s.empty()) return 0;
  return std::accumulate(timed_s.begin(), timed_s.end(), 0.0) / static_cast<double>(timed_s.size());
}

int num_final_rounds(const Row& row) {
  return static_cast<int>(std::ranges::count_if(row.repeats, [](const Repeat& repeat) {
    return repeat.kind == RepeatKind::final_round && mean_step_s(repeat.measurement) > 0;
  }));
}

int num_final_tries(const Row& row) {
  return static_cast<int>(std::ranges::count(row.repeats, RepeatKind::final_round, &Repeat::kind));
}

bool fails_again(const Row& row, const Policy::Answering& policy) {
  return num_final_tries(row) >= policy.failures_of_finalist && num_final_rounds(row) == 0;
}

std::optional<MetricValue> verified_value(const Row& row, Metric metric) {
  if (!row.verified) return std::nullopt;
  Measurement verified = *row.verified;
  // DeepSpeed counts operations in its own way: the model's formula makes the two comparable.
  if (row.record) verified.flops_per_step = row.record->measurement.flops_per_step;
  return metric_value(verified, metric, row.planned.experiment);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::optional<double> Scoreboard::finite_value(std::size_t member) const {
  const auto value = ranked_value(member);
  if (!value || !std::isfinite(value->value)) return std::nullopt;
  return value->value;
}

std::optional<MetricValue> Scoreboard::first_value(std::size_t member, Metric metric) const {
  if (metric != setup_.metric) return value_of_first_run(member, metric);
  const auto known = first_values_.find(member);
  return known != first_values_.end() ? std::optional(known->second) : std::nullopt;
}

std::optional<MetricValue> Scoreboard::value_of_first_run(std::size_t member, Metric metric) const {
  if (!has_run(member)) return std::nullopt;
  const Record& record = *rows_[member].record;
  return metric_value(record.measurement, metric, record.experiment, step_estimate_,
                      setup_.policy->intervals);
}

namespace {

/// Returns a value at speeds whose logarithms are so much above its own.
MetricValue at_speed(double value, Metric metric, const Verdict::Speed& speed) {
  const auto at = [&](double faster_by) {
    return value * std::exp(is_minimised(metric) ? -faster_by : faster_by);
  };
  const MetricValue shifted{at(speed.expected), at(speed.low), at(speed.high)};
  return is_minimised(metric) ? MetricValue{shifted.value, shifted.ci_high, shifted.ci_low}
                              : shifted;
}

}  // namespace

std::optional<MetricValue> Scoreboard::measured_value(std::size_t member, Metric metric) const {
  if (!has_run(member)) return std::nullopt;
  const auto first = first_value(member, metric);
  const auto judged = judged_.find(member);
  if (!first) return first;
  if (judged == judged_.end()) return without_load(*first, metric, load_of(member));
  return at_speed(first->value, metric, verdict_->speed(judged->second));
}

double Scoreboard::score_at(std::size_t member, double faster_by) const {
  const MetricValue there = at_speed(first_values_.at(member).value, setup_.metric, {faster_by});
  const double value = in_target(member, {there.value, 0, 0}).value;
  return is_minimised(setup_.metric) ? -std::log(value) : std::log(value);
}

std::optional<MetricValue> Scoreboard::ranked_value(std::size_t member) const {
  const auto measured = measured_value(member, setup_.metric);
  return measured ? std::optional(in_target(member, *measured)) : std::nullopt;
}

namespace {

/// Work of a step, in the metric's unit. The metric must not be one that is minimised.
double work_of_step(const Row& row, Metric metric) {
  const Experiment& experiment = row.record ? row.record->experiment : row.planned.experiment;
  const int size = experiment.shape.size();
  if (metric == Metric::flops)
    return row.record ? row.record->measurement.flops_per_step / size : 0;
  const auto samples = static_cast<double>(batch_of(experiment));
  return metric == Metric::throughput ? samples : samples / size;
}

}  // namespace

MetricValue Scoreboard::in_target(std::size_t member, const MetricValue& measured) const {
  if (!calibration_) return measured;
  const Row& row = rows_[member];
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

std::optional<MetricValue> Scoreboard::observed_value(std::size_t member) const {
  const Record& record = *rows_[member].record;
  const auto value = value_so_far(record.measurement, setup_.metric, record.experiment,
                                  step_estimate_, setup_.policy->intervals);
  if (!value) return value;
  return in_target(member, without_load(*value, setup_.metric, load_of(member)));
}

std::optional<TargetTime> Scoreboard::target_time(std::size_t member) const {
  const auto measured = measured_value(member, Metric::throughput);
  return measured ? target_time_of(member, measured) : target_time_of_first_run(member);
}

std::optional<TargetTime> Scoreboard::target_time_of_first_run(std::size_t member) const {
  if (!has_run(member)) return std::nullopt;
  const std::optional<Record>& record = rows_[member].record;
  // Raced out members were timed, too.
  return target_time_of(member,
                        value_so_far(record->measurement, Metric::throughput, record->experiment,
                                     StepEstimate::mean, setup_.policy->intervals));
}

std::optional<TargetTime> Scoreboard::target_time_of(
    std::size_t member, const std::optional<MetricValue>& measured) const {
  if (!calibration_) return std::nullopt;
  if (!measured || !(measured->value > 0)) return std::nullopt;
  const Row& row = rows_[member];
  const Precision precision = row.planned.experiment.config.precision;
  const double samples = work_of_step(row, Metric::throughput);
  TargetTime target;
  const double step_s = samples / measured->value;
  target.throughput = samples / calibration_->target_s(step_s, precision, row.overheads);
  target.scale = calibration_->scale_of(precision);
  target.costs_s = calibration_->added_s(step_s, precision, row.overheads);
  const std::string constants = setup_.target ? source_text(*setup_.target) : "";
  const bool is_fitted = !setup_.target || *calibration_ != setup_.target->time;
  target.source = is_fitted ? "fitted to runs in DeepSpeed" +
                                  (constants.empty() ? "" : ", beginning with " + constants)
                            : constants;
  return target;
}

std::optional<MetricValue> Scoreboard::reported_value(std::size_t member) const {
  auto value = ranked_value(member);
  // Judged members have an interval of all their runs.
  if (!value || is_judged(member)) return value;
  const double factor = std::exp(half_width_of_run_);
  value->ci_low = std::min(value->ci_low, value->value / factor);
  value->ci_high = std::max(value->ci_high, value->value * factor);
  return value;
}

/// … without the loads that are known.
std::vector<double> Scoreboard::means_of(std::size_t member, bool of_finals) const {
  return means_s(rows_[member], of_finals, [&](std::size_t run) { return load_of(member, run); });
}

std::vector<std::vector<double>> Scoreboard::means_in_search() const {
  std::vector<std::vector<double>> means;
  for (const std::size_t member : repeated_) {
    const Row& row = rows_[member];
    std::vector<double> of_member = means_of(member, false);
    if (of_member.empty() || !row.record) continue;
    if (const double first_s = mean_step_s(row.record->measurement); first_s > 0)
      of_member.push_back(first_s * std::exp(-load_of(member).expected));
    means.push_back(std::move(of_member));
  }
  return means;
}

std::vector<std::vector<double>> Scoreboard::means_of_finals() const {
  std::vector<std::vector<double>> means;
  for (const std::size_t member : finals_.finalists)
    if (auto of_member = means_of(member, true); !of_member.empty())
      means.push_back(std::move(of_member));
  return means;
}

Spread Scoreboard::spread_in_search() const {
  return spread_of(means_in_search());
}

Spread Scoreboard::spread_of_finals() const {
  return spread_of(means_of_finals());
}

}  // namespace dstune
