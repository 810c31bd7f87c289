#include "features.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <type_traits>

#include "dstune/core/settings.hpp"

namespace dstune {

namespace {

/// A column before it is scaled: NaN-free numbers, of which words are told apart only.
struct Column {
  std::string name;
  bool is_word = false;
  std::vector<double> values;
};

/// A group of ranks differs in these.
const std::array<std::string, 2> shape_features = {"num_gpus", "num_nodes"};

/// Members of TrainingConfig: by the table of keys, and those of no row. With the ranks of a group
/// it differs what a stage costs, and how much of a node a micro-batch takes.
std::vector<std::pair<std::string, std::string>> acting_together() {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Knob& knob : every_knob().knobs())
    if (!knob.acts_with.empty()) pairs.emplace_back(knob.acts_with, knob.member);
  pairs.insert(pairs.end(), {{"micro_batch", "accumulation_steps"}, {"micro_batch", "recompute"}});
  for (const std::string& shape : shape_features)
    for (const char* const member : {"zero_stage", "micro_batch"})
      pairs.emplace_back(shape, member);
  return pairs;
}

/// A member that is a number and stands for a name.
bool is_name(std::string_view member) {
  static const auto names = [] {
    std::set<std::string_view> all;
    for (const Knob& knob : every_knob().knobs())
      if (knob.is_name) all.insert(knob.member);
    return all;
  }();
  return names.contains(member);
}

template <class Value>
double amount_of(Value value) {
  // The largest thresholds stand for "no limit", which is not so much more than a large one.
  constexpr double most = 1e13;
  return std::log1p(std::min(most, std::max(0.0, static_cast<double>(value))));
}

std::vector<Column> columns_of(std::span<const Experiment* const> experiments) {
  std::vector<Column> columns;
  std::map<std::string, double> texts;  // in order of appearance
  for (const Experiment* experiment : experiments) {
    std::size_t at = 0;
    const auto add = [&](const char* name, double value, bool is_word) {
      if (at == columns.size()) columns.push_back({name, is_word, {}});
      columns[at++].values.push_back(value);
    };
    for_each_member(experiment->config, [&](const char* name, const auto& value) {
      using Value = std::decay_t<decltype(value)>;
      if constexpr (std::is_enum_v<Value>)
        add(name, static_cast<double>(value), true);
      else if constexpr (std::is_same_v<Value, std::string>)
        add(name, texts.try_emplace(value, static_cast<double>(texts.size())).first->second, true);
      else if (is_name(name))
        add(name, static_cast<double>(value), true);
      else
        add(name, amount_of(value), false);
    });
    add(shape_features[0].c_str(), amount_of(experiment->shape.num_gpus), false);
    add(shape_features[1].c_str(), amount_of(experiment->shape.num_nodes), false);
  }
  return columns;
}

/// Pointers at which members differ that are the same by all columns: keys that the tables do not
/// know, on which somebody else's code acts.
std::set<std::string> unknown_pointers(std::span<const Experiment* const> experiments,
                                       const std::vector<Column>& columns) {
  std::map<std::vector<double>, json::Value> first_of;  // its config, flat
  std::set<std::string> pointers;
  std::set<std::vector<double>> rows;
  std::vector<std::vector<double>> row_of(experiments.size());
  bool is_any_alike = false;
  for (std::size_t member = 0; member < experiments.size(); ++member) {
    for (const Column& column : columns) row_of[member].push_back(column.values[member]);
    is_any_alike |= !rows.insert(row_of[member]).second;
  }
  if (!is_any_alike) return pointers;
  for (std::size_t member = 0; member < experiments.size(); ++member) {
    if (!experiments[member]->ds_config.is_object()) continue;
    json::Value flat = experiments[member]->ds_config.flatten();
    const auto [found, is_new] = first_of.try_emplace(row_of[member], flat);
    if (is_new) continue;
    const json::Value& first = found->second;
    for (const auto& [pointer, value] : flat.items())
      if (!first.contains(pointer) || first[pointer] != value) pointers.insert(pointer);
    for (const auto& [pointer, value] : first.items())
      if (!flat.contains(pointer)) pointers.insert(pointer);
  }
  return pointers;
}

/// Amounts where all are numbers, else words; what is absent is one, too.
Column column_of(const std::string& pointer, std::span<const Experiment* const> experiments) {
  Column column{pointer, false, {}};
  std::vector<json::Value> values;
  const json::Value::json_pointer place(pointer);
  for (const Experiment* const experiment : experiments) {
    const json::Value& config = experiment->ds_config;
    values.push_back(config.is_object() && config.contains(place) ? config[place] : json::Value());
    column.is_word |= !values.back().is_number();
  }
  std::map<std::string, double> words;
  for (const json::Value& value : values)
    column.values.push_back(column.is_word
                                ? words.try_emplace(value.dump(), words.size()).first->second
                                : amount_of(value.get<double>()));
  return column;
}

}  // namespace

std::vector<KnobValues> knob_values(const Points& points) {
  std::vector<KnobValues> knobs;
  for (std::size_t feature = 0; feature < points.num_features;) {
    std::size_t end = feature + 1;
    while (!points.knobs.empty() && end < points.num_features &&
           points.knobs[end] == points.knobs[feature])
      ++end;
    const auto row = [&](std::size_t point) {
      const auto found = points[point].subspan(feature, end - feature);
      return std::vector<double>(found.begin(), found.end());
    };
    KnobValues& knob = knobs.emplace_back();
    knob.is_ordered = end == feature + 1;
    std::map<std::vector<double>, int> numbers;
    for (std::size_t point = 0; point < points.size; ++point) numbers.try_emplace(row(point));
    for (auto& [value, number] : numbers) {
      number = knob.size();
      knob.values.push_back(value);
    }
    for (std::size_t point = 0; point < points.size; ++point)
      knob.value_of.push_back(numbers.at(row(point)));
    feature = end;
  }
  return knobs;
}

double Features::similarity(std::size_t one, std::size_t other) const {
  if (points.num_features == 0) return 1;
  std::size_t equal = 0;
  for (std::size_t feature = 0; feature < points.num_features; ++feature)
    if (points[one][feature] == points[other][feature]) ++equal;
  return static_cast<double>(equal) / static_cast<double>(points.num_features);
}

Features features_of(std::span<const Experiment* const> experiments) {
  Features features;
  std::vector<std::vector<double>> of_feature;
  const auto add = [&](const Column& column, const auto& feature_of) {
    features.names.push_back(column.name);
    auto& values = of_feature.emplace_back();
    for (const double value : column.values) values.push_back(feature_of(value));
  };
  std::vector<Column> columns = columns_of(experiments);
  for (const std::string& pointer : unknown_pointers(experiments, columns))
    columns.push_back(column_of(pointer, experiments));
  for (const Column& column : columns) {
    const std::set<double> levels(column.values.begin(), column.values.end());
    if (levels.size() < 2) continue;
    const double low = *levels.begin();
    const double range = *levels.rbegin() - low;
    if (column.is_word && levels.size() > 2) {
      for (const double level : levels)
        add(column, [&](double value) { return value == level ? 1.0 : 0.0; });
    } else {
      add(column, [&](double value) { return (value - low) / range; });
    }
  }
  Points& points = features.points;
  points.size = experiments.size();
  points.num_features = of_feature.size();
  std::map<std::string, std::size_t> knobs;
  for (const std::string& name : features.names)
    points.knobs.push_back(knobs.try_emplace(name, knobs.size()).first->second);
  for (const auto& [one, other] : acting_together())
    if (knobs.contains(one) && knobs.contains(other))
      points.pairs.emplace_back(knobs[one], knobs[other]);
  for (const std::string& shape : shape_features)
    if (knobs.contains(shape)) points.of_shape.push_back(knobs[shape]);
  if (knobs.contains("zero_stage")) points.of_stage = knobs["zero_stage"];
  for (std::size_t point = 0; point < points.size; ++point)
    for (const auto& values : of_feature) points.features.push_back(values[point]);
  return features;
}

}  // namespace dstune
