#include "features.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <type_traits>

namespace dstune {

namespace {

/// A column before it is scaled: NaN-free numbers, of which words are told apart only.
struct Column {
  std::string name;
  bool is_word = false;
  std::vector<double> values;
};

template <class Value>
double amount_of(Value value) {
  // The largest thresholds stand for "no limit", which is not so much more than a large one.
  constexpr double most = 1e13;
  return std::log1p(std::min(most, std::max(0.0, static_cast<double>(value))));
}

std::vector<Column> feature_columns(std::span<const Experiment* const> experiments) {
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
      else if (&value == static_cast<const void*>(&experiment->config.zero_stage))
        add(name, static_cast<double>(value), true);  // a number that is none
      else
        add(name, amount_of(value), false);
    });
    add("num_gpus", amount_of(experiment->shape.num_gpus), false);
    add("num_nodes", amount_of(experiment->shape.num_nodes), false);
  }
  return columns;
}

}  // namespace

double Features::likeness(std::size_t one, std::size_t other) const {
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
  for (const Column& column : feature_columns(experiments)) {
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
  for (std::size_t point = 0; point < points.size; ++point)
    for (const auto& values : of_feature) points.features.push_back(values[point]);
  return features;
}

}  // namespace dstune
