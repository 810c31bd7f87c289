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

/// The best of some rows by best_row's rule: its place in `rows`.
std::optional<std::size_t> best_of(const std::vector<const Row*>& rows, Metric metric);

/// What became of a member: its record's status, `infeasible`, `pruned`, or `not_run`.
std::string status_text(const Row& row);
/// Why it has no result; empty where it has one or nobody said.
const std::string& reason_text(const Row& row);

/// How many rows have which status; all statuses are there, in the order of the reports.
struct StatusCount {
  std::string status;
  std::size_t count = 0;
};
std::vector<StatusCount> count_statuses(const Report& report);

}  // namespace dstune
