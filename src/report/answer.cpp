#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/report/results.hpp"
#include "row.hpp"

namespace dstune {

namespace {

/// "module call"
std::string words_of(Overhead overhead) {
  std::string words(to_text(overhead));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

std::optional<MetricValue> verified_value(const Row& row, Metric metric) {
  if (!row.verified) return std::nullopt;
  Measurement verified = *row.verified;
  // DeepSpeed counts operations in its own way: the model's formula makes the two comparable.
  if (row.record) verified.flops_per_step = row.record->measurement.flops_per_step;
  const Experiment& experiment = row.planned.experiment;
  const int group_size = experiment.shape.size();
  return metric_value(verified, metric, global_batch(experiment.config, group_size), group_size);
}

std::size_t answer_row(const Report& report, std::size_t best) {
  auto fastest = verified_value(report.rows[best], report.metric);
  if (!fastest) return best;
  std::size_t answer = best;
  for (std::size_t index = 0; index < report.rows.size(); ++index) {
    const Row& row = report.rows[index];
    // Without a measurement here there would be nothing to write down.
    if (!row.record || !value_in(*row.record, report.metric)) continue;
    const auto value = verified_value(row, report.metric);
    if (!value) continue;
    const bool is_faster =
        is_minimised(report.metric) ? value->value < fastest->value : value->value > fastest->value;
    if (!is_faster) continue;
    fastest = value;
    answer = index;
  }
  return answer;
}

std::string label_of(const Report& report, const Row& row) {
  if (verified_value(row, report.metric)) return "verified";
  return report.calibration ? "calibrated" : "proxy";
}

std::string calibration_text(const Report& report) {
  if (!report.calibration) return "";
  const TimeCalibration& fit = *report.calibration;
  std::string text = fmt::format("measured times x {:.4g}", fit.scale);
  for (std::size_t each = 0; each < fit.costs_s.size(); ++each) {
    if (fit.costs_s[each] > 0)
      text += fmt::format(" + {:.4g} us for each {}", fit.costs_s[each] * 1e6,
                          words_of(static_cast<Overhead>(each)));
  }
  if (report.memory_offset_bytes != 0)
    text +=
        fmt::format("; memory of the training {} {}", report.memory_offset_bytes > 0 ? "+" : "-",
                    format_bytes(std::abs(report.memory_offset_bytes)));
  for (const OwnRun& run : report.own_runs) {
    const Row& row = report.rows[run.row];
    const auto latency_us = row.record ? value_in(*row.record, Metric::latency) : std::nullopt;
    if (!latency_us) continue;
    const double fitted_s = fit.target_s(latency_us->value * 1e-6, row.overheads);
    text += fmt::format("; {}: {:.4g} s, fitted {:.4g} s ({:+.1f} %)", row.planned.experiment.name,
                        run.step_s, fitted_s, 100 * (fitted_s / run.step_s - 1));
  }
  return text;
}

std::string choice_text(const Report& report, std::size_t answer) {
  const auto best = best_row(report);
  if (!best || *best == answer) return "";
  const auto value = verified_value(report.rows[answer], report.metric);
  const auto other = verified_value(report.rows[*best], report.metric);
  if (!value || !other) return "";
  return fmt::format("DeepSpeed itself made {} {} with it and {} with {}, which was ahead here",
                     format_number(value->value), unit_text(report.metric),
                     format_number(other->value), report.rows[*best].planned.experiment.name);
}

}  // namespace dstune
