#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "answer_text.hpp"
#include "dstune/base/units.hpp"
#include "dstune/report/results.hpp"
#include "embedded/page.hpp"
#include "page/html_parts.hpp"
#include "template.hpp"

namespace dstune {

namespace {

/// A browser takes long for more; results.csv has all.
constexpr std::size_t max_rows = 2000;

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

std::string answer_section(const Answer& answer) {
  if (!answer.recommendation)
    return "<div class=\"answer\"><p class=\"name\">There is no answer: no experiment gave a "
           "result.</p></div>\n";
  const Recommendation& recommendation = *answer.recommendation;
  const Standing& standing = recommendation.standing;
  const Experiment& experiment = standing.row->planned.experiment;
  const std::string unit(unit_text(answer.metric));
  std::string out = fmt::format(
      "<div class=\"answer\">\n<div class=\"name\">{}</div>\n<div class=\"value\">{} {}</div>\n"
      "<div>{}, {}</div>\n<p><span class=\"label\">{}</span> {}</p>\n<dl>\n",
      html_escaped(experiment.name), format_number(standing.reported->value), unit,
      to_text(answer.metric), interval_text(*standing.reported), recommendation.label,
      label_words(recommendation.label));
  if (standing.verified)
    out += described("in DeepSpeed itself",
                     fmt::format("{} {}", format_number(standing.verified->value), unit));
  if (const std::string choice = choice_text(recommendation); !choice.empty())
    out += described("chosen because", choice);
  for (const auto& [what, words] : confidence_lines(answer)) out += described(what.c_str(), words);
  if (const std::string numerics = changed_numerics_text(experiment); !numerics.empty())
    out += described("changed numerics", numerics);
  if (const std::string& why = standing.row->record->measurement.not_comparable; !why.empty())
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

std::vector<PredictedPoint> memory_points(const Answer& answer) {
  std::vector<PredictedPoint> points;
  for (const Standing& standing : answer.standings) {
    const Row& row = *standing.row;
    if (!row.record || points.size() == max_rows) continue;
    const std::int64_t measured = row.record->measurement.peak_memory.total_bytes;
    const std::int64_t predicted = row.record->predicted.peak_memory_bytes;
    if (measured <= 0 || predicted <= 0) continue;
    points.push_back({static_cast<double>(predicted) / 0x1p20,
                      static_cast<double>(measured) / 0x1p20,
                      row.planned.experiment.config.zero_stage, row.planned.experiment.name});
  }
  return points;
}

std::vector<PredictedPoint> speed_points(const Answer& answer) {
  std::vector<PredictedPoint> points;
  for (const Standing& standing : answer.standings) {
    const Row& row = *standing.row;
    if (!row.record || points.size() == max_rows) continue;
    const auto measured =
        metric_value(row.record->measurement, Metric::throughput, row.record->experiment);
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

std::string table_row(const Standing& standing, bool is_answer, bool has_energy) {
  const Row& row = *standing.row;
  const Experiment& experiment = row.planned.experiment;
  const TrainingConfig& config = experiment.config;
  const auto& value = standing.reported;
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
  out += value_cell(standing.verified);
  out += integer(config.zero_stage) + integer(config.micro_batch) +
         integer(config.accumulation_steps) + integer(experiment.shape.size());
  out += fmt::format("<td>{}</td>", to_text(config.recompute));
  out += bytes_cell(row.record ? row.record->measurement.peak_memory.total_bytes : 0);
  out += bytes_cell(predicted.peak_memory_bytes) + bytes_cell(predicted.target_memory_bytes);
  if (has_energy) {
    const auto& joules = standing.joules_per_sample;
    out += joules ? number_cell(format_number(*joules), fmt::format("{}", *joules))
                  : number_cell("", "");
  }
  return out + "</tr>\n";
}

bool is_recommended(const Answer& answer, std::size_t row) {
  return answer.recommendation && answer.recommendation->row == row;
}

/// The answer, what gave a result, what ran, and the others in the space's order.
std::vector<std::size_t> best_first(const Answer& answer) {
  std::vector<std::size_t> order(answer.standings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const double sign = is_minimised(answer.metric) ? 1 : -1;
  std::vector<std::tuple<int, double>> keys;
  for (std::size_t index = 0; index < answer.standings.size(); ++index) {
    const Standing& one = answer.standings[index];
    const int group = is_recommended(answer, index) ? 0
                      : one.reported                ? 1
                      : one.row->record             ? 2
                                                    : 3;
    keys.emplace_back(group, one.reported ? sign * one.reported->value : 0);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t one, std::size_t other) { return keys[one] < keys[other]; });
  return order;
}

std::string experiments_section(const Answer& answer) {
  std::string out = fmt::format(
      "<section>\n<h2>Experiments</h2>\n<p class=\"note\">{} members of the space. Values are {} "
      "in "
      "{}.</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"experiments\">"
      "<table class=\"sortable\">\n<thead><tr>",
      answer.standings.size(), to_text(answer.metric), unit_text(answer.metric));
  const bool has_energy =
      std::any_of(answer.standings.begin(), answer.standings.end(),
                  [](const Standing& one) { return one.joules_per_sample.has_value(); });
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
  const bool is_large = answer.standings.size() > max_rows;
  std::size_t shown = 0;
  for (const std::size_t index : best_first(answer)) {
    const Standing& one = answer.standings[index];
    if (shown == max_rows || (is_large && !one.row->record)) break;
    out += table_row(one, is_recommended(answer, index), has_energy);
    ++shown;
  }
  out += "</tbody></table></div>\n";
  if (shown < answer.standings.size())
    out += fmt::format("<p class=\"note\">{} more are in results.csv.</p>\n",
                       answer.standings.size() - shown);
  return out + "</section>\n";
}

std::string reasons_section(const Answer& answer) {
  const std::vector<ReasonGroup>& groups = answer.reasons;
  if (groups.empty()) return "";
  std::string out =
      "<section>\n<h2>What failed or did not run, and why</h2>\n<div class=\"scroll\" "
      "tabindex=\"0\" role=\"region\" aria-label=\"reasons\"><table>\n<thead><tr><th "
      "scope=\"col\">status</th><th scope=\"col\" class=\"number\">members</th><th "
      "scope=\"col\">for instance</th><th scope=\"col\">reason</th></tr></thead>\n<tbody>\n";
  constexpr std::size_t max_groups = 200;
  for (std::size_t i = 0; i < std::min(groups.size(), max_groups); ++i) {
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

std::string report_html(const Answer& answer, const json::Value& environment) {
  std::string out = "<h1>The fastest DeepSpeed configuration</h1>\n" + answer_section(answer);
  out += figure("Speed by micro-batch size and ZeRO stage",
                fmt::format("The best {} in {} of each stage at each size; hold the pointer over a "
                            "point for its name.",
                            to_text(answer.metric), unit_text(answer.metric)),
                value_plot(answer));
  out += front_section(answer);
  for (const std::string& line : warning_lines(answer))
    out += fmt::format("<p class=\"note\">{}.</p>\n", html_escaped(line));
  out += experiments_section(answer);
  out += figure(
      "Memory: predicted and measured",
      "Arenas of the fullest rank, in MiB, measured upwards. On the dashed line both are equal.",
      prediction_plot(memory_points(answer), "MiB"));
  out += figure("Speed: predicted and measured",
                "In samples/s, measured upwards. On the dashed line both are equal.",
                prediction_plot(speed_points(answer), "samples/s"));
  out += figure("What ran where",
                fmt::format("A bar a run on each of its ranks, red without a result; of more "
                            "than {}, the last.",
                            timeline_limit),
                timeline_plot(answer));
  out += reasons_section(answer) + environment_section(environment);
  return filled(embedded::page, {{"STYLE", std::string(embedded::page_style)},
                                 {"BODY", out},
                                 {"SCRIPT", std::string(embedded::page_script)}});
}

}  // namespace dstune
