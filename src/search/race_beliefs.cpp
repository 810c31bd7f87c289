#include "race_beliefs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace dstune {

RaceBeliefs::RaceBeliefs(const Points& points, std::vector<double> priors,
                         std::span<const std::vector<double>> unknowns, double run_error,
                         std::uint64_t seed, const Policy& policy)
    : policy_(policy.race),
      least_gain_(std::log1p(policy.answering.relevant_gain)),
      priors_(std::move(priors)),
      run_error_(run_error),
      seed_(seed),
      is_predicted_(!priors_.empty() && priors_.front() != priors_.back()),
      are_groups_alike_(points.of_shape.empty()),
      no_record_(policy.surrogate, is_predicted_ && are_groups_alike_),
      record_(no_record_),
      surrogate_(points, priors_, unknowns, policy.surrogate) {}

void RaceBeliefs::begin(std::size_t place) {
  begin_known(place);
  running_.insert(place);
  is_conditioned_ = false;
}

void RaceBeliefs::begin_known(std::size_t place) {
  if (are_tested()) note_belief(place);
}

void RaceBeliefs::end(std::size_t place) {
  running_.erase(place);
  is_conditioned_ = false;
}

void RaceBeliefs::note(std::size_t place, double score, double deviation, bool is_ok) {
  is_conditioned_ = false;
  samples_.push_back({place, score - priors_[place], std::hypot(deviation, run_error_)});
  if (!order_.try_emplace(place, order_.size()).second)
    is_judged_anew_ &= measured_.at(place).score == score;
  measured_[place] = {score, is_ok};
  if (is_ok) note_if_best(place);
  // How far off was what was believed?
  const auto believed = believed_.extract(place);
  if (!believed) return;
  const Sample& sample = samples_.back();
  const double noise = surrogate_.noise_scale() * sample.noise;
  judge({place, order_.size() - 1, believed.mapped().mean,
         std::hypot(believed.mapped().deviation, noise), sample.value});
}

void RaceBeliefs::judge(const Judged& judged) {
  judged_.push_back(judged);
  record_.note(judged.error());
}

/// Samples are worth something else now: so is what would have been believed of those that
/// followed. By what is learnt so far of how they hang together.
void RaceBeliefs::judge_anew() const {
  constexpr std::size_t most = 32;
  record_ = no_record_;
  for (std::size_t each = 0; each < judged_.size(); ++each) {
    Judged& judged = judged_[each];
    if (judged.place && each + most >= judged_.size()) {
      std::vector<Sample> known;
      std::optional<Sample> own;
      for (const Sample& sample : samples_) {
        if (order_.at(sample.point) < judged.num_known) known.push_back(sample);
        if (sample.point == *judged.place) own = sample;
      }
      if (own && !known.empty()) {
        surrogate_.trust(1, false);
        surrogate_.condition(known);
        const Posterior believed = surrogate_.at(*judged.place);
        judged.mean = believed.mean;
        judged.deviation = std::hypot(believed.deviation, surrogate_.noise_scale() * own->noise);
        judged.value = own->value;
      }
    }
    record_.note(judged.error());
  }
  is_judged_anew_ = true;
}

void RaceBeliefs::forget(std::size_t place) {
  std::erase_if(samples_, [&](const Sample& sample) { return sample.point == place; });
  is_conditioned_ = false;
}

void RaceBeliefs::learn_anew() {
  // The best of before may have lost more than others.
  for (const Sample& sample : samples_)
    if (measured_.at(sample.point).is_ok) note_if_best(sample.point);
  num_trained_ = 0;
}

bool RaceBeliefs::are_tested() const {
  return samples_.size() >=
         (is_predicted_ ? policy_.min_believed : policy_.min_believed_unpredicted);
}

/// Before the record widens it.
void RaceBeliefs::note_belief(std::size_t place) {
  condition();
  const Posterior posterior = surrogate_.at(place);
  believed_[place] = {posterior.mean, posterior.deviation / trusted_scale_};
}

void RaceBeliefs::note_if_best(std::size_t place) {
  if (!best_ || measured_.at(place).score > best_score()) best_ = place;
}

/// Brings the posterior up to what is known. Those that run count as if they would end as
/// expected.
void RaceBeliefs::condition() const {
  if (is_conditioned_ || samples_.empty()) return;
  // Learning takes cubic time: not after each of many.
  if (samples_.size() > num_trained_ + num_trained_ / policy_.relearnt_after) {
    surrogate_.learn(samples_);
    num_trained_ = samples_.size();
  }
  if (!is_judged_anew_) judge_anew();
  surrogate_.condition(samples_);
  std::vector<Sample> with_running = samples_;
  for (const std::size_t place : running_)
    with_running.push_back({place, surrogate_.at(place).mean, run_error_});
  if (with_running.size() > samples_.size()) surrogate_.condition(with_running);
  trusted_scale_ = record_.scale();
  surrogate_.trust(trusted_scale_, record_.has_heavy_tails());
  is_conditioned_ = true;
  chance_.reset();
}

double RaceBeliefs::expected_score(std::size_t place) const {
  condition();
  return priors_[place] + surrogate_.at(place).mean;
}

Posterior RaceBeliefs::advantage(std::size_t place) const {
  condition();
  Posterior posterior = surrogate_.difference(place, *best_);
  posterior.mean += priors_[place] - priors_[*best_];
  return posterior;
}

Posterior RaceBeliefs::relevant_advantage(std::size_t place) const {
  Posterior posterior = advantage(place);
  posterior.mean -= least_gain_;
  return posterior;
}

double RaceBeliefs::chance_of_better(const std::set<std::size_t>& waiting) const {
  condition();
  if (chance_) return *chance_;
  using Chance = std::pair<double, Surrogate::Challenger>;
  std::vector<Chance> challengers;
  for (const std::size_t place : waiting) {
    const double offset = priors_[place] - priors_[*best_] - least_gain_;
    challengers.push_back({chance_above_zero(relevant_advantage(place)), {place, offset}});
  }
  std::ranges::sort(challengers, std::ranges::greater(), &Chance::first);
  const auto sum_from = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t each = first; each < challengers.size(); ++each)
      sum += challengers[each].first;
    return sum;
  };
  const auto any_of = [&](std::size_t most, int draws) {
    const std::size_t joint = std::min(challengers.size(), most);
    std::vector<Surrogate::Challenger> closest;
    for (std::size_t each = 0; each < joint; ++each) closest.push_back(challengers[each].second);
    return std::min(1.0, surrogate_.chance_of_any(closest, *best_, seed_, draws) + sum_from(joint));
  };
  const double at_most = sum_from(0);
  const double likeliest = challengers.empty() ? 0 : challengers.front().first;
  // Members that wait hang together.
  const double independent =
      is_predicted_ ? policy_.independent_waiting : policy_.independent_waiting_unpredicted;
  const double of_few = 1 - std::pow(1 - likeliest, independent);
  if (at_most < policy_.small_chance) {
    chance_ = at_most;
  } else if (likeliest < policy_.small_chance || samples_.size() <= policy_.few_measured) {
    chance_ = any_of(policy_.max_challengers, policy_.num_draws);
    if (!is_predicted_ && samples_.size() > policy_.few_measured)
      chance_ = std::min(*chance_, of_few);
  } else if (is_predicted_ && are_groups_alike_) {
    // Members are more alike in what is wrong about them than beliefs know. So the truth lies
    // between the likeliest one's chance and that of all, as if they hung together no more.
    chance_ = (likeliest + any_of(policy_.few_challengers, policy_.few_draws)) / 2;
  } else {
    // The chances of hundreds of members sum up to one, however small each is.
    chance_ = of_few;
  }
  return *chance_;
}

}  // namespace dstune
