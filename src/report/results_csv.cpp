#include <cmath>
#include <concepts>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/units.hpp"
#include "dstune/report/results.hpp"

namespace dstune {

namespace {

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

std::optional<double> part_of(const std::optional<MetricValue>& value, double MetricValue::*part) {
  return value ? std::optional((*value).*part) : std::nullopt;
}

double sum_of(const std::map<std::string, double>& phases_s) {
  double sum_s = 0;
  for (const auto& [phase, seconds] : phases_s) sum_s += seconds;
  return sum_s;
}

/// A column's name, unit in it, and what a member says there.
using Cell = std::pair<const char*, std::string>;

std::vector<Cell> cells_of(Metric metric, const Standing& standing) {
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
  return {
      {"name", experiment.name},
      {"status", status_text(row)},
      {"reason", reason_text(row)},
      {"num_gpus", text_of(experiment.shape.size())},
      {"num_nodes", text_of(experiment.shape.num_nodes)},
      {"zero_stage", text_of(config.zero_stage)},
      {"micro_batch", text_of(config.micro_batch)},
      {"accumulation_steps", text_of(config.accumulation_steps)},
      {"train_batch_size", text_of(global_batch(config, experiment.shape.size()))},
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
      {"peak_memory_bytes", if_run(peak.total_bytes)},
      {"process_memory_bytes", if_run(peak.process_bytes)},
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

std::string results_csv(const Answer& answer) {
  std::vector<std::string> line;
  const Row none;
  for (const Cell& cell : cells_of(answer.metric, {&none})) line.emplace_back(cell.first);
  std::string out = fmt::format("{}\r\n", fmt::join(line, ","));
  for (const Standing& standing : answer.standings) {
    line.clear();
    for (const Cell& cell : cells_of(answer.metric, standing)) line.push_back(quoted(cell.second));
    out += fmt::format("{}\r\n", fmt::join(line, ","));
  }
  return out;
}

}  // namespace dstune
