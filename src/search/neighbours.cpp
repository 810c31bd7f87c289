#include "neighbours.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace dstune {

namespace {

bool is_power_of_two(int number) {
  return std::has_single_bit(static_cast<unsigned>(number));
}

Points with_memory(const Points& points, const std::vector<std::int64_t>& memory_bytes,
                   int num_memory_classes) {
  if (memory_bytes.empty()) return points;  // where nothing fits, nothing is more than the least
  std::vector<double> amounts;
  for (const std::int64_t bytes : memory_bytes)
    amounts.push_back(std::log1p(static_cast<double>(std::max<std::int64_t>(0, bytes))));
  const auto [least, most] = std::ranges::minmax(amounts);
  if (!(most > least)) return points;
  Points result = points;
  ++result.num_features;
  result.features.clear();
  result.knobs.push_back(points.knobs.empty() ? 0 : points.knobs.back() + 1);
  for (std::size_t place = 0; place < points.size; ++place) {
    const auto point = points[place];
    result.features.insert(result.features.end(), point.begin(), point.end());
    const double share = (amounts[place] - least) / (most - least);
    result.features.push_back(std::round(share * num_memory_classes) / num_memory_classes);
  }
  return result;
}

}  // namespace

Neighbours::Neighbours(const Points& points, const std::vector<std::int64_t>& memory_bytes,
                       int num_memory_classes)
    : points_(with_memory(points, memory_bytes, num_memory_classes)), knobs_(knob_values(points)) {
  num_own_knobs_ = knobs_.size();
  if (points_.num_features > points.num_features) knobs_.push_back(knob_values(points_).back());
}

int Neighbours::distance(std::size_t one, std::size_t other) const {
  return static_cast<int>(std::ranges::count_if(own_knobs(), [&](const KnobValues& knob) {
    return knob.value_of[one] != knob.value_of[other];
  }));
}

double Neighbours::difference(std::size_t one, std::size_t other) const {
  double sum = 0;
  for (const KnobValues& knob : own_knobs()) {
    const int apart = std::abs(knob.value_of[one] - knob.value_of[other]);
    if (apart == 0) continue;
    sum += knob.is_ordered ? static_cast<double>(apart) / (knob.size() - 1) : 1;
  }
  return sum;
}

bool Neighbours::is_of_knob(const KnobChoice& choice) const {
  return choice.size() == 1 && choice.front().knob < num_own_knobs_;
}

bool Neighbours::is_of_memory(const KnobChoice& choice) const {
  return choice.size() == 1 && choice.front().knob >= num_own_knobs_;
}

bool Neighbours::is_of_shape(const KnobPoint& value) const {
  return std::ranges::find(points_.of_shape, value.knob) != points_.of_shape.end();
}

bool Neighbours::are_together(std::size_t one, std::size_t other, const KnobChoice& choice,
                              bool stage_counts) const {
  const auto is_alike = [&](std::size_t knob) {
    return knobs_[knob].value_of[one] == knobs_[knob].value_of[other] ||
           std::ranges::any_of(choice, [=](const KnobPoint& each) { return each.knob == knob; });
  };
  return std::ranges::all_of(points_.of_shape, is_alike) &&
         (!stage_counts || !points_.of_stage || is_alike(*points_.of_stage));
}

bool Neighbours::has(std::size_t place, const KnobChoice& choice) const {
  return std::ranges::all_of(choice, [&](const KnobPoint& each) {
    return knobs_[each.knob].value_of[place] == each.value;
  });
}

std::vector<int> Neighbours::values_next_to(std::size_t place, std::size_t knob) const {
  const int own = knobs_[knob].value_of[place];
  const int end = knob < num_own_knobs_ ? knobs_[knob].size() : own;
  std::vector<int> values;
  for (int value = 0; value < end; ++value)
    if (value != own && (!knobs_[knob].is_ordered || is_power_of_two(std::abs(value - own))))
      values.push_back(value);
  return values;
}

}  // namespace dstune
