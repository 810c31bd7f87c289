#include "untried_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace dstune {

std::optional<std::size_t> UntriedValues::next() const {
  for (const KnobChoice& values : knob_values_next_to_best())
    if (const auto place = untried_with(values)) return place;
  if (const auto place = untried_below_limit()) return place;
  for (const KnobChoice& values : pairs_next_to_best())
    if (const auto place = untried_with(values)) return place;
  return std::nullopt;
}

std::size_t UntriedValues::count() const {
  const auto is_untried = [&](const KnobChoice& values) {
    return untried_with(values).has_value();
  };
  return static_cast<std::size_t>(std::ranges::count_if(knob_values_next_to_best(), is_untried) +
                                  std::ranges::count_if(pairs_next_to_best(), is_untried)) +
         (untried_below_limit() ? 1 : 0);
}

std::vector<KnobChoice> UntriedValues::knob_values_next_to_best() const {
  std::vector<KnobChoice> all;
  for (std::size_t knob = 0; knob < neighbours_.num_knobs(); ++knob)
    for (const int value : neighbours_.values_next_to(best(), knob)) all.push_back({{knob, value}});
  return all;
}

std::vector<KnobChoice> UntriedValues::pairs_next_to_best() const {
  std::vector<KnobChoice> all;
  for (const auto& [one, other] : pairs_)
    for (const int of_one : neighbours_.values_next_to(best(), one))
      for (const int of_other : neighbours_.values_next_to(best(), other))
        all.push_back({{one, of_one}, {other, of_other}});
  return all;
}

/// Members that need more than some memory may be slower than predicted, whatever their knobs are.
/// Such a limit may separate the measured members. Then this returns the most promising one below
/// it that would be better than the best, corrected as those below the limit were.
std::optional<std::size_t> UntriedValues::untried_below_limit() const {
  std::vector<std::pair<std::int64_t, double>> measured;
  for (const Sample& sample : samples())
    measured.emplace_back(entrants_.memory_bytes(sample.point), sample.value);
  std::ranges::sort(measured);
  const std::size_t few = policy_.few_measured;
  for (std::size_t split = few; split + few <= measured.size(); ++split) {
    const auto limit = measured.begin() + static_cast<std::ptrdiff_t>(split);
    const std::int64_t too_many_bytes = limit->first;
    std::vector<double> below, above;
    for (auto each = measured.begin(); each != measured.end(); ++each)
      (each < limit ? below : above).push_back(each->second);
    if (std::prev(limit)->first == too_many_bytes ||
        std::ranges::min(below) - std::ranges::max(above) < policy_.cost_of_limit)
      continue;
    std::ranges::sort(below);
    const double needed =
        beliefs_.best_score() + std::log1p(relevant_gain_) - below[below.size() / 2];
    for (const std::size_t place : entrants_.waiting())
      if (entrants_.memory_bytes(place) < too_many_bytes && entrants_[place].prior >= needed &&
          !memory_.is_for_later(place))
        return place;
  }
  return std::nullopt;
}

/// Nothing where one was tried near the best one, or runs, or none is left, or where what was
/// measured excludes them.
std::optional<std::size_t> UntriedValues::untried_with(const KnobChoice& values) const {
  const auto can_be_tried = [&](std::size_t place) {
    return neighbours_.has(place, values) && !entrants_.is_hopeless(place) &&
           !memory_.is_for_later(place) &&
           (neighbours_.is_of_knob(values) || is_unpredicted_pair(values) || could_win(place));
  };
  // At another group size, or stage, only where the best one's leaves nothing to be tried.
  const bool is_local = std::ranges::any_of(entrants_.waiting(), [&](std::size_t place) {
    return is_together(place, best(), values) && can_be_tried(place);
  });
  const auto is_where_best_is = [&](std::size_t place) {
    return !is_local || is_together(place, best(), values);
  };
  const auto is_near = [&](std::size_t place) {
    return neighbours_.has(place, values) && neighbours_.distance(place, best()) <= policy_.near &&
           is_where_best_is(place);
  };
  if (std::ranges::any_of(entrants_.ended(), is_near) ||
      std::ranges::any_of(beliefs_.running(), is_near))
    return std::nullopt;
  std::optional<std::size_t> nearest;
  int least = 0;
  // The first of equal ones promises most.
  for (const std::size_t place : entrants_.waiting()) {
    if (!is_where_best_is(place) || !can_be_tried(place)) continue;
    if (const int far = neighbours_.distance(place, best()); !nearest || far < least) {
      nearest = place;
      least = far;
    }
  }
  if (nearest && is_excluded(*nearest, values)) return std::nullopt;
  return nearest;
}

/// It would be better than the best if the most favourable of all measured corrections held of it.
bool UntriedValues::could_win(std::size_t place) const {
  return entrants_[place].prior + std::ranges::max(samples(), {}, &Sample::value).value >=
         beliefs_.best_score() + std::log1p(relevant_gain_);
}

/// Knobs act together with the size of the group, and, as long as no prediction says how, with the
/// stage. A measurement says of a value only where these are the same. Memory is the same
/// everywhere.
bool UntriedValues::is_together(std::size_t one, std::size_t other,
                                const KnobChoice& values) const {
  return neighbours_.is_of_memory(values) ||
         neighbours_.are_together(one, other, values, !entrants_.are_told_apart());
}

/// Without predictions there are no corrections, by the most favourable of which a pair could win.
bool UntriedValues::is_unpredicted_pair(const KnobChoice& values) const {
  return !entrants_.are_told_apart() && values.size() > 1;
}

/// Each of the values was measured on groups of that size, and by what that says the member is not
/// better.
bool UntriedValues::is_excluded(std::size_t place, const KnobChoice& values) const {
  const bool all_measured = std::ranges::all_of(values, [&](const KnobPoint& each) {
    return std::ranges::any_of(samples(), [&](const Sample& one) {
      return neighbours_.has(one.point, {each}) && is_together(one.point, place, values);
    });
  });
  if (!all_measured) return false;
  // Nobody knows how a value does on groups on which it has not run.
  if (is_unpredicted_pair(values) && neighbours_.is_of_shape(values.front()) &&
      std::ranges::none_of(samples(),
                           [&](const Sample& one) { return neighbours_.has(one.point, values); }))
    return false;
  return chance_above_zero(beliefs_.relevant_advantage(place)) <
         (neighbours_.is_of_knob(values) ? policy_.excluded_chance
                                         : policy_.excluded_chance_of_others);
}

}  // namespace dstune
