#include "results_csv.hpp"

#include <cmath>
#include <iterator>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/units.hpp"
#include "dstune/report/numerics.hpp"
#include "prediction_text.hpp"
#include "row.hpp"

namespace dstune {

namespace {

/// Enough digits to read the same number again; nothing where it is none.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

std::string in_metric(const Row& row, Metric metric, double MetricValue::*part) {
  if (!row.record) return "";
  const auto result = value_in(*row.record, metric);
  return result ? number((*result).*part) : "";
}

std::string reported(const Report& report, const Row& row, double MetricValue::*part) {
  const auto result = reported_value(report, row);
  return result ? number((*result).*part) : "";
}

/// A field of what was measured, empty where nothing was.
template <class Get>
std::string measured(const Row& row, Get&& get) {
  return row.record ? get(*row.record) : std::string();
}

/// A column: its name, unit in it, and what a row says there.
struct Field {
  const char* name;
  std::string (*text)(const Report&, const Row&);
};

const Prediction* prediction(const Row& row) {
  if (row.record) return &row.record->predicted;
  return row.planned.status == PlanStatus::pruned ? nullptr : &row.planned.predicted;
}

const Field identity_fields[] = {
    {"name", [](const Report&, const Row& row) { return row.planned.experiment.name; }},
    {"status", [](const Report&, const Row& row) { return status_text(row); }},
    {"reason", [](const Report&, const Row& row) { return reason_text(row); }},
    {"num_gpus",
     [](const Report&, const Row& row) {
       return std::to_string(row.planned.experiment.shape.size());
     }},
    {"num_nodes",
     [](const Report&, const Row& row) {
       return std::to_string(row.planned.experiment.shape.num_nodes);
     }},
    {"zero_stage",
     [](const Report&, const Row& row) {
       return std::to_string(row.planned.experiment.config.zero_stage);
     }},
    {"micro_batch",
     [](const Report&, const Row& row) {
       return std::to_string(row.planned.experiment.config.micro_batch);
     }},
    {"accumulation_steps",
     [](const Report&, const Row& row) {
       return std::to_string(row.planned.experiment.config.accumulation_steps);
     }},
    {"train_batch_size",
     [](const Report&, const Row& row) {
       const Experiment& experiment = row.planned.experiment;
       return std::to_string(global_batch(experiment.config, experiment.shape.size()));
     }},
    {"recompute",
     [](const Report&, const Row& row) {
       return std::string(to_text(row.planned.experiment.config.recompute));
     }},
};

const Field result_fields[] = {
    {"metric",
     [](const Report& report, const Row&) { return std::string(to_text(report.metric)); }},
    {"value", [](const Report& report,
                 const Row& row) { return reported(report, row, &MetricValue::value); }},
    {"ci_low", [](const Report& report,
                  const Row& row) { return reported(report, row, &MetricValue::ci_low); }},
    {"ci_high", [](const Report& report,
                   const Row& row) { return reported(report, row, &MetricValue::ci_high); }},
    {"throughput",
     [](const Report&, const Row& row) {
       return in_metric(row, Metric::throughput, &MetricValue::value);
     }},
    {"latency_us",
     [](const Report&, const Row& row) {
       return in_metric(row, Metric::latency, &MetricValue::value);
     }},
    {"flops_per_gpu",
     [](const Report&, const Row& row) {
       return in_metric(row, Metric::flops, &MetricValue::value);
     }},
};

const Field measured_fields[] = {
    {"steps",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         return std::to_string(record.measurement.step_times_s.size());
       });
     }},
    {"warmup_steps",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         return std::to_string(record.measurement.warmup_steps);
       });
     }},
    {"peak_memory_bytes",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         return std::to_string(record.measurement.peak_memory.total_bytes);
       });
     }},
    {"process_memory_bytes",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         return std::to_string(record.measurement.peak_memory.process_bytes);
       });
     }},
    {"joules_per_sample",
     [](const Report&, const Row& row) {
       const auto joules = joules_per_sample(row);
       return joules ? number(*joules) : std::string();
     }},
    {"overhead_s",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         double sum_s = 0;
         for (const auto& [phase, seconds] : record.measurement.overhead_s) sum_s += seconds;
         return number(sum_s);
       });
     }},
    {"attempt",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) { return std::to_string(record.attempt); });
     }},
    {"world_ranks",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         return fmt::format("{}", fmt::join(record.measurement.world_ranks, " "));
       });
     }},
    {"started_at",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) { return format_time(record.started_at); });
     }},
    {"finished_at",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) { return format_time(record.finished_at); });
     }},
};

const Field predicted_fields[] = {
    {"predicted_throughput",
     [](const Report&, const Row& row) {
       const Prediction* predicted = prediction(row);
       return predicted != nullptr && predicted->throughput ? number(*predicted->throughput) : "";
     }},
    {"prediction_error",
     [](const Report&, const Row& row) {
       return measured(row, [](const Record& record) {
         const auto error = prediction_error(record);
         return error ? number(*error) : std::string();
       });
     }},
    {"predicted_peak_memory_bytes",
     [](const Report&, const Row& row) {
       const Prediction* predicted = prediction(row);
       return predicted != nullptr ? std::to_string(predicted->peak_memory_bytes) : "";
     }},
    {"predicted_target_memory_bytes",
     [](const Report&, const Row& row) {
       const Prediction* predicted = prediction(row);
       return predicted != nullptr ? std::to_string(predicted->target_memory_bytes) : "";
     }},
};

const Field verified_fields[] = {
    {"verified_status",
     [](const Report&, const Row& row) {
       return row.verified ? std::string(to_text(row.verified->status)) : "";
     }},
    {"verified_value",
     [](const Report& report, const Row& row) {
       const auto value = verified_value(row, report.metric);
       return value ? number(value->value) : "";
     }},
    {"verified_peak_memory_bytes",
     [](const Report&, const Row& row) {
       return row.verified && row.verified->peak_memory.total_bytes > 0
                  ? std::to_string(row.verified->peak_memory.total_bytes)
                  : "";
     }},
};

const Field numerics_fields[] = {
    {"changed_numerics",
     [](const Report&, const Row& row) {
       return fmt::format("{}", fmt::join(changed_numerics(row.planned.experiment), " "));
     }},
};

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char letter : text) {
    if (letter == '"') out += '"';
    out += letter;
  }
  return out + "\"";
}

std::vector<Field> all_fields() {
  std::vector<Field> fields(std::begin(identity_fields), std::end(identity_fields));
  fields.insert(fields.end(), std::begin(result_fields), std::end(result_fields));
  fields.insert(fields.end(), std::begin(measured_fields), std::end(measured_fields));
  fields.insert(fields.end(), std::begin(predicted_fields), std::end(predicted_fields));
  fields.insert(fields.end(), std::begin(verified_fields), std::end(verified_fields));
  fields.insert(fields.end(), std::begin(numerics_fields), std::end(numerics_fields));
  return fields;
}

}  // namespace

std::string results_csv(const Report& report) {
  const std::vector<Field> fields = all_fields();
  std::vector<std::string> cells;
  cells.reserve(fields.size());
  for (const Field& field : fields) cells.emplace_back(field.name);
  std::string out = fmt::format("{}\r\n", fmt::join(cells, ","));
  for (const Row& row : report.rows) {
    cells.clear();
    for (const Field& field : fields) cells.push_back(quoted(field.text(report, row)));
    out += fmt::format("{}\r\n", fmt::join(cells, ","));
  }
  return out;
}

}  // namespace dstune
