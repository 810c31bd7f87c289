#include "race_choice.hpp"

#include <algorithm>
#include <cmath>

#include "surrogate.hpp"

namespace dstune {

namespace {

/// The deviation of what is known exactly.
constexpr double least_deviation = 1e-9;

}  // namespace

/// The first one with the highest score of those that wait; where the limit of memory is looked
/// for, what leads there, or else another one.
template <class Score>
std::size_t RaceChoice::most_promising(const Score& score_of) const {
  const auto first_of = [&](const auto& is_taken) {
    std::size_t chosen = entrants_.size();
    double best_score = 0;
    for (const std::size_t place : entrants_.waiting()) {
      if (!is_taken(place)) continue;
      const double score = score_of(place);
      if (chosen != entrants_.size() && score <= best_score) continue;
      chosen = place;
      best_score = score;
    }
    return chosen;
  };
  const std::size_t chosen = first_of([](std::size_t) { return true; });
  if (chosen == entrants_.size() || !memory_.is_for_later(chosen)) return chosen;
  if (const auto place = memory_.before(chosen)) return *place;
  const std::size_t other =
      first_of([&](std::size_t place) { return !memory_.is_for_later(place); });
  return other == entrants_.size() ? chosen : other;
}

template <class Visit>
void RaceChoice::for_each_begun(const Visit& visit) const {
  for (const std::size_t place : beliefs_.running()) visit(place);
  for (const std::size_t place : entrants_.ended()) visit(place);
}

std::size_t RaceChoice::first() const {
  return most_promising([&](std::size_t place) {
    double similarity = 0;
    for_each_begun([&](std::size_t other) {
      similarity = std::max(similarity, features_.similarity(place, other));
    });
    return entrants_[place].prior - similarity;
  });
}

std::size_t RaceChoice::most_different() const {
  const auto score_of = [&](std::size_t place) {
    if (entrants_.is_hopeless(place)) return entrants_[place].prior - entrants_[0].prior;
    double nearest = HUGE_VAL;
    for_each_begun([&](std::size_t other) {
      nearest = std::min(nearest, neighbours_.difference(place, other));
    });
    return nearest;
  };
  const std::size_t chosen = most_promising(score_of);
  if (!is_unplanned_ || !(score_of(chosen) > 0)) return chosen;
  // The shortest step is chosen from those that teach as much.
  const double enough = as_different_ * score_of(chosen);
  return most_promising([&](std::size_t place) {
    return score_of(place) >= enough ? -expected_step(place) : -HUGE_VAL;
  });
}

/// How long a step is likely to take: a logarithm, up to a constant.
double RaceChoice::expected_step(std::size_t place) const {
  const Experiment& experiment = entrants_.planned(place).experiment;
  const double score =
      beliefs_.samples().empty() ? entrants_[place].prior : beliefs_.expected_score(place);
  if (metric_ == Metric::latency) return -score;
  const int size = metric_ == Metric::throughput ? experiment.shape.size() : 1;
  return std::log(static_cast<double>(global_batch(experiment.config, size))) - score;
}

std::size_t RaceChoice::likeliest() const {
  return most_promising([&](std::size_t place) {
    // Without a best one all that was timed was raced out: what is known of the member decides.
    if (!beliefs_.best()) return beliefs_.expected_score(place);
    // Rises with the chance, and tells apart what is all but sure, or next to impossible.
    const Posterior advantage = beliefs_.relevant_advantage(place);
    if (is_unplanned_ || is_short_) return expected_improvement(advantage);
    return advantage.mean / std::max(advantage.deviation, least_deviation);
  });
}

}  // namespace dstune
