// The results as data: JSON of an experiment, of the answer, of its validation, of the whole run;
// and a table of all members.
#include <algorithm>
#include <cmath>
#include <concepts>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/text.hpp"
#include "dstune/report/results.hpp"
#include "parts.hpp"
#include "searched_keys.hpp"

namespace dstune {

namespace {

constexpr double us_per_s = 1e6;

void add_interval(json::Value& out, const std::optional<MetricValue>& value) {
  out["ci_low"] = finite_or_null(part_of(value, &MetricValue::ci_low));
  out["ci_high"] = finite_or_null(part_of(value, &MetricValue::ci_high));
}

/// The value and its interval; null what is no number.
void add_value(json::Value& out, const std::optional<MetricValue>& value) {
  out["value"] = finite_or_null(part_of(value, &MetricValue::value));
  add_interval(out, value);
}

/// Adds the value of our own step if the ranked value is the target's.
void add_measured(json::Value& out, const Standing& standing) {
  if (standing.measured) add_value(out["measured"], standing.measured);
}

void add_not_comparable(json::Value& out, const Measurement& measurement) {
  if (!measurement.not_comparable.empty()) out["not_comparable"] = measurement.not_comparable;
}

json::Value peak_memory_json(const PeakMemory& peak) {
  json::Value value = {{"total", peak.total_bytes},
                       {"device", peak.total_bytes - peak.host_bytes},
                       {"host", peak.host_bytes}};
  for (const auto& [category, bytes] : peak.category_bytes) value[category] = bytes;
  value["process"] = peak.process_bytes;
  if (peak.gpu_bytes > 0) value["gpu"] = peak.gpu_bytes;
  if (peak.communicator_bytes > 0) value["communicators"] = peak.communicator_bytes;
  if (peak.graph_bytes > 0) value["graphs"] = peak.graph_bytes;
  return value;
}

/// DeepSpeed's keys; null where nothing was timed.
void add_deepspeed_metrics(json::Value& value, const Record& record) {
  const Measurement& measurement = record.measurement;
  // Experiments that were raced out have a value, too.
  const auto so_far = [&](Metric metric) {
    return part_of(value_so_far(measurement, metric, record.experiment), &MetricValue::value);
  };
  const auto latency_us = so_far(Metric::latency);
  const auto us = [&](double seconds) {
    return latency_us ? finite_or_null(seconds * us_per_s) : json::Value();
  };
  value["fwd"] = us(measurement.forward_s);
  value["bwd"] = us(measurement.backward_s);
  value["step"] = us(measurement.update_s);
  value["latency"] = finite_or_null(latency_us);
  value["FLOPS_per_gpu"] = finite_or_null(so_far(Metric::flops));
  value["throughput"] = finite_or_null(so_far(Metric::throughput));
  value["rank"] = 0;
}

json::Value run_json(const Experiment& experiment, const Repeat& repeat, Metric metric) {
  const Measurement& measurement = repeat.measurement;
  json::Value out = {
      {"round", repeat.round},
      {"status", to_text(measurement.status)},
      {"reason", measurement.reason},
      {"alone", repeat.is_alone},
      {"started_at", format_time(repeat.started_at)},
      {"finished_at", format_time(repeat.finished_at)},
      {"built", measurement.overhead_s.contains("build")},
      {"warmup_steps", measurement.warmup_steps},
      {"skipped_steps", measurement.skipped_steps},
      {"step_times_s", measurement.step_times_s},
      {"group", {{"world_ranks", measurement.world_ranks}, {"hosts", measurement.hosts}}}};
  add_value(out, metric_value(measurement, metric, experiment));
  return out;
}

json::Value runs_json(const Row& row, bool of_finals, Metric metric) {
  json::Value runs = json::Value::array();
  for (const Repeat& repeat : row.repeats)
    if ((repeat.kind == RepeatKind::final_round) == of_finals)
      runs.push_back(run_json(row.planned.experiment, repeat, metric));
  return runs;
}

json::Value spread_json(const Spread& spread) {
  return {{"deviation", spread.deviation}, {"degrees_of_freedom", spread.degrees_of_freedom}};
}

json::Value machine_json(const std::optional<MachineConduct>& machine) {
  if (!machine) return nullptr;
  json::Value out = {{"runs", machine->num_runs},
                     {"run_deviation", machine->run_deviation},
                     {"drift_deviation", machine->drift_deviation},
                     {"disturbed_runs", machine->disturbed_runs},
                     {"loaded_runs", machine->loaded_runs},
                     {"largest_load", machine->largest_load},
                     {"steps_interrupted", machine->are_steps_interrupted}};
  if (machine->load)
    out["load"] = {{"average", machine->load->load_average},
                   {"cores", machine->load->num_cores},
                   {"stolen_share", machine->load->stolen_share}};
  return out;
}

json::Value finalist_json(const Answer& answer, const Finalist& finalist) {
  const Standing& standing = answer.standings[finalist.member];
  const Row& row = *standing.row;
  json::Value out = {{"name", row.planned.experiment.name},
                     {"num_gpus", row.planned.experiment.shape.size()}};
  add_value(out, standing.ranked);
  add_measured(out, standing);
  json::Value& first = out["first_run"] = {{"alone", row.record->is_alone}};
  add_value(first, finalist.first_run);
  out["probability_best"] = finite_or_null(finalist.probability_best);
  out["peak_memory_bytes"] = row.record->measurement.peak_memory.total_bytes;
  out["runs"] = runs_json(row, true, answer.metric);
  return out;
}

json::Value verified_json(const Standing& standing) {
  if (!standing.verified) return nullptr;
  json::Value out = json::Value::object();
  add_value(out, standing.verified);
  out["peak_memory_bytes"] = standing.row->verified->peak_memory.total_bytes;
  return out;
}

/// Seconds of each; those of collective calls by kind, in an object of their own.
json::Value costs_json(const Overheads& costs_s) {
  json::Value out = json::Value::object();
  for (std::size_t each = 0; each < costs_s.size(); ++each) {
    const auto overhead = static_cast<Overhead>(each);
    if (const std::string kind = collective_kind(overhead); !kind.empty())
      out["collective_call"][kind] = costs_s[each];
    else
      out[std::string(to_text(overhead))] = costs_s[each];
  }
  return out;
}

/// A scale and costs, whosever they are.
json::Value time_json(double scale, const Overheads& costs_s) {
  return {{"scale", scale}, {"costs_s", costs_json(costs_s)}};
}

json::Value constants_json(const TargetConstants& constants, Precision precision) {
  json::Value out = time_json(constants.time.scale_of(precision), constants.time.costs_s);
  out["error"] = constants.error > 0 ? json::Value(constants.error) : json::Value();
  if (constants.num_engines > 0)
    out["measured_here"] = {{"engines", constants.num_engines}, {"error", constants.fit_error}};
  out["source"] = source_text(constants);
  out["machine"] = constants.machine;
  return out;
}

json::Value calibration_json(const std::optional<CalibrationSummary>& calibration,
                             Precision precision) {
  if (!calibration) return nullptr;
  json::Value runs = json::Value::array();
  for (const CalibrationSummary::Run& run : calibration->runs)
    runs.push_back({{"name", run.name},
                    {"path", run.path},
                    {"step_s", run.step_s},
                    {"measured_s", run.measured_s},
                    {"fitted_s", run.fitted_s}});
  json::Value out = time_json(calibration->fit.scale_of(precision), calibration->fit.costs_s);
  out["memory_offset_bytes"] = calibration->memory_offset_bytes;
  out["runs"] = std::move(runs);
  return out;
}

/// The facts of the answer that come first in every file.
json::Value recommended_json(const Recommendation& recommendation) {
  const Experiment& experiment = recommendation.standing.row->record->experiment;
  json::Value out = {{"name", experiment.name}, {"metric", to_text(recommendation.metric)}};
  add_value(out, recommendation.standing.reported);
  add_measured(out, recommendation.standing);
  out["num_gpus"] = experiment.shape.size();
  out["label"] = recommendation.label;
  out["probability_best"] = recommendation.probability_best;
  out["chance_of_better"] = finite_or_null(recommendation.chance_of_better);
  json::Value& undecided = out["undecided"] = json::Value::array();
  for (const Undecided& one : recommendation.undecided)
    undecided.push_back({{"name", one.name}, {"better_by_at_most", one.at_most}});
  return out;
}

/// Adds the facts that stand beside the answer in every file.
void add_gain(json::Value& out, const Recommendation& recommendation) {
  json::Value& baseline = out["baseline"];
  if (recommendation.baseline) {
    baseline = {{"name", recommendation.baseline->name}};
    baseline["value"] =
        finite_or_null(part_of(recommendation.baseline->value, &MetricValue::value));
    baseline["gain"] = finite_or_null(recommendation.baseline->gain);
    baseline["gain_low"] = finite_or_null(recommendation.baseline->gain_low);
    baseline["gain_high"] = finite_or_null(recommendation.baseline->gain_high);
  }
  if (const auto& change = recommendation.batch_change)
    out["global_batch"] = {{"today", change->today}, {"answer", change->answer}};
  out["tuning_gpu_hours"] = recommendation.cost.gpu_hours;
  out["earned_back_steps"] = finite_or_null(recommendation.cost.earned_back_steps);
  out["more_time_s"] = finite_or_null(recommendation.more_time_s);
}

// The table.

std::string text_of(std::integral auto number) {
  return std::to_string(number);
}
std::string text_of(const std::string& text) {
  return text;
}
/// Enough digits to read the same number again; nothing where it is none.
std::string text_of(double number) {
  return std::isfinite(number) ? fmt::format("{}", number) : "";
}
std::string text_of(const std::optional<double>& number) {
  return number ? text_of(*number) : "";
}
/// Bytes that nobody counted are 0.
std::string if_counted(std::int64_t bytes) {
  return bytes > 0 ? text_of(bytes) : "";
}

double sum_of(const std::map<std::string, double>& phases_s) {
  double sum_s = 0;
  for (const auto& [phase, seconds] : phases_s) sum_s += seconds;
  return sum_s;
}

/// A column's name, unit in it, and what a member says there.
using Cell = std::pair<const char*, std::string>;

/// `with_target`: the columns of our own step beside the target's time, too.
std::vector<Cell> cells_of(Metric metric, const Standing& standing, bool with_target) {
  static const Record nothing;
  const Row& row = *standing.row;
  const Experiment& experiment = row.planned.experiment;
  const TrainingConfig& config = experiment.config;
  const bool has_run = row.record.has_value();
  const Record& record = has_run ? *row.record : nothing;
  const Measurement& measured = record.measurement;
  const PeakMemory& peak = measured.peak_memory;
  const Prediction& predicted = has_run ? record.predicted : row.planned.predicted;
  const bool is_predicted = has_run || row.planned.status != PlanStatus::pruned;
  const auto if_run = [&](const auto& value) { return has_run ? text_of(value) : std::string(); };
  const auto if_predicted = [&](const auto& value) {
    return is_predicted ? text_of(value) : std::string();
  };
  const auto first_run = [&](Metric in_metric) {
    return text_of(
        part_of(metric_value(measured, in_metric, record.experiment), &MetricValue::value));
  };
  std::vector<Cell> cells = {
      {"name", experiment.name},
      {"status", status_text(row)},
      {"reason", reason_text(row)},
      {"num_gpus", text_of(experiment.shape.size())},
      {"num_nodes", text_of(experiment.shape.num_nodes)},
      {"zero_stage", text_of(config.zero_stage)},
      {"micro_batch", text_of(config.micro_batch)},
      {"accumulation_steps", text_of(config.accumulation_steps)},
      {"train_batch_size", text_of(batch_of(experiment))},
      {"recompute", std::string(to_text(config.recompute))},
      {"metric", std::string(to_text(metric))},
      {"value", text_of(part_of(standing.reported, &MetricValue::value))},
      {"ci_low", text_of(part_of(standing.reported, &MetricValue::ci_low))},
      {"ci_high", text_of(part_of(standing.reported, &MetricValue::ci_high))},
      {"throughput", first_run(Metric::throughput)},
      {"latency_us", first_run(Metric::latency)},
      {"flops_per_gpu", first_run(Metric::flops)},
      {"steps", if_run(std::ssize(measured.step_times_s))},
      {"warmup_steps", if_run(measured.warmup_steps)},
      {"peak_memory_bytes", if_counted(peak.total_bytes)},
      {"process_memory_bytes", if_counted(peak.process_bytes)},
      {"joules_per_sample", text_of(standing.joules_per_sample)},
      {"overhead_s", if_run(sum_of(measured.overhead_s))},
      {"attempt", if_run(record.attempt)},
      {"world_ranks", fmt::format("{}", fmt::join(measured.world_ranks, " "))},
      {"started_at", if_run(format_time(record.started_at))},
      {"finished_at", if_run(format_time(record.finished_at))},
      {"predicted_throughput", if_predicted(predicted.throughput)},
      {"prediction_error", text_of(prediction_error(record))},
      {"predicted_peak_memory_bytes", if_predicted(predicted.peak_memory_bytes)},
      {"predicted_target_memory_bytes", if_predicted(predicted.target_memory_bytes)},
      {"verified_status", row.verified ? std::string(to_text(row.verified->status)) : ""},
      {"verified_value", text_of(part_of(standing.verified, &MetricValue::value))},
      {"verified_peak_memory_bytes",
       row.verified ? if_counted(row.verified->peak_memory.total_bytes) : ""},
      {"changed_numerics", fmt::format("{}", fmt::join(changed_numerics(experiment), " "))},
      {"gpu_memory_bytes", if_counted(peak.gpu_bytes)},
      {"predicted_gpu_memory_bytes", if_counted(record.predicted.gpu_memory_bytes)},
      {"flags", fmt::format("{}", fmt::join(flags_of(measured), "; "))},
  };
  if (with_target) {
    const auto& here = standing.measured;
    cells.emplace_back("measured_value", text_of(part_of(here, &MetricValue::value)));
    cells.emplace_back("measured_ci_low", text_of(part_of(here, &MetricValue::ci_low)));
    cells.emplace_back("measured_ci_high", text_of(part_of(here, &MetricValue::ci_high)));
    cells.emplace_back("predicted_target_throughput", if_predicted(predicted.target_throughput));
  }
  const bool is_pruned = !has_run && row.planned.status == PlanStatus::pruned;
  cells.emplace_back("pruned_because",
                     is_pruned ? std::string(to_text(row.planned.prune_kind)) : "");
  return cells;
}

/// A value of a searched key: JSON, but texts as they are.
std::string value_in_table(const json::Value* value) {
  if (value == nullptr) return "";
  return value->is_string() ? value->get<std::string>() : json_text(*value);
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"') out += '"';
    out += letter;
  }
  return out + "\"";
}

}  // namespace

json::Value metrics_json(const Record& record, Metric metric,
                         const std::optional<TargetTime>& target,
                         const std::optional<MetricValue>& target_value,
                         std::string_view instrument) {
  const Measurement& measurement = record.measurement;
  json::Value value = json::Value::object();
  add_deepspeed_metrics(value, record);
  value["status"] = to_text(measurement.status);
  value["reason"] = measurement.reason;
  value["attempt"] = record.attempt;
  value["instrument"] = instrument;
  value["step_times_s"] = measurement.step_times_s;
  value["warmup_steps"] = measurement.warmup_steps;
  value["skipped_steps"] = measurement.skipped_steps;
  value["metric"] = to_text(metric);
  if (target)
    add_value(value, target_value);
  else
    add_interval(value, value_so_far(measurement, metric, record.experiment));
  value["losses"] = measurement.losses;
  value["peak_memory_bytes"] = peak_memory_json(measurement.peak_memory);
  value["predicted"] = json::write(record.predicted);
  if (target) {
    json::Value& out = value["target"] = {{"throughput", finite_or_null(target->throughput)}};
    out.update(time_json(target->scale, target->costs_s));
    out["source"] = target->source;
  }
  value["group"] = {{"world_ranks", measurement.world_ranks}, {"hosts", measurement.hosts}};
  value["rank_forward_s"] = measurement.rank_forward_s;
  const auto joules = joules_per_sample(measurement, batch_of(record.experiment));
  value["energy_j"] = finite_or_null(measurement.energy_j);
  value["joules_per_sample"] = finite_or_null(joules);
  value["alone"] = record.is_alone;
  value["flags"] = flags_of(measurement);
  if (measurement.gpu) value["gpu"] = to_json(*measurement.gpu);
  if (!measurement.fallbacks.empty()) value["fallbacks"] = measurement.fallbacks;
  add_not_comparable(value, measurement);
  if (!measurement.notes.empty()) value["notes"] = measurement.notes;
  value["changed_numerics"] = changed_numerics(record.experiment);
  value["started_at"] = format_time(record.started_at);
  value["finished_at"] = format_time(record.finished_at);
  value["overhead_s"] = measurement.overhead_s;
  return value;
}

json::Value optimal_json(const Recommendation& recommendation, const std::string& command) {
  const Record& best = *recommendation.standing.row->record;
  const GroupShape& shape = best.experiment.shape;
  json::Value out = recommended_json(recommendation);
  out["num_gpus_per_node"] = shape.num_gpus;
  out["num_nodes"] = shape.num_nodes;
  out["sequence_length"] = best.experiment.config.sequence_length;
  out["recompute"] = to_text(best.experiment.config.recompute);
  out["changed_numerics"] = changed_numerics(best.experiment);
  out["model_profile"] = model_profile_json(recommendation.model_profile);
  add_gain(out, recommendation);
  out["verified"] = verified_json(recommendation.standing);
  const Precision precision = best.experiment.config.precision;
  if (recommendation.constants)
    out["target"] = constants_json(*recommendation.constants, precision);
  if (const auto& doubt = recommendation.order_doubt) {
    json::Value& target = out["target"];
    target["chance_of_other"] = doubt->chance;
    target["likeliest_other"] =
        doubt->likeliest.empty() ? json::Value() : json::Value(doubt->likeliest);
    target["chance_of_likeliest"] = doubt->chance_of_it;
  }
  out["calibration"] = calibration_json(recommendation.calibration, precision);
  out["command"] = command;
  add_not_comparable(out, best.measurement);
  return out;
}

json::Value summary_json(const Answer& answer, int exit_code) {
  json::Value best;
  if (answer.recommendation) {
    best = recommended_json(*answer.recommendation);
    add_not_comparable(best, answer.recommendation->standing.row->record->measurement);
  }
  json::Value counts = json::Value::object();
  for (const StatusCount& one : answer.counts) counts[one.status] = one.count;
  json::Value out = {{"best", std::move(best)}};
  add_gain(out, answer.recommendation.value_or(Recommendation{}));
  out["counts"] = std::move(counts);
  out["pruned"] = prune_counts_json(answer.pruned);
  out["exit_code"] = exit_code;
  return out;
}

json::Value validation_json(const Answer& answer) {
  json::Value finalists = json::Value::array();
  for (const Finalist& finalist : answer.finalists)
    finalists.push_back(finalist_json(answer, finalist));
  json::Value repeats = json::Value::array();
  answer.standings.visit_open([&](std::size_t, const Standing& standing) {
    json::Value runs = runs_json(*standing.row, false, answer.metric);
    if (!runs.empty())
      repeats.push_back(
          {{"name", standing.row->planned.experiment.name}, {"runs", std::move(runs)}});
  });
  json::Value winner;
  if (answer.best) winner = answer.standings[*answer.best].row->planned.experiment.name;
  return {{"metric", to_text(answer.metric)},
          {"done", answer.finals_are_done},
          {"reason", answer.no_finals_reason},
          {"winner", std::move(winner)},
          {"machine", machine_json(answer.machine)},
          {"spread", spread_json(answer.spread_of_finals)},
          {"spread_in_search", spread_json(answer.spread_in_search)},
          {"finalists", std::move(finalists)},
          {"repeats_in_search", std::move(repeats)}};
}

std::string results_csv(const Answer& answer) {
  std::string out;
  write_results_csv(answer, [&](std::string_view piece) { out += piece; });
  return out;
}

void write_results_csv(const Answer& answer, const TextSink& sink) {
  std::vector<std::string> line;
  const Row none;
  const bool with_target = has_targets(answer);
  for (const Cell& cell : cells_of(answer.metric, {&none}, with_target))
    line.emplace_back(cell.first);
  std::vector<SearchedKey> keys = searched_keys(answer).keys;
  std::erase_if(keys, [&](const SearchedKey& key) {
    return key.is_derived || std::ranges::find(line, key.label) != line.end();
  });
  for (const SearchedKey& key : keys) line.push_back(quoted(key.label));
  sink(fmt::format("{}\r\n", fmt::join(line, ",")));
  std::size_t member = 0;
  for (const Standing& standing : answer.standings) {
    line.clear();
    for (const Cell& cell : cells_of(answer.metric, standing, with_target))
      line.push_back(quoted(cell.second));
    for (const SearchedKey& key : keys) line.push_back(quoted(value_in_table(key.find(member))));
    ++member;
    sink(fmt::format("{}\r\n", fmt::join(line, ",")));
  }
}

}  // namespace dstune
