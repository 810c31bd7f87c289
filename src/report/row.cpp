#include "row.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace dstune {

namespace {

std::optional<double> finite_value(const Row& row, Metric metric) {
  if (!row.record) return std::nullopt;
  const auto result = value_in(*row.record, metric);
  if (!result || !std::isfinite(result->value)) return std::nullopt;
  return result->value;
}

}  // namespace

bool is_better(const Row& row, const Row& other, Metric metric) {
  const std::optional<double> mine = finite_value(row, metric);
  const std::optional<double> theirs = finite_value(other, metric);
  if (!mine || !theirs) return mine.has_value();
  if (*mine != *theirs) return is_minimised(metric) ? *mine < *theirs : *mine > *theirs;
  return row.record->measurement.peak_memory.total_bytes <
         other.record->measurement.peak_memory.total_bytes;
}

std::optional<std::size_t> best_of(const std::vector<const Row*>& rows, Metric metric) {
  const Row none;
  std::optional<std::size_t> best;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    if (is_better(*rows[index], best ? *rows[*best] : none, metric)) best = index;
  }
  return best;
}

std::optional<std::size_t> best_row(const Report& report) {
  std::vector<const Row*> rows;
  for (const Row& row : report.rows) rows.push_back(&row);
  return best_of(rows, report.metric);
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
