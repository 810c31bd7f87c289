#include <cmath>
#include <iterator>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/units.hpp"
#include "dstune/report/results.hpp"

namespace dstune {

namespace {

/// Enough digits to read the same number again; nothing where it is none.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

std::string in_metric(const Row& row, Metric metric) {
  if (!row.record) return "";
  const auto value = metric_value(row.record->measurement, metric, row.record->experiment);
  return value ? number(value->value) : "";
}

std::string reported(const Standing& standing, double MetricValue::*part) {
  return standing.reported ? number((*standing.reported).*part) : "";
}

/// A field of what was measured, empty where nothing was.
template <class Get>
std::string measured(const Row& row, Get&& get) {
  return row.record ? get(*row.record) : std::string();
}

/// A column: its name, unit in it, and what a row says there.
struct Field {
  const char* name;
  std::string (*text)(const Answer&, const Standing&);
};

const Prediction* prediction(const Row& row) {
  if (row.record) return &row.record->predicted;
  return row.planned.status == PlanStatus::pruned ? nullptr : &row.planned.predicted;
}

const Field identity_fields[] = {
    {"name", [](const Answer&, const Standing& one) { return one.row->planned.experiment.name; }},
    {"status", [](const Answer&, const Standing& one) { return status_text(*one.row); }},
    {"reason", [](const Answer&, const Standing& one) { return reason_text(*one.row); }},
    {"num_gpus",
     [](const Answer&, const Standing& one) {
       return std::to_string(one.row->planned.experiment.shape.size());
     }},
    {"num_nodes",
     [](const Answer&, const Standing& one) {
       return std::to_string(one.row->planned.experiment.shape.num_nodes);
     }},
    {"zero_stage",
     [](const Answer&, const Standing& one) {
       return std::to_string(one.row->planned.experiment.config.zero_stage);
     }},
    {"micro_batch",
     [](const Answer&, const Standing& one) {
       return std::to_string(one.row->planned.experiment.config.micro_batch);
     }},
    {"accumulation_steps",
     [](const Answer&, const Standing& one) {
       return std::to_string(one.row->planned.experiment.config.accumulation_steps);
     }},
    {"train_batch_size",
     [](const Answer&, const Standing& one) {
       const Experiment& experiment = one.row->planned.experiment;
       return std::to_string(global_batch(experiment.config, experiment.shape.size()));
     }},
    {"recompute",
     [](const Answer&, const Standing& one) {
       return std::string(to_text(one.row->planned.experiment.config.recompute));
     }},
};

const Field result_fields[] = {
    {"metric",
     [](const Answer& answer, const Standing&) { return std::string(to_text(answer.metric)); }},
    {"value",
     [](const Answer&, const Standing& one) { return reported(one, &MetricValue::value); }},
    {"ci_low",
     [](const Answer&, const Standing& one) { return reported(one, &MetricValue::ci_low); }},
    {"ci_high",
     [](const Answer&, const Standing& one) { return reported(one, &MetricValue::ci_high); }},
    {"throughput",
     [](const Answer&, const Standing& one) { return in_metric(*one.row, Metric::throughput); }},
    {"latency_us",
     [](const Answer&, const Standing& one) { return in_metric(*one.row, Metric::latency); }},
    {"flops_per_gpu",
     [](const Answer&, const Standing& one) { return in_metric(*one.row, Metric::flops); }},
};

const Field measured_fields[] = {
    {"steps",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         return std::to_string(record.measurement.step_times_s.size());
       });
     }},
    {"warmup_steps",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         return std::to_string(record.measurement.warmup_steps);
       });
     }},
    {"peak_memory_bytes",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         return std::to_string(record.measurement.peak_memory.total_bytes);
       });
     }},
    {"process_memory_bytes",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         return std::to_string(record.measurement.peak_memory.process_bytes);
       });
     }},
    {"joules_per_sample",
     [](const Answer&, const Standing& one) {
       return one.joules_per_sample ? number(*one.joules_per_sample) : std::string();
     }},
    {"overhead_s",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         double sum_s = 0;
         for (const auto& [phase, seconds] : record.measurement.overhead_s) sum_s += seconds;
         return number(sum_s);
       });
     }},
    {"attempt",
     [](const Answer&, const Standing& one) {
       return measured(*one.row,
                       [](const Record& record) { return std::to_string(record.attempt); });
     }},
    {"world_ranks",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         return fmt::format("{}", fmt::join(record.measurement.world_ranks, " "));
       });
     }},
    {"started_at",
     [](const Answer&, const Standing& one) {
       return measured(*one.row,
                       [](const Record& record) { return format_time(record.started_at); });
     }},
    {"finished_at",
     [](const Answer&, const Standing& one) {
       return measured(*one.row,
                       [](const Record& record) { return format_time(record.finished_at); });
     }},
};

const Field predicted_fields[] = {
    {"predicted_throughput",
     [](const Answer&, const Standing& one) {
       const Prediction* predicted = prediction(*one.row);
       return predicted != nullptr && predicted->throughput ? number(*predicted->throughput) : "";
     }},
    {"prediction_error",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         const auto error = prediction_error(record);
         return error ? number(*error) : std::string();
       });
     }},
    {"predicted_peak_memory_bytes",
     [](const Answer&, const Standing& one) {
       const Prediction* predicted = prediction(*one.row);
       return predicted != nullptr ? std::to_string(predicted->peak_memory_bytes) : "";
     }},
    {"predicted_target_memory_bytes",
     [](const Answer&, const Standing& one) {
       const Prediction* predicted = prediction(*one.row);
       return predicted != nullptr ? std::to_string(predicted->target_memory_bytes) : "";
     }},
};

const Field verified_fields[] = {
    {"verified_status",
     [](const Answer&, const Standing& one) {
       return one.row->verified ? std::string(to_text(one.row->verified->status)) : "";
     }},
    {"verified_value",
     [](const Answer&, const Standing& one) {
       return one.verified ? number(one.verified->value) : "";
     }},
    {"verified_peak_memory_bytes",
     [](const Answer&, const Standing& one) {
       return one.row->verified && one.row->verified->peak_memory.total_bytes > 0
                  ? std::to_string(one.row->verified->peak_memory.total_bytes)
                  : "";
     }},
};

const Field numerics_fields[] = {
    {"changed_numerics",
     [](const Answer&, const Standing& one) {
       return fmt::format("{}", fmt::join(changed_numerics(one.row->planned.experiment), " "));
     }},
};

const Field gpu_fields[] = {
    {"gpu_memory_bytes",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         const std::int64_t bytes = record.measurement.peak_memory.gpu_bytes;
         return bytes > 0 ? std::to_string(bytes) : std::string();
       });
     }},
    {"predicted_gpu_memory_bytes",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         const std::int64_t bytes = record.predicted.gpu_memory_bytes;
         return bytes > 0 ? std::to_string(bytes) : std::string();
       });
     }},
    {"flags",
     [](const Answer&, const Standing& one) {
       return measured(*one.row, [](const Record& record) {
         return fmt::format("{}", fmt::join(flags_of(record.measurement), "; "));
       });
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
  fields.insert(fields.end(), std::begin(gpu_fields), std::end(gpu_fields));
  return fields;
}

}  // namespace

std::string results_csv(const Answer& answer) {
  const std::vector<Field> fields = all_fields();
  std::vector<std::string> cells;
  cells.reserve(fields.size());
  for (const Field& field : fields) cells.emplace_back(field.name);
  std::string out = fmt::format("{}\r\n", fmt::join(cells, ","));
  for (const Standing& one : answer.standings) {
    cells.clear();
    for (const Field& field : fields) cells.push_back(quoted(field.text(answer, one)));
    out += fmt::format("{}\r\n", fmt::join(cells, ","));
  }
  return out;
}

}  // namespace dstune
