#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/report/flags.hpp"
#include "dstune/report/numerics.hpp"
#include "dstune/report/results.hpp"
#include "dstune/report/validation.hpp"
#include "embedded/page.hpp"
#include "page/html_front.hpp"
#include "page/html_plots.hpp"
#include "row.hpp"
#include "template.hpp"

namespace dstune {

namespace {

/// A browser takes long for more; results.csv has all.
constexpr std::size_t most_rows = 2000;

std::string label_words(const std::string& label) {
  if (label == "verified") return "DeepSpeed itself ran it, with your training command";
  if (label == "calibrated")
    return "measured with dstune-mpi's own step, and fitted to your own runs";
  return "measured with dstune-mpi's own step only; verify.sbatch and verify.pbs check it in "
         "DeepSpeed";
}

std::string described(const char* term, const std::string& text) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, html_escaped(text));
}

std::string interval_text(const MetricValue& value) {
  if (!std::isfinite(value.ci_high)) return "";
  return fmt::format("95 % interval {} to {}", format_number(value.ci_low),
                     format_number(value.ci_high));
}

std::string answer_section(const Report& report) {
  const auto best = best_row(report);
  if (!best)
    return "<div class=\"answer\"><p class=\"name\">There is no answer: no experiment gave a "
           "result.</p></div>\n";
  const std::size_t index = answer_row(report, *best);
  const Row& row = report.rows[index];
  const MetricValue value = *reported_value(report, row);
  const Experiment& experiment = row.planned.experiment;
  const std::string label = label_of(report, row);
  std::string out = fmt::format(
      "<div class=\"answer\">\n<div class=\"name\">{}</div>\n<div class=\"value\">{} {}</div>\n"
      "<div>{}, {}</div>\n<p><span class=\"label\">{}</span> {}</p>\n<dl>\n",
      html_escaped(experiment.name), format_number(value.value), unit_text(report.metric),
      to_text(report.metric), interval_text(value), label, label_words(label));
  if (const auto verified = verified_value(row, report.metric))
    out += described("in DeepSpeed itself", fmt::format("{} {}", format_number(verified->value),
                                                        unit_text(report.metric)));
  if (const std::string choice = choice_text(report, index); !choice.empty())
    out += described("chosen because", choice);
  if (report.calibration) out += described("calibrated", calibration_text(report));
  for (const auto& [what, words] : confidence_lines(report, row))
    out += described(what.c_str(), words);
  if (const auto joules = joules_per_sample(row))
    out += described("energy", fmt::format("{} J a sample", format_number(*joules)));
  if (const std::string numerics = changed_numerics_text(experiment); !numerics.empty())
    out += described("changed numerics", numerics);
  if (const std::string& why = row.record->measurement.not_comparable; !why.empty())
    out += described(not_comparable_words, why);
  const GroupShape& shape = experiment.shape;
  out += described("group",
                   fmt::format("{} ranks: {} on each of {} node{}", shape.size(), shape.num_gpus,
                               shape.num_nodes, shape.num_nodes == 1 ? "" : "s"));
  out += described("activation recompute", std::string(to_text(experiment.config.recompute)));
  out += described("configuration", "ds_config_optimal.json; the command is in cmd_optimal.txt");
  return out + "</dl>\n</div>\n";
}

std::string figure(const char* title, const std::string& note, const std::string& svg) {
  if (svg.empty()) return "";
  return fmt::format(
      "<section>\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n<figure>{}</figure>\n"
      "</section>\n",
      title, note, svg);
}

std::vector<PredictedPoint> memory_points(const Report& report) {
  std::vector<PredictedPoint> points;
  for (const Row& row : report.rows) {
    if (!row.record || points.size() == most_rows) continue;
    const std::int64_t measured = row.record->measurement.peak_memory.total_bytes;
    const std::int64_t predicted = row.record->predicted.peak_memory_bytes;
    if (measured <= 0 || predicted <= 0) continue;
    points.push_back({static_cast<double>(predicted) / 0x1p20,
                      static_cast<double>(measured) / 0x1p20,
                      row.planned.experiment.config.zero_stage, row.planned.experiment.name});
  }
  return points;
}

std::vector<PredictedPoint> speed_points(const Report& report) {
  std::vector<PredictedPoint> points;
  for (const Row& row : report.rows) {
    if (!row.record || points.size() == most_rows) continue;
    const auto measured = value_in(*row.record, Metric::throughput);
    const auto& predicted = row.record->predicted.throughput;
    if (!measured || !predicted || !std::isfinite(measured->value) || !std::isfinite(*predicted))
      continue;
    points.push_back({*predicted, measured->value, row.planned.experiment.config.zero_stage,
                      row.planned.experiment.name});
  }
  return points;
}

std::string number_cell(const std::string& shown, const std::string& sorted_by) {
  return fmt::format("<td class=\"number\" data-value=\"{}\">{}</td>", sorted_by, shown);
}

std::string bytes_cell(std::int64_t bytes) {
  return bytes > 0 ? number_cell(format_bytes(bytes), std::to_string(bytes)) : number_cell("", "");
}

std::string value_cell(const std::optional<MetricValue>& value) {
  if (!value || !std::isfinite(value->value)) return number_cell("", "");
  return number_cell(format_number(value->value), fmt::format("{}", value->value));
}

std::string table_row(const Report& report, const Row& row, bool is_answer, bool has_energy) {
  const Experiment& experiment = row.planned.experiment;
  const TrainingConfig& config = experiment.config;
  const auto value = reported_value(report, row);
  const Prediction& predicted = row.record ? row.record->predicted : row.planned.predicted;
  const std::string status = status_text(row);
  const auto integer = [](std::int64_t number) {
    return fmt::format("<td class=\"number\">{}</td>", number);
  };
  const bool has_ended_well = row.record && (row.record->measurement.status == Status::ok ||
                                             row.record->measurement.status == Status::raced_out);
  const char* const style = !row.record      ? " class=\"idle\""
                            : has_ended_well ? ""
                                             : " class=\"failed\"";
  std::string out =
      fmt::format("<tr{}><th scope=\"row\">{}</th><td{}>{}</td>",
                  is_answer ? " class=\"best\"" : "", html_escaped(experiment.name), style, status);
  out += value_cell(value);
  out += fmt::format(
      "<td class=\"number\">{}</td>",
      value && std::isfinite(value->ci_high)
          ? fmt::format("{} to {}", format_number(value->ci_low), format_number(value->ci_high))
          : "");
  out += value_cell(verified_value(row, report.metric));
  out += integer(config.zero_stage) + integer(config.micro_batch) +
         integer(config.accumulation_steps) + integer(experiment.shape.size());
  out += fmt::format("<td>{}</td>", to_text(config.recompute));
  out += bytes_cell(row.record ? row.record->measurement.peak_memory.total_bytes : 0);
  out += bytes_cell(predicted.peak_memory_bytes) + bytes_cell(predicted.target_memory_bytes);
  if (has_energy) {
    const auto joules = joules_per_sample(row);
    out += joules ? number_cell(format_number(*joules), fmt::format("{}", *joules))
                  : number_cell("", "");
  }
  return out + "</tr>\n";
}

/// The answer, what gave a result, what ran, and the others in the space's order.
std::vector<std::size_t> best_first(const Report& report, std::size_t answer) {
  std::vector<std::size_t> order(report.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const double sign = is_minimised(report.metric) ? 1 : -1;
  std::vector<std::tuple<int, double>> keys;
  for (std::size_t index = 0; index < report.rows.size(); ++index) {
    const Row& row = report.rows[index];
    const auto value = reported_value(report, row);
    const int group = index == answer ? 0 : value ? 1 : row.record ? 2 : 3;
    keys.emplace_back(group, value ? sign * value->value : 0);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t one, std::size_t other) { return keys[one] < keys[other]; });
  return order;
}

std::string experiments_section(const Report& report) {
  std::string out = fmt::format(
      "<section>\n<h2>Experiments</h2>\n<p class=\"note\">{} members of the space. Values are {} "
      "in "
      "{}.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"experiments\">"
      "<table class=\"sortable\">\n<thead><tr>",
      report.rows.size(), to_text(report.metric), unit_text(report.metric));
  const bool has_energy = std::any_of(report.rows.begin(), report.rows.end(), [](const Row& row) {
    return joules_per_sample(row).has_value();
  });
  std::vector<std::pair<const char*, bool>> columns = {
      {"name", false},           {"status", false},          {"value", true},
      {"95 % interval", true},   {"in DeepSpeed", true},     {"ZeRO", true},
      {"micro-batch", true},     {"accumulation", true},     {"group", true},
      {"recompute", false},      {"memory, measured", true}, {"memory, predicted", true},
      {"in your training", true}};
  if (has_energy) columns.emplace_back("J a sample", true);
  for (const auto& [name, is_number] : columns)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", is_number ? " class=\"number\"" : "", name);
  out += "</tr></thead>\n<tbody>\n";
  const auto best = best_row(report);
  const std::size_t answer = best ? answer_row(report, *best) : report.rows.size();
  const bool is_large = report.rows.size() > most_rows;
  std::size_t shown = 0;
  for (const std::size_t index : best_first(report, answer)) {
    if (shown == most_rows || (is_large && !report.rows[index].record)) break;
    out += table_row(report, report.rows[index], index == answer, has_energy);
    ++shown;
  }
  out += "</tbody></table></div>\n";
  if (shown < report.rows.size())
    out += fmt::format("<p class=\"note\">{} more are in results.csv.</p>\n",
                       report.rows.size() - shown);
  return out + "</section>\n";
}

std::string reasons_section(const Report& report) {
  const std::vector<ReasonGroup> groups = reason_groups(report);
  if (groups.empty()) return "";
  std::string out =
      "<section>\n<h2>What failed or did not run, and why</h2>\n<div class=\"scroll\" "
      "tabindex=\"0\" role=\"region\" aria-label=\"reasons\"><table>\n<thead><tr><th "
      "scope=\"col\">status</th><th scope=\"col\" class=\"number\">members</th><th "
      "scope=\"col\">for instance</th><th scope=\"col\">reason</th></tr></thead>\n<tbody>\n";
  constexpr std::size_t most_groups = 200;
  for (std::size_t i = 0; i < std::min(groups.size(), most_groups); ++i) {
    const ReasonGroup& group = groups[i];
    out += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{}</td><td>{}</td><td class=\"text\">{}</td></tr>\n",
        group.status, group.count, html_escaped(group.first_names.front()),
        html_escaped(group.first_reason.empty() ? "no reason given" : group.first_reason));
  }
  return out + "</tbody></table></div>\n</section>\n";
}

std::string environment_section(const json::Value& environment) {
  if (environment.empty()) return "";
  return fmt::format(
      "<section>\n<h2>Environment</h2>\n<details><summary>where and with what it ran "
      "(environment.json)</summary>\n<pre>{}</pre>\n</details>\n</section>\n",
      html_escaped(environment.dump(2, ' ', false, json::Value::error_handler_t::replace)));
}

}  // namespace

std::string report_html(const Report& report, const json::Value& environment) {
  std::string out = "<h1>The fastest DeepSpeed configuration</h1>\n" + answer_section(report);
  out += figure("Speed by micro-batch size and ZeRO stage",
                fmt::format("The best {} in {} of each stage at each size; hold the pointer over a "
                            "point for its name.",
                            to_text(report.metric), unit_text(report.metric)),
                value_plot(report));
  out += front_section(report);
  for (const std::string& line : warning_lines(report))
    out += fmt::format("<p class=\"note\">{}.</p>\n", html_escaped(line));
  out += experiments_section(report);
  out += figure(
      "Memory: predicted and measured",
      "Arenas of the fullest rank, in MiB, measured upwards. On the dashed line both are equal.",
      prediction_plot(memory_points(report), "MiB"));
  out += figure("Speed: predicted and measured",
                "In samples/s, measured upwards. On the dashed line both are equal.",
                prediction_plot(speed_points(report), "samples/s"));
  out += figure("What ran where",
                fmt::format("A bar a run on each of its ranks, red without a result; of more "
                            "than {}, the last.",
                            timeline_limit),
                timeline_plot(report));
  out += reasons_section(report) + environment_section(environment);
  return filled(embedded::page, {{"STYLE", std::string(embedded::page_style)},
                                 {"BODY", out},
                                 {"SCRIPT", std::string(embedded::page_script)}});
}

}  // namespace dstune
