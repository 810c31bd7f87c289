#include "row.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "dstune/report/validation.hpp"

namespace dstune {

namespace {

bool is_final(const Report& report, const Row& row) {
  return report.validation.is_done && num_final_rounds(row) > 0;
}

std::optional<double> finite_value(const Report& report, const Row& row) {
  const auto result = ranked_value(report, row);
  if (!result || !std::isfinite(result->value)) return std::nullopt;
  return result->value;
}

}  // namespace

std::optional<MetricValue> measured_value(const Report& report, const Row& row, Metric metric) {
  if (is_final(report, row)) return final_value(report, row, metric);
  if (row.first_run && metric == report.metric) return row.first_run;
  return value_in(*row.record, metric);
}

std::optional<MetricValue> ranked_value(const Report& report, const Row& row) {
  if (!row.record) return std::nullopt;
  const auto measured = measured_value(report, row, report.metric);
  if (!measured || !report.calibration) return measured;
  const auto latency_us = measured_value(report, row, Metric::latency);
  const bool is_time = is_minimised(report.metric);
  // Every other metric counts something over the time of a step.
  const auto calibrated = [&](double value) {
    const double measured_s =
        latency_us->value * 1e-6 * (is_time ? value / measured->value : measured->value / value);
    const double target_s = report.calibration->target_s(measured_s, row.overheads);
    return is_time ? value * target_s / measured_s : value * measured_s / target_s;
  };
  const auto end = [&](double value) {
    return std::isfinite(value) && value > 0 ? calibrated(value) : value;
  };
  return MetricValue{calibrated(measured->value), end(measured->ci_low), end(measured->ci_high)};
}

std::optional<MetricValue> reported_value(const Report& report, const Row& row) {
  auto value = ranked_value(report, row);
  // A finalist's interval is made of its runs.
  if (!value || is_final(report, row)) return value;
  const double factor = std::exp(report.half_width_of_run);
  value->ci_low = std::min(value->ci_low, value->value / factor);
  value->ci_high = std::max(value->ci_high, value->value * factor);
  return value;
}

void note_value(Row& row, Metric metric) {
  row.first_run = row.record ? value_in(*row.record, metric) : std::nullopt;
}

bool is_better(const Report& report, const Row& row, const Row& other) {
  const std::optional<double> mine = finite_value(report, row);
  const std::optional<double> theirs = finite_value(report, other);
  if (!mine || !theirs) return mine.has_value();
  if (report.validation.is_done) {
    const bool is_final = num_final_rounds(row) > 0;
    if (is_final != (num_final_rounds(other) > 0)) return is_final;
  }
  if (*mine != *theirs) return is_minimised(report.metric) ? *mine < *theirs : *mine > *theirs;
  return row.record->measurement.peak_memory.total_bytes <
         other.record->measurement.peak_memory.total_bytes;
}

std::optional<double> joules_per_sample(const Row& row) {
  if (!row.record) return std::nullopt;
  const Experiment& experiment = row.record->experiment;
  const std::int64_t batch = global_batch(experiment.config, experiment.shape.size());
  double sum = 0;
  int count = 0;
  const auto add = [&](const Measurement& measurement) {
    const auto joules = joules_per_sample(measurement, batch);
    sum += joules.value_or(0);
    count += joules ? 1 : 0;
  };
  add(row.record->measurement);
  for (const Repeat& repeat : row.repeats) add(repeat.measurement);
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<std::size_t> best_of(const Report& report, const std::vector<const Row*>& rows) {
  const Row none;
  std::optional<std::size_t> best;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    if (is_better(report, *rows[index], best ? *rows[*best] : none)) best = index;
  }
  return best;
}

std::optional<std::size_t> best_row(const Report& report) {
  std::vector<const Row*> rows;
  for (const Row& row : report.rows) rows.push_back(&row);
  const auto best = best_of(report, rows);
  if (!best || !report.validation.is_done || num_final_rounds(*rows[*best]) == 0) return best;
  constexpr double tie = 0.001;
  const double value = ranked_value(report, *rows[*best])->value;
  const auto bytes = [&](std::size_t row) {
    return report.rows[row].record->measurement.peak_memory.total_bytes;
  };
  std::size_t leanest = *best;
  for (const std::size_t index : report.validation.finalists) {
    const auto other = finite_value(report, report.rows[index]);
    if (!other || num_final_rounds(report.rows[index]) == 0) continue;
    const bool is_tied = std::abs(*other - value) <= tie * value;
    if (is_tied && bytes(index) < bytes(leanest)) leanest = index;
  }
  return leanest;
}

std::vector<std::size_t> best_rows(const Report& report, std::size_t most) {
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < report.rows.size(); ++index)
    if (finite_value(report, report.rows[index])) indices.push_back(index);
  const auto end = indices.begin() + static_cast<std::ptrdiff_t>(std::min(most, indices.size()));
  std::partial_sort(indices.begin(), end, indices.end(), [&](std::size_t one, std::size_t other) {
    const Row& row = report.rows[one];
    const Row& other_row = report.rows[other];
    if (is_better(report, row, other_row)) return true;
    return one < other && !is_better(report, other_row, row);
  });
  indices.erase(end, indices.end());
  return indices;
}

std::string status_text(const Row& row) {
  if (row.record) return std::string(to_text(row.record->measurement.status));
  if (row.planned.status != PlanStatus::planned) return std::string(to_text(row.planned.status));
  return "not_run";
}

const std::string& reason_text(const Row& row) {
  return row.record ? row.record->measurement.reason : row.planned.reason;
}

std::vector<StatusCount> count_statuses(const Report& report) {
  std::vector<StatusCount> counts;
  for (const Status status :
       {Status::ok, Status::raced_out, Status::out_of_memory, Status::timed_out, Status::failed})
    counts.push_back({std::string(to_text(status))});
  for (const PlanStatus status : {PlanStatus::infeasible, PlanStatus::pruned})
    counts.push_back({std::string(to_text(status))});
  counts.push_back({"not_run"});
  for (const Row& row : report.rows) {
    const std::string status = status_text(row);
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const StatusCount& one) { return one.status == status; });
    ++found->count;
  }
  return counts;
}

}  // namespace dstune
