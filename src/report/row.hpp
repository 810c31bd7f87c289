#pragma once
/// Questions about rows that several reports ask. Local.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "dstune/report/results.hpp"

namespace dstune {

/// What a record says in a metric; nothing unless it is ok.
std::optional<MetricValue> value_in(const Record& record, Metric metric);

/// The same of a row that was measured, by its final rounds where they count (ranked_value()).
std::optional<MetricValue> measured_value(const Report& report, const Row& row, Metric metric);

/// Mean over all its runs whose energy is known.
std::optional<double> joules_per_sample(const Row& row);

/// The best of some rows by best_row's rule: its place in `rows`.
std::optional<std::size_t> best_of(const Report& report, const std::vector<const Row*>& rows);

/// What became of a member: its record's status, `infeasible`, `pruned`, or `not_run`.
std::string status_text(const Row& row);
/// Why it has no result; empty where it has one or nobody said.
const std::string& reason_text(const Row& row);

/// What the calibration does, and how far each of its runs is from it; empty without one.
std::string calibration_text(const Report& report);

/// How many rows have which status; all statuses are there, in the order of the reports.
struct StatusCount {
  std::string status;
  std::size_t count = 0;
};
std::vector<StatusCount> count_statuses(const Report& report);

/// Members of one status that have no result for the same reason, figures in it aside.
struct ReasonGroup {
  std::string status;
  std::string first_reason;
  std::size_t count = 0;
  std::vector<std::string> first_names;  ///< at most three
};
/// In the order of the statuses.
std::vector<ReasonGroup> reason_groups(const Report& report);

}  // namespace dstune
