#include "page/page_members.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parts.hpp"
#include "searched_keys.hpp"

namespace dstune {

namespace {

using json::Value;

constexpr std::size_t most_runs_on_page = 5000;
/// A figure with more bars is not read.
constexpr std::size_t most_memories_on_page = 20;

constexpr const char* const page_columns[] = {"name",
                                              "status",
                                              "reason",
                                              "value",
                                              "ci_low",
                                              "ci_high",
                                              "measured",
                                              "verified",
                                              "predicted",
                                              "num_gpus",
                                              "stage",
                                              "micro_batch",
                                              "accumulation",
                                              "recompute",
                                              "memory_bytes",
                                              "predicted_memory_bytes",
                                              "target_memory_bytes",
                                              "joules_per_sample",
                                              "probability_best",
                                              "finished_at_s",
                                              "keys"};

Value bytes_or_null(std::int64_t bytes) {
  return bytes > 0 ? Value(bytes) : Value();
}

bool is_good_run(Status status) {
  return status == Status::ok || status == Status::raced_out;
}

/// The predicted throughput in the metric; nothing where it can not be told in it.
std::optional<double> predicted_value(const Row& row, Metric metric) {
  constexpr double us_in_s = 1e6;
  const Prediction& predicted = row.record ? row.record->predicted : row.planned.predicted;
  const std::optional<double>& throughput = ranked_throughput(predicted);
  if (!throughput || !(*throughput > 0)) return std::nullopt;
  const Experiment& experiment = row.planned.experiment;
  const auto batch = static_cast<double>(batch_of(experiment));
  const double flops = row.record ? row.record->measurement.flops_per_step : 0;
  switch (metric) {
    case Metric::throughput:
      return throughput;
    case Metric::throughput_per_gpu:
      return *throughput / experiment.shape.size();
    case Metric::latency:
      return us_in_s * batch / *throughput;
    case Metric::flops:
      return flops > 0 ? std::optional(flops * *throughput / batch / experiment.shape.size())
                       : std::nullopt;
  }
  return std::nullopt;
}

/// The chance of each finalist, and of the answer, to be the best.
std::map<std::size_t, double> chances_of(const Answer& answer) {
  std::map<std::size_t, double> chances;
  for (const Finalist& finalist : answer.finalists)
    if (finalist.probability_best) chances[finalist.member] = *finalist.probability_best;
  if (answer.recommendation)
    chances[answer.recommendation->member] = answer.recommendation->probability_best;
  return chances;
}

Value keys_json(const std::vector<SearchedKey>& keys) {
  Value out = Value::array();
  for (const SearchedKey& key : keys)
    out.push_back({{"pointer", key.is_config ? Value(key.pointer) : Value()},
                   {"label", key.label},
                   {"column", key.label},
                   {"is_config", key.is_config},
                   {"is_derived", key.is_derived},
                   {"values", key.values}});
  return out;
}

/// Members that ran and gave a value, the best first, then others that ran.
std::vector<std::size_t> best_that_ran(const Answer& answer) {
  const double sign = is_minimised(answer.metric) ? 1 : -1;
  std::vector<std::pair<double, std::size_t>> order;
  answer.standings.visit_open([&](std::size_t member, const Standing& standing) {
    if (const auto& value = standing.reported; value && std::isfinite(value->value))
      order.emplace_back(sign * value->value, member);
  });
  std::ranges::sort(order);
  std::vector<std::size_t> members;
  for (const auto& [score, member] : order) members.push_back(member);
  return members;
}

}  // namespace

double page_seconds(double seconds) {
  constexpr double per_second = 1e6;
  return std::round(seconds * per_second) / per_second;
}

Value seconds_on_page(PageTime moment, const std::optional<PageTime>& began) {
  if (!began || moment == PageTime{}) return {};
  return page_seconds(std::chrono::duration<double>(moment - *began).count());
}

std::optional<PageTime> beginning_of(const Answer& answer, PageTime job_began) {
  std::optional<PageTime> began;
  const auto add = [&](PageTime moment) {
    if (moment != PageTime{} && (!began || moment < *began)) began = moment;
  };
  add(job_began);
  answer.standings.visit_open([&](std::size_t, const Standing& standing) {
    if (standing.row->record) add(standing.row->record->started_at);
  });
  return began;
}

Value PageTexts::number_of(const std::string& text) {
  if (text.empty()) return {};
  const auto [found, is_new] = numbers_.try_emplace(digest128(text), places_.size());
  if (is_new) places_.push_back(pool_.add(text));
  return found->second;
}

void PageTexts::visit(const std::function<void(std::string_view)>& visitor) const {
  for (const TextPool::Place place : places_) visitor(pool_.text(place));
}

Value statuses_json(const Answer& answer) {
  Value statuses = Value::array();
  for (const StatusCount& one : answer.counts) statuses.push_back(one.status);
  return statuses;
}

PageTexts add_members(const Answer& answer, const std::optional<PageTime>& began, Value& data,
                      const std::function<void(Value&& row)>& take) {
  const SearchedKeys searched = searched_keys(answer);
  data["keys"] = keys_json(searched.keys);
  data["common_config"] = searched.common_config;
  data["columns"] = page_columns;
  std::map<std::string, std::size_t> status_numbers;
  for (const StatusCount& one : answer.counts)
    status_numbers.emplace(one.status, status_numbers.size());
  const std::map<std::size_t, double> chances = chances_of(answer);
  PageTexts reasons;
  data["members"] = Value::array();
  std::size_t member = 0;
  for (const Standing& standing : answer.standings) {
    const Row& row = *standing.row;
    const Experiment& experiment = row.planned.experiment;
    const TrainingConfig& config = experiment.config;
    const Prediction& predicted = row.record ? row.record->predicted : row.planned.predicted;
    const auto& value = standing.reported;
    // The value itself where nothing else is expected.
    const auto& measured = standing.target || standing.measured ? standing.measured : value;
    const auto chance = chances.find(member);
    Value::array_t keys;
    keys.reserve(searched.keys.size());
    for (const SearchedKey& key : searched.keys) {
      const std::int32_t place = key.value_of[member];
      keys.push_back(place == SearchedKey::absent ? Value() : Value(place));
    }
    Value::array_t cells;
    cells.reserve(std::size(page_columns));
    const auto add = [&](Value cell) { cells.push_back(std::move(cell)); };
    const auto add_number = [&](std::optional<double> number) { add(finite_or_null(number)); };
    add(experiment.name);
    add(status_numbers.at(status_text(row)));
    add(reasons.number_of(reason_text(row)));
    add_number(part_of(value, &MetricValue::value));
    add_number(part_of(value, &MetricValue::ci_low));
    add_number(part_of(value, &MetricValue::ci_high));
    add_number(part_of(measured, &MetricValue::value));
    add_number(part_of(standing.verified, &MetricValue::value));
    add_number(predicted_value(row, answer.metric));
    add(experiment.shape.size());
    add(config.zero_stage);
    add(config.micro_batch);
    add(config.accumulation_steps);
    add(to_text(config.recompute));
    add(bytes_or_null(row.record ? row.record->measurement.peak_memory.total_bytes : 0));
    add(bytes_or_null(predicted.peak_memory_bytes));
    add(bytes_or_null(predicted.target_memory_bytes));
    add_number(standing.joules_per_sample);
    add_number(chance == chances.end() ? std::nullopt : std::optional(chance->second));
    add(row.record ? seconds_on_page(row.record->finished_at, began) : Value());
    add(std::move(keys));
    take(std::move(cells));
    ++member;
  }
  return reasons;
}

void add_measured_memory(const Answer& answer, Value& data) {
  std::vector<std::size_t> shown;
  std::map<std::string, std::int64_t> sums;
  for (const std::size_t member : best_that_ran(answer)) {
    if (shown.size() == most_memories_on_page) break;
    const auto& held = answer.standings[member].row->record->measurement.peak_memory.category_bytes;
    if (held.empty()) continue;
    shown.push_back(member);
    for (const auto& [category, bytes] : held) sums[category] += bytes;
  }
  std::vector<std::string> categories;
  for (const auto& [category, bytes] : sums)
    if (bytes > 0) categories.push_back(category);
  std::ranges::stable_sort(categories, std::greater(),
                           [&](const std::string& one) { return sums[one]; });
  Value rows = Value::array();
  for (const std::size_t member : shown) {
    const auto& held = answer.standings[member].row->record->measurement.peak_memory.category_bytes;
    Value row = {member};
    for (const std::string& category : categories) {
      const auto found = held.find(category);
      row.push_back(found == held.end() ? 0 : found->second);
    }
    rows.push_back(std::move(row));
  }
  data["memory_categories"] = std::move(categories);
  data["memory_of"] = std::move(rows);
}

void add_front(const Answer& answer, Value& data) {
  Value::array_t front;
  for (const Offer& offer : answer.offers)
    front.push_back({offer.member, finite_or_null(offer.value), offer.num_gpus,
                     bytes_or_null(offer.memory_bytes), offer.is_on_front,
                     finite_or_null(offer.throughput_per_gpu)});
  data["front"] = std::move(front);
}

void add_runs(const Answer& answer, const std::optional<PageTime>& began, Value& data) {
  struct PageRun {
    std::size_t member;
    int kind;
    PageTime started_at, finished_at;
    const Measurement* measurement;
  };
  std::vector<PageRun> runs;
  answer.standings.visit_open([&](std::size_t member, const Standing& standing) {
    const Row& row = *standing.row;
    const auto add = [&](int kind, const auto& run) {
      if (!run.measurement.world_ranks.empty())
        runs.push_back({member, kind, run.started_at, run.finished_at, &run.measurement});
    };
    if (row.record) add(0, *row.record);
    for (const Repeat& repeat : row.repeats)
      add(repeat.kind == RepeatKind::final_round ? 2 : 1, repeat);
  });
  std::ranges::stable_sort(runs, {}, &PageRun::started_at);
  const std::size_t left_out = runs.size() - std::min(runs.size(), most_runs_on_page);
  Value::array_t shown;
  for (std::size_t index = left_out; index < runs.size(); ++index) {
    const PageRun& run = runs[index];
    shown.push_back({run.member, run.kind, seconds_on_page(run.started_at, began),
                     seconds_on_page(run.finished_at, began), run.measurement->world_ranks,
                     is_good_run(run.measurement->status)});
  }
  data["runs"] = std::move(shown);
}

}  // namespace dstune
