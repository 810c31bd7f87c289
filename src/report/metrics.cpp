#include "dstune/base/units.hpp"
#include "dstune/report/flags.hpp"
#include "dstune/report/numerics.hpp"
#include "dstune/report/results.hpp"
#include "journal/record_json.hpp"
#include "row.hpp"

namespace dstune {

namespace {

constexpr double us_per_s = 1e6;

json::Value all_finite_or_null(const std::vector<double>& numbers) {
  json::Value list = json::Value::array();
  for (const double number : numbers) list.push_back(finite_or_null(number));
  return list;
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

/// As value_in(), of one that was raced out, too.
std::optional<MetricValue> value_so_far_in(const Record& record, Metric metric) {
  const Experiment& experiment = record.experiment;
  const int group_size = experiment.shape.size();
  return value_so_far(record.measurement, metric, global_batch(experiment.config, group_size),
                      group_size);
}

/// DeepSpeed's keys; null where nothing was timed.
void add_deepspeed_metrics(json::Value& value, const Record& record) {
  const Measurement& measurement = record.measurement;
  const auto latency_us = value_so_far_in(record, Metric::latency);
  const auto flops = value_so_far_in(record, Metric::flops);
  const auto throughput = value_so_far_in(record, Metric::throughput);
  const auto us = [&](double seconds) {
    return latency_us ? finite_or_null(seconds * us_per_s) : json::Value();
  };
  value["fwd"] = us(measurement.forward_s);
  value["bwd"] = us(measurement.backward_s);
  value["step"] = us(measurement.update_s);
  value["latency"] = latency_us ? finite_or_null(latency_us->value) : json::Value();
  value["FLOPS_per_gpu"] = flops ? finite_or_null(flops->value) : json::Value();
  value["throughput"] = throughput ? finite_or_null(throughput->value) : json::Value();
  value["rank"] = 0;
}

}  // namespace

std::optional<MetricValue> value_in(const Record& record, Metric metric) {
  const Experiment& experiment = record.experiment;
  const int group_size = experiment.shape.size();
  return metric_value(record.measurement, metric, global_batch(experiment.config, group_size),
                      group_size);
}

json::Value metrics_json(const Record& record, Metric metric) {
  const Measurement& measurement = record.measurement;
  json::Value value = json::Value::object();
  add_deepspeed_metrics(value, record);
  value["status"] = to_text(measurement.status);
  value["reason"] = measurement.reason;
  value["attempt"] = record.attempt;
  value["step_times_s"] = all_finite_or_null(measurement.step_times_s);
  value["warmup_steps"] = measurement.warmup_steps;
  value["skipped_steps"] = measurement.skipped_steps;
  const auto result = value_so_far_in(record, metric);
  value["metric"] = to_text(metric);
  value["ci_low"] = result ? finite_or_null(result->ci_low) : json::Value();
  value["ci_high"] = result ? finite_or_null(result->ci_high) : json::Value();
  value["losses"] = all_finite_or_null(measurement.losses);
  value["peak_memory_bytes"] = peak_memory_json(measurement.peak_memory);
  value["predicted"] = to_json(record.predicted);
  value["group"] = {{"world_ranks", measurement.world_ranks}, {"hosts", measurement.hosts}};
  value["rank_forward_s"] = all_finite_or_null(measurement.rank_forward_s);
  const auto joules = joules_per_sample(
      measurement, global_batch(record.experiment.config, record.experiment.shape.size()));
  value["energy_j"] = measurement.energy_j ? finite_or_null(*measurement.energy_j) : json::Value();
  value["joules_per_sample"] = joules ? finite_or_null(*joules) : json::Value();
  value["alone"] = record.is_alone;
  value["flags"] = flags_of(measurement);
  if (measurement.gpu) value["gpu"] = to_json(*measurement.gpu);
  if (!measurement.not_comparable.empty()) value["not_comparable"] = measurement.not_comparable;
  value["changed_numerics"] = changed_numerics(record.experiment);
  value["started_at"] = format_time(record.started_at);
  value["finished_at"] = format_time(record.finished_at);
  json::Value& overhead = value["overhead_s"] = json::Value::object();
  for (const auto& [phase, seconds] : measurement.overhead_s)
    overhead[phase] = finite_or_null(seconds);
  return value;
}

}  // namespace dstune
