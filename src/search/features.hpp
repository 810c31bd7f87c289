#pragma once
/// Members of a space as points of numbers. Local.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dstune/search/planner.hpp"

namespace dstune {

/// A table of points: one row of features each, all between 0 and 1.
struct Points {
  std::size_t num_features = 0;
  std::vector<double> features;  ///< [point][feature]
  std::size_t size = 0;
  /// The knob that each feature belongs to, rising from 0; empty: each is one of its own.
  std::vector<std::size_t> knobs{};
  /// Knobs that act together.
  std::vector<std::pair<std::size_t, std::size_t>> pairs{};
  /// Knobs of the group of ranks, and that of the ZeRO stage, where points differ in them.
  std::vector<std::size_t> of_shape{};
  std::optional<std::size_t> of_stage{};
  [[nodiscard]] std::span<const double> operator[](std::size_t point) const {
    return {features.data() + point * num_features, num_features};
  }
};

/// A knob's values, numbered in rising order, and which one each point has.
struct KnobValues {
  std::vector<std::vector<double>> values;  ///< [value][feature of the knob]
  std::vector<int> value_of;                ///< [point]
  bool is_ordered = false;                  ///< an amount or a switch: one feature
  [[nodiscard]] int size() const { return static_cast<int>(values.size()); }
};
/// In the order of the features.
std::vector<KnobValues> knob_values(const Points& points);

/// Members as points of numbers.
struct Features {
  Points points;
  /// Name of each feature: TrainingConfig's member, or the group's, or a key's pointer.
  std::vector<std::string> names;
  /// The share of features in which two members are equal; 1 where nothing differs.
  [[nodiscard]] double similarity(std::size_t one, std::size_t other) const;
};

/// One point a member, in the same order: what differs between them, by TrainingConfig's members
/// and the group's shape, and by keys of the DeepSpeed config that alone tell some apart. Amounts
/// count by their logarithm, words and switches as one feature a value; all from 0 to 1.
Features features_of(std::span<const Experiment* const> experiments);

}  // namespace dstune
