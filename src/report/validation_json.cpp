#include "dstune/base/units.hpp"
#include "dstune/report/validation.hpp"
#include "journal/record_json.hpp"
#include "row.hpp"

namespace dstune {

namespace {

void add_value(json::Value& out, const std::optional<MetricValue>& value) {
  out["value"] = value ? finite_or_null(value->value) : json::Value();
  out["ci_low"] = value ? finite_or_null(value->ci_low) : json::Value();
  out["ci_high"] = value ? finite_or_null(value->ci_high) : json::Value();
}

json::Value run_json(const Report& report, const Row& row, const Repeat& repeat) {
  const Experiment& experiment = row.planned.experiment;
  const Measurement& measurement = repeat.measurement;
  const int group_size = experiment.shape.size();
  json::Value out = {
      {"round", repeat.round},
      {"status", to_text(measurement.status)},
      {"reason", measurement.reason},
      {"alone", repeat.is_alone},
      {"started_at", format_time(repeat.started_at)},
      {"finished_at", format_time(repeat.finished_at)},
      {"warmup_steps", measurement.warmup_steps},
      {"skipped_steps", measurement.skipped_steps},
      {"step_times_s", measurement.step_times_s},
      {"group", {{"world_ranks", measurement.world_ranks}, {"hosts", measurement.hosts}}}};
  add_value(out, metric_value(measurement, report.metric,
                              global_batch(experiment.config, group_size), group_size));
  return out;
}

json::Value runs_json(const Report& report, const Row& row, RepeatKind kind) {
  json::Value runs = json::Value::array();
  for (const Repeat& repeat : row.repeats)
    if (repeat.kind == kind) runs.push_back(run_json(report, row, repeat));
  return runs;
}

json::Value spread_json(const Spread& spread) {
  return {{"deviation", spread.deviation}, {"degrees_of_freedom", spread.degrees_of_freedom}};
}

json::Value finalist_json(const Report& report, const Row& row) {
  json::Value out = {{"name", row.planned.experiment.name},
                     {"num_gpus", row.planned.experiment.shape.size()}};
  add_value(out, ranked_value(report, row));
  json::Value& first = out["first_run"] = {{"alone", row.record->is_alone}};
  add_value(first, value_in(*row.record, report.metric));
  out["probability_best"] =
      ranked_value(report, row) ? json::Value(chance_of_best(report, row)) : json::Value();
  out["peak_memory_bytes"] = row.record->measurement.peak_memory.total_bytes;
  out["runs"] = runs_json(report, row, RepeatKind::final_round);
  return out;
}

}  // namespace

json::Value validation_json(const Report& report) {
  const Validation& validation = report.validation;
  const auto best = best_row(report);
  json::Value all = json::Value::array();
  for (const std::size_t index : validation.finalists)
    all.push_back(finalist_json(report, report.rows[index]));
  json::Value repeats = json::Value::array();
  for (const Row& row : report.rows) {
    json::Value runs = runs_json(report, row, RepeatKind::spread);
    if (!runs.empty())
      repeats.push_back({{"name", row.planned.experiment.name}, {"runs", std::move(runs)}});
  }
  return {
      {"metric", to_text(report.metric)},
      {"done", validation.is_done},
      {"reason", validation.reason},
      {"winner", best ? json::Value(report.rows[*best].planned.experiment.name) : json::Value()},
      {"spread", spread_json(spread_of_finals(report))},
      {"spread_in_search", spread_json(spread_in_search(report))},
      {"finalists", std::move(all)},
      {"repeats_in_search", std::move(repeats)}};
}

}  // namespace dstune
