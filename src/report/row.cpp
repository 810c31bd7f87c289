#include "row.hpp"

#include <algorithm>
#include <cmath>

namespace dstune {

namespace {

/// Is `value` better than `best`, at equal values by memory?
bool is_better(const Row& row, double value, const Row& best, double best_value, Metric metric) {
  if (value != best_value) return is_minimised(metric) ? value < best_value : value > best_value;
  return row.record->measurement.peak_memory.total_bytes <
         best.record->measurement.peak_memory.total_bytes;
}

}  // namespace

std::optional<std::size_t> best_of(const std::vector<const Row*>& rows, Metric metric) {
  std::optional<std::size_t> best;
  double best_value = 0;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const Row& row = *rows[index];
    if (!row.record) continue;
    const auto result = value_in(*row.record, metric);
    if (!result || !std::isfinite(result->value)) continue;
    if (best && !is_better(row, result->value, *rows[*best], best_value, metric)) continue;
    best = index;
    best_value = result->value;
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
