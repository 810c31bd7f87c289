#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "dstune/report/folder_status.hpp"
#include "dstune/report/page.hpp"
#include "embedded/page.hpp"
#include "page/page_members.hpp"
#include "parts.hpp"
#include "timeline.hpp"

namespace dstune {

namespace {

using json::Value;

/// Changes whenever a reader of an earlier one would misunderstand it.
constexpr int page_data_format = 1;

/// Pairs of a term and a text: all else that is to be said of the answer.
Value details_json(const Answer& answer) {
  const Recommendation& recommendation = *answer.recommendation;
  const Standing& standing = recommendation.standing;
  const Experiment& experiment = standing.row->planned.experiment;
  Value details = Value::array();
  const auto add = [&](std::string_view term, const std::string& text) {
    if (!text.empty()) details.push_back({term, text});
  };
  if (standing.measured)
    add("measured here, " + answer.source, value_text(*standing.measured, answer.metric));
  add("expected time", target_text(recommendation));
  if (standing.verified)
    add("in DeepSpeed itself",
        fmt::format("{} {}", format_number(standing.verified->value), unit_text(answer.metric)));
  add("chosen because", choice_text(recommendation));
  for (const auto& [term, text] : confidence_lines(answer)) add(term, text);
  add("changed numerics", changed_numerics_text(experiment));
  add(not_comparable_words, standing.row->record->measurement.not_comparable);
  add("global batch", batch_change_text(recommendation));
  const GroupShape& shape = experiment.shape;
  add("group", fmt::format("{}: {} on each of {}", format_count(shape.size(), "rank"),
                           shape.num_gpus, format_count(shape.num_nodes, "node")));
  add("activation recompute", std::string(to_text(experiment.config.recompute)));
  return details;
}

/// A memory over a step: the number of the operation, then bytes of each used category. A point is
/// the fullest instant of its stretch.
Value points_json(const MemoryTimeline& timeline, const MemoryTimeline::Memory& memory) {
  constexpr std::size_t most_points = 432;  // more are not seen
  const std::vector<std::size_t> used = used_categories(timeline);
  Value::array_t points;
  if (memory.instants.empty()) return points;
  const auto begins = stretches(0, memory.instants.size(), most_points);
  for (std::size_t point = 0; point + 1 < begins.size(); ++point) {
    const auto& instant = fullest_instant(memory, begins[point], begins[point + 1]);
    Value row = {begins[point]};
    for (const std::size_t category : used) row.push_back(instant[category]);
    points.push_back(std::move(row));
  }
  return points;
}

Value memory_json(const MemoryTimeline& timeline, const Value& limit_bytes) {
  if (timeline.memories.empty()) return nullptr;
  Value categories = Value::array();
  for (const std::size_t category : used_categories(timeline))
    categories.push_back(timeline.categories[category]);
  Value parts = Value::array();
  for (const MemoryTimeline::Part& part : timeline.parts)
    parts.push_back({part.first_instant, part.name, part.phase});
  const auto points_of = [&](std::string_view name) {
    const auto found = std::ranges::find(timeline.memories, name, &MemoryTimeline::Memory::name);
    return found == timeline.memories.end() ? Value::array() : points_json(timeline, *found);
  };
  return {{"limit_bytes", limit_bytes},
          {"unit", "bytes"},
          {"axis", "operations of a step, in program order"},
          {"num_operations", timeline.memories.front().instants.size()},
          {"parts", std::move(parts)},
          {"categories", std::move(categories)},
          {"points", points_of("device")},
          {"host_points", points_of("host")}};
}

Value gain_json(const Recommendation& recommendation) {
  if (!recommendation.baseline) return nullptr;
  const BaselineStanding& baseline = *recommendation.baseline;
  return {{"baseline", baseline.name},
          {"baseline_member", baseline.member},
          {"baseline_value", finite_or_null(part_of(baseline.value, &MetricValue::value))},
          {"share", finite_or_null(baseline.gain)},
          {"text", gain_text(recommendation)}};
}

Value cost_json(const Recommendation& recommendation) {
  const TuningCost& cost = recommendation.cost;
  return {{"gpu_hours", finite_or_null(cost.gpu_hours)},
          {"elapsed_s", page_seconds(cost.elapsed_s)},
          {"earlier_jobs", cost.earlier_jobs},
          {"earned_back_steps", finite_or_null(cost.earned_back_steps)},
          {"text", cost_text(recommendation)}};
}

Value answer_json(const Answer& answer, const AnswerOnPage& on_page, const Value& limit_bytes) {
  if (!answer.recommendation) return nullptr;
  const Recommendation& recommendation = *answer.recommendation;
  const auto& value = recommendation.standing.reported;
  const Experiment& experiment = recommendation.standing.row->planned.experiment;
  const GroupShape& shape = experiment.shape;
  return {{"member", recommendation.member},
          {"name", experiment.name},
          {"value", finite_or_null(part_of(value, &MetricValue::value))},
          {"ci_low", finite_or_null(part_of(value, &MetricValue::ci_low))},
          {"ci_high", finite_or_null(part_of(value, &MetricValue::ci_high))},
          {"label", recommendation.label},
          {"label_words", label_words(answer.recommendation->label)},
          {"gain", gain_json(recommendation)},
          {"cost", cost_json(recommendation)},
          {"num_gpus", shape.size()},
          {"num_nodes", shape.num_nodes},
          {"num_gpus_per_node", shape.num_gpus},
          {"sequence_length", experiment.config.sequence_length},
          {"probability_best", finite_or_null(recommendation.probability_best)},
          {"chance_of_better", finite_or_null(recommendation.chance_of_better)},
          {"details", details_json(answer)},
          {"ds_config", without_tuning(experiment.ds_config)},
          {"command", on_page.command},
          {"memory", on_page.memory ? memory_json(*on_page.memory, limit_bytes) : Value()}};
}

Value page_model_json(const Answer& answer) {
  if (!answer.model_profile && answer.model_name.empty()) return nullptr;
  Value model = {{"name", answer.model_name},
                 {"text", answer.model_profile ? model_profile_text(*answer.model_profile) : ""}};
  if (answer.model_profile) model.update(model_profile_json(answer.model_profile));
  return model;
}

/// A list of environment.json; empty where it lacks it.
Value list_of(const Value& environment, const char* key) {
  const auto found = environment.find(key);
  return found != environment.end() && found->is_array() ? *found : Value::array();
}

/// The first of them, and how many more there are.
std::string some_of(const std::vector<std::string>& words) {
  constexpr std::size_t most = 3;
  const std::vector<std::string> first(
      words.begin(), words.begin() + static_cast<std::ptrdiff_t>(std::min(words.size(), most)));
  return fmt::format("{}{}", fmt::join(first, ", "),
                     words.size() > most ? fmt::format(" and {} more", words.size() - most) : "");
}

Value page_machine_json(const Answer& answer, const Value& environment) {
  const Value ranks = list_of(environment, "ranks");
  const Value hosts = list_of(environment, "hosts");
  std::vector<std::string> devices, names;
  for (const Value& rank : ranks)
    if (std::string device = rank.value("device", "");
        !device.empty() && std::ranges::find(devices, device) == devices.end())
      devices.push_back(std::move(device));
  for (const Value& host : hosts) names.push_back(host.get<std::string>());
  const std::string device = some_of(devices);
  const std::string text =
      ranks.empty() ? ""
                    : fmt::format("{} on {} ({}){}{}", format_count(ranks.size(), "rank"),
                                  format_count(hosts.size(), "host"), some_of(names),
                                  device.empty() ? "" : ": ", device);
  return {{"text", text},
          {"ranks", ranks.size()},
          {"hosts", hosts},
          {"device", device},
          {"conduct", machine_text(answer)}};
}

Value notes_json(const Answer& answer) {
  Value notes = Value::array();
  for (std::string line : warning_lines(answer)) {
    if (!line.ends_with('.')) line += '.';
    notes.push_back(std::move(line));
  }
  return notes;
}

Value page_counts_json(const Answer& answer) {
  Value counts = Value::array();
  for (const StatusCount& one : answer.counts)
    counts.push_back({{"status", one.status}, {"count", one.count}});
  return counts;
}

Value page_reasons_json(const Answer& answer) {
  Value reasons = Value::array();
  for (const ReasonGroup& group : answer.reasons)
    reasons.push_back({{"status", group.status},
                       {"reason", group.first_reason},
                       {"count", group.count},
                       {"names", group.first_names}});
  return reasons;
}

}  // namespace

namespace {

/// The part of the data before the members.
Value head_json(const Answer& answer, const Value& environment, const JobState& state,
                const AnswerOnPage& on_page, const std::optional<PageTime>& began,
                const Value& limit_bytes) {
  Value shown_state = state_json(state);
  shown_state["began_at"] = began ? Value(format_time(*began)) : Value();
  const auto deepspeed = environment.find("deepspeed");
  return {{"format", page_data_format},
          {"written_by", "dstune-mpi " + (environment.is_object() ? environment.value("version", "")
                                                                  : std::string())},
          {"state", std::move(shown_state)},
          {"metric",
           {{"name", to_text(answer.metric)},
            {"unit", unit_text(answer.metric)},
            {"is_minimised", is_minimised(answer.metric)},
            {"has_target", has_targets(answer)},
            {"source", answer.source}}},
          {"answer", answer_json(answer, on_page, limit_bytes)},
          {"model", page_model_json(answer)},
          {"machine", page_machine_json(answer, environment)},
          {"deepspeed", deepspeed == environment.end() ? Value() : *deepspeed},
          {"environment", environment.is_object() ? environment : Value::object()},
          {"notes", notes_json(answer)},
          {"counts", page_counts_json(answer)},
          {"reasons", page_reasons_json(answer)}};
}

/// The memory of a rank's device; null where nobody says it.
Value limit_in(const Value& environment) {
  const auto memory = environment.find("device_memory_bytes");
  const bool has_limit =
      memory != environment.end() && memory->is_number() && memory->get<double>() > 0;
  return has_limit ? *memory : Value();
}

/// Adds the part behind the members.
void add_rest(const Answer& answer, const std::optional<PageTime>& began, const Value& limit_bytes,
              Value& data) {
  data["memory_limit_bytes"] = limit_bytes;
  add_measured_memory(answer, data);
  add_front(answer, data);
  add_runs(answer, began, data);
}

/// Nothing in the data may end the script's element, or begin a comment in it.
std::string escaped(std::string_view data) {
  std::string out;
  out.reserve(data.size() + data.size() / 64);
  for (const char letter : data) {
    if (letter == '<')
      out += "\\u003c";
    else
      out += letter;
  }
  return out;
}

/// The page before and behind its data.
std::pair<std::string, std::string> page_around_data() {
  const std::string mark("\0data\0", 6);
  std::string page = filled(embedded::page, {{"DATA", mark},
                                             {"STYLE", std::string(embedded::page_style)},
                                             {"SCRIPT", std::string(embedded::page_script)}});
  const std::size_t place = page.find(mark);
  std::string behind = page.substr(place + mark.size());
  page.resize(place);
  return {std::move(page), std::move(behind)};
}

}  // namespace

Value report_json(const Answer& answer, const Value& environment, const JobState& state,
                  const AnswerOnPage& on_page) {
  const std::optional<PageTime> began = beginning_of(answer, state.began_at);
  const Value limit_bytes = limit_in(environment);
  Value data = head_json(answer, environment, state, on_page, began, limit_bytes);
  Value::array_t rows;
  rows.reserve(answer.standings.size());
  const PageTexts texts =
      add_members(answer, began, data, [&](Value&& row) { rows.push_back(std::move(row)); });
  data["members"] = std::move(rows);
  data["statuses"] = statuses_json(answer);
  Value& all_texts = data["texts"] = Value::array();
  texts.visit([&](std::string_view text) { all_texts.push_back(text); });
  add_rest(answer, began, limit_bytes, data);
  return data;
}

void write_report(const Answer& answer, const Value& environment, const JobState& state,
                  const AnswerOnPage& on_page, const TextSink& to_json, const TextSink& to_html) {
  const std::optional<PageTime> began = beginning_of(answer, state.began_at);
  const Value limit_bytes = limit_in(environment);
  const auto [before, behind] = page_around_data();
  const auto add = [&](std::string_view piece) {
    to_json(piece);
    to_html(escaped(piece));
  };
  to_html(before);
  Value data = head_json(answer, environment, state, on_page, began, limit_bytes);
  // The list of members is the last so far, and empty: its rows go between its brackets.
  bool has_begun = false;
  const auto begin = [&] {
    if (has_begun) return false;
    const std::string text = json_text(data);
    add(std::string_view(text).substr(0, text.size() - std::string_view("]}").size()));
    return has_begun = true;
  };
  const PageTexts texts = add_members(
      answer, began, data, [&](const Value& row) { add((begin() ? "" : ",") + json_text(row)); });
  begin();
  Value statuses = statuses_json(answer);
  const std::string text =
      json_text({{"statuses", std::move(statuses)}, {"texts", Value::array()}});
  add("]," + text.substr(1, text.size() - 1 - std::string_view("]}").size()));
  bool is_first_text = true;
  texts.visit([&](std::string_view one) {
    add((is_first_text ? "" : ",") + json_text(Value(one)));
    is_first_text = false;
  });
  Value rest = Value::object();
  add_rest(answer, began, limit_bytes, rest);
  add("]," + json_text(rest).substr(1));
  to_json("\n");
  to_html(behind);
}

std::string report_html(std::string_view data) {
  const auto [before, behind] = page_around_data();
  return before + escaped(data) + behind;
}

}  // namespace dstune
