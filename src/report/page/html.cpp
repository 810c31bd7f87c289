#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/report/results.hpp"
#include "embedded/page.hpp"
#include "page/html_parts.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// A browser takes long for more; results.csv has all.
constexpr std::size_t max_rows = 2000;

/// `body`: what follows the note, with its line end.
std::string section(std::string_view title, const std::string& note, const std::string& body) {
  const std::string shown = note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", note);
  return fmt::format("<section>\n<h2>{}</h2>\n{}{}</section>\n", title, shown, body);
}

std::string figure(const std::string& svg) {
  return fmt::format("<figure>{}</figure>\n", svg);
}

/// The section of a figure; empty if there is no figure.
std::string figure_section(std::string_view title, const std::string& note,
                           const std::string& svg) {
  return svg.empty() ? "" : section(title, note, figure(svg));
}

/// A column's name, and whether it holds numbers.
using HtmlColumn = std::pair<std::string_view, bool>;

/// `body`: its rows, less those that are left out.
std::string table(std::string_view label, const char* attributes,
                  const std::vector<HtmlColumn>& columns, const std::string& body,
                  std::size_t num_left_out = 0) {
  std::string header;
  for (const auto& [name, is_number] : columns)
    header +=
        fmt::format("<th scope=\"col\"{}>{}</th>", is_number ? " class=\"number\"" : "", name);
  const std::string note =
      num_left_out == 0
          ? ""
          : fmt::format("<p class=\"note\">{} more are in results.csv.</p>\n", num_left_out);
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{}\"><table{}>\n<thead><tr>{}"
      "</tr></thead>\n<tbody>\n{}</tbody></table></div>\n{}",
      label, attributes, header, body, note);
}

std::string described(std::string_view term, const std::string& text) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, html_escaped(text));
}

std::string answer_section(const Answer& answer) {
  if (!answer.recommendation)
    return "<div class=\"answer\"><p class=\"name\">There is no answer: no experiment gave a "
           "result.</p></div>\n";
  const Recommendation& recommendation = *answer.recommendation;
  const Standing& standing = recommendation.standing;
  const Experiment& experiment = standing.row->planned.experiment;
  const std::string unit(unit_text(answer.metric));
  const std::string interval = interval_text(standing.reported);
  const bool with_target = standing.target.has_value();
  std::string out = fmt::format(
      "<div class=\"answer\">\n<div class=\"name\">{}</div>\n<div class=\"value\">{} {}</div>\n"
      "<div>{}{}, {}</div>\n<p><span class=\"label\">{}</span> {}</p>\n<dl>\n",
      html_escaped(experiment.name), format_number(standing.reported->value), unit,
      to_text(answer.metric), with_target ? " expected in your training" : "",
      interval.empty() ? "" : "95 % interval " + interval, recommendation.label,
      label_words(recommendation.label));
  if (standing.measured)
    out +=
        described("measured here, " + answer.source, value_text(*standing.measured, answer.metric));
  if (const std::string target = target_text(recommendation); !target.empty())
    out += described("expected time", target);
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
  if (const std::string batch = batch_change_text(recommendation); !batch.empty())
    out += described("global batch", batch);
  const GroupShape& shape = experiment.shape;
  out += described("group", fmt::format("{}: {} on each of {}", format_count(shape.size(), "rank"),
                                        shape.num_gpus, format_count(shape.num_nodes, "node")));
  out += described("activation recompute", std::string(to_text(experiment.config.recompute)));
  out += described("configuration", "ds_config_optimal.json; the command is in cmd_optimal.txt");
  return out + "</dl>\n</div>\n";
}

using Figures = std::optional<std::pair<double, double>>;  ///< predicted and measured

Figures memory_mib(const Record& record) {
  const std::int64_t measured = record.measurement.peak_memory.total_bytes;
  const std::int64_t predicted = record.predicted.peak_memory_bytes;
  if (measured <= 0 || predicted <= 0) return std::nullopt;
  return std::pair(static_cast<double>(predicted) / 0x1p20, static_cast<double>(measured) / 0x1p20);
}

Figures samples_per_s(const Record& record) {
  const auto measured = metric_value(record.measurement, Metric::throughput, record.experiment);
  const auto& predicted = record.predicted.throughput;
  if (!measured || !predicted || !std::isfinite(measured->value) || !std::isfinite(*predicted))
    return std::nullopt;
  return std::pair(*predicted, measured->value);
}

std::vector<PredictedPoint> points_of(const Answer& answer, Figures (*figures_of)(const Record&)) {
  std::vector<PredictedPoint> points;
  for (const Standing& standing : answer.standings) {
    const Row& row = *standing.row;
    if (!row.record || points.size() == max_rows) continue;
    const Experiment& experiment = row.planned.experiment;
    if (const Figures figures = figures_of(*row.record))
      points.push_back(
          {figures->first, figures->second, experiment.config.zero_stage, experiment.name});
  }
  return points;
}

/// `sorted_by`: what the page's script compares; without it, what is shown.
std::string number_cell(const std::string& shown, const std::string& sorted_by) {
  return fmt::format("<td class=\"number\" data-value=\"{}\">{}</td>", sorted_by, shown);
}

std::string number_cell(const std::string& shown) {
  return fmt::format("<td class=\"number\">{}</td>", shown);
}

std::string bytes_cell(std::int64_t bytes) {
  return bytes > 0 ? number_cell(format_bytes(bytes), std::to_string(bytes)) : number_cell("", "");
}

std::string value_cell(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return number_cell("", "");
  return number_cell(format_number(*value), fmt::format("{}", *value));
}

/// Columns that are there only where some member has something to say in them.
struct OptionalColumns {
  bool target = false;  ///< our own step's figures stand beside the target's time
  bool energy = false;
};

std::string table_row(const Standing& standing, bool is_answer, const OptionalColumns& has) {
  const Row& row = *standing.row;
  const Experiment& experiment = row.planned.experiment;
  const TrainingConfig& config = experiment.config;
  const auto& value = standing.reported;
  const Prediction& predicted = row.record ? row.record->predicted : row.planned.predicted;
  const std::string status = status_text(row);
  const auto integer = [](std::int64_t number) { return number_cell(std::to_string(number)); };
  const bool has_ended_well = row.record && (row.record->measurement.status == Status::ok ||
                                             row.record->measurement.status == Status::raced_out);
  const char* const style = !row.record      ? " class=\"idle\""
                            : has_ended_well ? ""
                                             : " class=\"failed\"";
  std::string out =
      fmt::format("<tr{}><th scope=\"row\">{}</th><td{}>{}</td>",
                  is_answer ? " class=\"best\"" : "", html_escaped(experiment.name), style, status);
  out += value_cell(part_of(value, &MetricValue::value));
  out += number_cell(interval_text(value));
  if (has.target) out += value_cell(part_of(standing.measured, &MetricValue::value));
  out += value_cell(part_of(standing.verified, &MetricValue::value));
  out += integer(config.zero_stage) + integer(config.micro_batch) +
         integer(config.accumulation_steps) + integer(experiment.shape.size());
  out += fmt::format("<td>{}</td>", to_text(config.recompute));
  out += bytes_cell(row.record ? row.record->measurement.peak_memory.total_bytes : 0);
  out += bytes_cell(predicted.peak_memory_bytes) + bytes_cell(predicted.target_memory_bytes);
  if (has.energy) out += value_cell(standing.joules_per_sample);
  return out + "</tr>\n";
}

bool is_recommended(const Answer& answer, std::size_t member) {
  return answer.recommendation && answer.recommendation->member == member;
}

/// The answer, what gave a result, what ran, and the others in the space's order.
std::vector<std::size_t> best_first(const Answer& answer) {
  std::vector<std::size_t> order(answer.standings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const double sign = is_minimised(answer.metric) ? 1 : -1;
  const auto key = [&](std::size_t index) {
    const Standing& one = answer.standings[index];
    const int group = is_recommended(answer, index) ? 0
                      : one.reported                ? 1
                      : one.row->record             ? 2
                                                    : 3;
    return std::tuple(group, one.reported ? sign * one.reported->value : 0.0);
  };
  std::ranges::stable_sort(order, {}, key);
  return order;
}

std::string experiments_section(const Answer& answer) {
  const bool with_target = has_targets(answer);
  const OptionalColumns has = {
      .target = with_target,
      .energy = std::any_of(answer.standings.begin(), answer.standings.end(),
                            [](const Standing& one) { return one.joules_per_sample.has_value(); })};
  std::vector<HtmlColumn> columns = {{"name", false}, {"status", false}};
  const auto add = [&](std::initializer_list<HtmlColumn> more) {
    columns.insert(columns.end(), more);
  };
  add({{with_target ? "expected in your training" : "value", true}, {"95 % interval", true}});
  if (has.target) add({{"measured here", true}});
  add({{with_target ? "measured in DeepSpeed" : "in DeepSpeed", true},
       {"ZeRO", true},
       {"micro-batch", true},
       {"accumulation", true},
       {"group", true},
       {"recompute", false},
       {"memory, measured", true},
       {"memory, predicted", true},
       {with_target ? "memory in your training" : "in your training", true}});
  if (has.energy) add({{"J a sample", true}});
  const bool is_large = answer.standings.size() > max_rows;
  std::string rows;
  std::size_t shown = 0;
  for (const std::size_t index : best_first(answer)) {
    const Standing& one = answer.standings[index];
    if (shown == max_rows || (is_large && !one.row->record)) break;
    rows += table_row(one, is_recommended(answer, index), has);
    ++shown;
  }
  return section(
      "Experiments",
      fmt::format("{} of the space. Values are {} in {}.{}",
                  format_count(answer.standings.size(), "member"), to_text(answer.metric),
                  unit_text(answer.metric),
                  with_target ? fmt::format(" Members are ranked by what is expected in your "
                                            "training; what {} did stands beside it.",
                                            answer.source)
                              : ""),
      table("experiments", " class=\"sortable\"", columns, rows, answer.standings.size() - shown));
}

std::string front_table(const Answer& answer) {
  constexpr std::size_t max_listed = 100;
  const bool with_target = has_targets(answer);
  const std::string metric = fmt::format("{}{} ({})", with_target ? "expected " : "",
                                         to_text(answer.metric), unit_text(answer.metric));
  std::vector<HtmlColumn> columns = {{"GPUs", true},
                                     {metric, true},
                                     {"samples/s a GPU", true},
                                     {"memory of a rank", true},
                                     {"experiment", false}};
  constexpr std::ptrdiff_t beside_metric = 2;
  if (with_target) columns.insert(columns.begin() + beside_metric, {"measured here", true});
  std::string rows;
  std::size_t listed = 0;
  for (const Offer& offer : answer.offers) {
    if (!offer.is_on_front || listed++ >= max_listed) continue;
    const Standing& standing = answer.standings[offer.member];
    const auto& efficiency = offer.throughput_per_gpu;
    const auto& measured = standing.measured;
    rows +=
        fmt::format("<tr>{}{}{}{}{}<td>{}</td></tr>\n", number_cell(std::to_string(offer.num_gpus)),
                    number_cell(format_number(offer.value)),
                    with_target ? number_cell(measured ? format_number(measured->value) : "") : "",
                    number_cell(efficiency ? format_number(*efficiency) : ""),
                    number_cell(format_bytes(offer.memory_bytes)),
                    html_escaped(standing.row->planned.experiment.name));
  }
  return table("the front", "", columns, rows, listed - std::min(listed, max_listed));
}

/// Members that are better in one of value, GPUs and memory; a sentence if one has it all.
std::string front_section(const Answer& answer) {
  constexpr std::string_view title = "Fewer GPUs or less memory";
  const std::vector<Offer>& offers = answer.offers;
  const auto on_front = std::count_if(offers.begin(), offers.end(),
                                      [](const Offer& offer) { return offer.is_on_front; });
  if (on_front == 1 && offers.size() > 1)
    return section(title,
                   "Nothing is to be had for less: the best takes as few GPUs and as little memory "
                   "as any that was measured.",
                   "");
  if (on_front < 2) return "";
  return section(
      title,
      fmt::format("On the lines is what nothing beats: nothing that was measured is better in {}, "
                  "GPUs or memory without being worse in another. Grey is the rest. Memory is "
                  "your own training's, where it was planned.",
                  to_text(answer.metric)),
      figure(front_plot(answer)) + front_table(answer));
}

std::string reasons_section(const Answer& answer) {
  const std::vector<ReasonGroup>& groups = answer.reasons;
  if (groups.empty()) return "";
  std::string rows;
  constexpr std::size_t max_groups = 200;
  for (std::size_t i = 0; i < std::min(groups.size(), max_groups); ++i) {
    const ReasonGroup& group = groups[i];
    rows += fmt::format(
        "<tr><td>{}</td>{}<td>{}</td><td class=\"text\">{}</td></tr>\n", group.status,
        number_cell(std::to_string(group.count)), html_escaped(group.first_names.front()),
        html_escaped(group.first_reason.empty() ? "no reason given" : group.first_reason));
  }
  const std::vector<HtmlColumn> columns = {
      {"status", false}, {"members", true}, {"for instance", false}, {"reason", false}};
  return section("Failed or not run, and why", "", table("reasons", "", columns, rows));
}

std::string environment_section(const json::Value& environment) {
  if (environment.empty()) return "";
  return section("Environment", "",
                 fmt::format("<details><summary>where and with what it ran (environment.json)"
                             "</summary>\n<pre>{}</pre>\n</details>\n",
                             html_escaped(json_text(environment, 2))));
}

}  // namespace

std::string report_html(const Answer& answer, const json::Value& environment) {
  const bool with_target = has_targets(answer);
  std::string out = "<h1>The fastest DeepSpeed configuration</h1>\n";
  if (environment.contains("deepspeed"))
    out += fmt::format("<p>Planned for DeepSpeed {} ({}).</p>\n",
                       html_escaped(environment["deepspeed"].value("version", "")),
                       html_escaped(environment["deepspeed"].value("source", "")));
  out += answer_section(answer);
  out += figure_section(
      "Speed by micro-batch size and ZeRO stage",
      fmt::format("The best {} in {}{} of each stage at each size; hold the pointer over a "
                  "point for its name.",
                  to_text(answer.metric), unit_text(answer.metric),
                  with_target ? ", as expected in your training," : ""),
      value_plot(answer));
  out += front_section(answer);
  for (const std::string& line : warning_lines(answer))
    out += fmt::format("<p class=\"note\">{}.</p>\n", html_escaped(line));
  out += experiments_section(answer);
  out += figure_section(
      "Memory: predicted and measured",
      "Arenas of the fullest rank, in MiB, measured upwards. On the dashed line both are equal.",
      prediction_plot(points_of(answer, memory_mib), "MiB"));
  out += figure_section("Speed: predicted and measured",
                        fmt::format("In samples/s{}, measured upwards. On the dashed line both are "
                                    "equal.",
                                    with_target ? " of " + answer.source : ""),
                        prediction_plot(points_of(answer, samples_per_s), "samples/s"));
  out +=
      figure_section("Runs on their ranks",
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
