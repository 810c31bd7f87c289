#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/units.hpp"
#include "dstune/report/flags.hpp"
#include "dstune/report/numerics.hpp"
#include "dstune/report/results.hpp"
#include "dstune/report/validation.hpp"
#include "front_text.hpp"
#include "journal/record_json.hpp"
#include "prediction_text.hpp"
#include "row.hpp"
#include "table.hpp"

namespace dstune {

namespace {

/// A tuning space: the experiments of one ZeRO stage that were dispatched.
struct Space {
  std::string name;
  std::vector<const Row*> rows;
};

/// In the order of their first experiment; `global`, which has all of them, last.
std::vector<Space> recorded_spaces(const Report& report) {
  std::vector<Space> spaces;
  Space global{"global", {}};
  for (const Row& row : report.rows) {
    if (!row.record) continue;
    const std::string name = fmt::format("z{}", row.record->experiment.config.zero_stage);
    auto space = std::find_if(spaces.begin(), spaces.end(),
                              [&](const Space& one) { return one.name == name; });
    if (space == spaces.end()) space = spaces.insert(spaces.end(), {name, {}});
    space->rows.push_back(&row);
    global.rows.push_back(&row);
  }
  if (!global.rows.empty()) spaces.push_back(std::move(global));
  return spaces;
}

std::string spaces_table(const Report& report) {
  const std::vector<Space> spaces = recorded_spaces(report);
  if (spaces.empty()) return "No experiment was run.\n";
  std::vector<Column> columns = {{"tuning_space", ColumnType::text, {}},
                                 {"num_experiments", ColumnType::number, {}},
                                 {"best_metric_val", ColumnType::number, {}},
                                 {"best_exp_name", ColumnType::text, {}}};
  for (const Space& space : spaces) {
    // Like DeepSpeed, a space without a result shows 0 and its first experiment.
    const auto best = best_of(report, space.rows);
    const Row& shown = *space.rows[best.value_or(0)];
    columns[0].cells.push_back(space.name);
    columns[1].cells.push_back(std::to_string(space.rows.size()));
    columns[2].cells.push_back(format_number(best ? ranked_value(report, shown)->value : 0));
    columns[3].cells.push_back(shown.planned.experiment.name);
  }
  return pipe_table(columns);
}

std::string verified_text(const Row& row, Metric metric) {
  const auto value = verified_value(row, metric);
  if (!value) return "";
  // One sample bounds nothing.
  const std::string interval =
      std::isfinite(value->ci_high)
          ? fmt::format(" (95 % interval {} to {})", format_number(value->ci_low),
                        format_number(value->ci_high))
          : "";
  const std::int64_t peak_bytes = row.verified->peak_memory.total_bytes;
  return fmt::format(
      "  in DeepSpeed itself: {} {}{}{}\n", format_number(value->value), unit_text(metric),
      interval, peak_bytes > 0 ? fmt::format(", {} at its fullest", format_bytes(peak_bytes)) : "");
}

std::string confidence_text(const Report& report, const Row& answer) {
  std::string text;
  for (const auto& [what, words] : confidence_lines(report, answer))
    text += fmt::format("  {}: {}\n", what, words);
  return text;
}

std::string energy_text(const Row& row) {
  const auto joules = joules_per_sample(row);
  return joules ? fmt::format("  energy: {} J a sample\n", format_number(*joules)) : "";
}

std::string comparable_text(const Measurement& measurement) {
  const std::string& why = measurement.not_comparable;
  return why.empty() ? "" : fmt::format("  {}: {}\n", not_comparable_words, why);
}

std::string winner_text(const Report& report) {
  const auto best = best_row(report);
  if (!best) return "There is no winner: no experiment gave a result.\n";
  const std::size_t answer = answer_row(report, *best);
  const Row& row = report.rows[answer];
  const Record& record = *row.record;
  const MetricValue value = *reported_value(report, row);
  const std::string choice = choice_text(report, answer);
  const std::string numerics = changed_numerics_text(record.experiment);
  const GroupShape& shape = record.experiment.shape;
  return fmt::format(
             "Best: {}\n"
             "  {}: {} {} (95 % interval {} to {})\n"
             "{}{}"
             "  group size: {} ({} on each of {} node{}), activation recompute: {}\n"
             "  label: {}\n"
             "{}",
             record.experiment.name, to_text(report.metric), format_number(value.value),
             unit_text(report.metric), format_number(value.ci_low), format_number(value.ci_high),
             verified_text(row, report.metric),
             choice.empty() ? "" : fmt::format("  chosen because {}\n", choice), shape.size(),
             shape.num_gpus, shape.num_nodes, shape.num_nodes == 1 ? "" : "s",
             to_text(record.experiment.config.recompute), label_of(report, row),
             numerics.empty() ? "" : fmt::format("  changed numerics: {}\n", numerics)) +
         (report.calibration ? fmt::format("  calibrated: {}\n", calibration_text(report)) : "") +
         confidence_text(report, row) + energy_text(row) + comparable_text(record.measurement);
}

/// What was measured here beside what DeepSpeed itself said, for all that it ran.
std::string verification_text(const Report& report) {
  std::vector<Column> columns = {{"in DeepSpeed itself", ColumnType::text, {}},
                                 {"status", ColumnType::text, {}},
                                 {"here", ColumnType::number, {}},
                                 {"there", ColumnType::number, {}},
                                 {"there/here", ColumnType::number, {}}};
  for (const Row& row : report.rows) {
    if (!row.verified) continue;
    const auto there = verified_value(row, report.metric);
    const auto here = ranked_value(report, row);
    columns[0].cells.push_back(row.planned.experiment.name);
    columns[1].cells.emplace_back(to_text(row.verified->status));
    columns[2].cells.push_back(here ? format_number(here->value) : "");
    columns[3].cells.push_back(there ? format_number(there->value) : "");
    columns[4].cells.push_back(here && there ? fmt::format("{:.3f}", there->value / here->value)
                                             : "");
  }
  return columns[0].cells.empty() ? "" : pipe_table(columns) + "\n";
}

std::string warnings_text(const Report& report) {
  std::string text;
  for (const std::string& line : warning_lines(report)) text += fmt::format("Note: {}.\n", line);
  return text;
}

std::string counts_text(const Report& report) {
  std::vector<std::string> parts;
  for (const StatusCount& one : count_statuses(report))
    if (one.count > 0) parts.push_back(fmt::format("{} {}", one.count, one.status));
  return fmt::format("Members of the space: {}{}{}.\n", report.rows.size(),
                     parts.empty() ? "" : ": ", fmt::join(parts, ", "));
}

std::string reasons_text(const Report& report) {
  const std::vector<ReasonGroup> groups = reason_groups(report);
  if (groups.empty()) return "";
  constexpr std::size_t most_groups = 30;
  std::string out = "\nWhat failed or did not run:\n";
  for (std::size_t i = 0; i < std::min(groups.size(), most_groups); ++i) {
    const ReasonGroup& group = groups[i];
    out += fmt::format("  {} {} ({}{}): {}\n", group.count, group.status,
                       fmt::join(group.first_names, ", "),
                       group.count > group.first_names.size() ? ", ..." : "",
                       group.first_reason.empty() ? "no reason given" : group.first_reason);
  }
  if (groups.size() > most_groups)
    out += fmt::format("  and {} further reasons, in results.csv\n", groups.size() - most_groups);
  return out;
}

/// As Python prints a timedelta, hours going on after 23.
std::string elapsed_text(double seconds) {
  const auto us = static_cast<std::int64_t>(std::llround(seconds * 1e6));
  const std::int64_t whole_s = us / 1'000'000;
  return fmt::format("{}:{:02}:{:02}.{:06}", whole_s / 3600, whole_s / 60 % 60, whole_s % 60,
                     us % 1'000'000);
}

}  // namespace

std::string summary_text(const Report& report) {
  const auto num_experiments = std::count_if(report.rows.begin(), report.rows.end(),
                                             [](const Row& row) { return row.record.has_value(); });
  return spaces_table(report) + "\n" + verification_text(report) + winner_text(report) +
         counts_text(report) + warnings_text(report) + reasons_text(report) + front_text(report) +
         prediction_text(report) +
         fmt::format("\nTuning completed in {}. Total number of experiments: {}.\n",
                     elapsed_text(report.elapsed_s), num_experiments);
}

json::Value summary_json(const Report& report, int exit_code) {
  json::Value best;
  if (const auto index = best_row(report)) {
    const Row& answer = report.rows[answer_row(report, *index)];
    const Record& record = *answer.record;
    const MetricValue value = *reported_value(report, answer);
    best = {
        {"name", record.experiment.name},           {"metric", to_text(report.metric)},
        {"value", finite_or_null(value.value)},     {"ci_low", finite_or_null(value.ci_low)},
        {"ci_high", finite_or_null(value.ci_high)}, {"num_gpus", record.experiment.shape.size()},
        {"label", label_of(report, answer)}};
    if (const std::string& why = record.measurement.not_comparable; !why.empty())
      best["not_comparable"] = why;
  }
  json::Value counts = json::Value::object();
  for (const StatusCount& one : count_statuses(report)) counts[one.status] = one.count;
  return {{"best", std::move(best)}, {"counts", std::move(counts)}, {"exit_code", exit_code}};
}

}  // namespace dstune
