#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "features.hpp"
#include "measured_memory.hpp"
#include "neighbours.hpp"
#include "surrogate.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// More are not told apart: of the others the predictions decide, or the seed.
constexpr std::size_t max_candidates = 4000;
/// What is better by less than this is not worth finding (design 7).
constexpr double relevant_gain = 0.01;
constexpr double small_chance = 0.05;
/// Every second one of so many is run to learn of the space, not for what it promises.
constexpr std::size_t num_explored = 8;
/// What is predicted to be so many times slower than the best is run for neither, only for what it
/// promises.
constexpr double hopeless_factor = 4;
/// … where predictions were made of what this search has measured of sizes.
constexpr double hopeless_size_factor = 1.5;
/// Of members that differ from what was run, those that do so by this share of the most are taken
/// for alike.
constexpr double as_different = 0.75;
/// A value of a knob counts as tried next to the best one by a member that differs in so many
/// knobs.
constexpr int near = 3;
/// What was measured excludes a value where beliefs leave no more than this chance to it; one of
/// the memory, or a pair of values, is excluded earlier.
constexpr double excluded_chance = 0.005;
constexpr double excluded_chance_of_others = 0.02;
/// What is short of memory takes at least so much longer; a logarithm.
constexpr double cost_of_limit = 0.1;
/// After so few experiments beliefs say little of each member, and all count together.
constexpr std::size_t few_samples = 2;
/// Beliefs are tested from so many samples on: the first one gives the factor that all predictions
/// share. Where nothing is predicted it says nothing of how far others may be from it.
constexpr std::size_t min_believed = 1;
constexpr std::size_t min_believed_unpredicted = 2;
/// Without beliefs that hold so many are run, or that share of the members where it is more.
constexpr std::size_t min_cap = 10;
constexpr double cap_share = 0.35;
/// The joint draws are among so many; of all others their own chances count.
constexpr std::size_t max_challengers = 200;
constexpr int num_draws = 2000;
/// … and where the search is far from its end, so that its chance decides nothing.
constexpr std::size_t few_challengers = 64;
constexpr int few_draws = 400;
/// Of what is known exactly.
constexpr double least_deviation = 1e-9;
/// Where an interval has no end.
constexpr double no_precision = 0.2;

class RaceTuner : public Tuner {
 public:
  RaceTuner(const PlannedSpace& space, const TuningOptions& options, const Begun& begun)
      : space_(space),
        metric_(options.metric),
        seed_(static_cast<std::uint64_t>(options.seed)),
        memory_(space),
        run_error_(begun.run_error),
        are_spread_(begun.are_spread),
        fitted_(begun.fitted) {
    if (options.num_trials) trials_left_ = static_cast<std::size_t>(*options.num_trials);
    is_short_ = trials_left_ <= num_explored;
    choose_candidates();
    std::vector<const PlannedExperiment*> members;
    std::vector<const Experiment*> experiments;
    for (const Candidate& candidate : candidates_) {
      members.push_back(&space_.members[candidate.member].planned);
      experiments.push_back(&members.back()->experiment);
    }
    features_ = features_of(experiments);
    std::vector<double> predicted;
    for (const Candidate& candidate : candidates_) predicted.push_back(candidate.prior);
    std::vector<std::int64_t> bytes;
    for (const PlannedExperiment* const member : members)
      bytes.push_back(member->predicted.peak_memory_bytes);
    neighbours_.emplace(features_.points, bytes);
    std::vector<std::vector<double>> unknowns;
    if (!begun.unknowns.empty())
      for (const Candidate& candidate : candidates_)
        unknowns.push_back(begun.unknowns[candidate.member]);
    surrogate_.emplace(neighbours_->points(), predicted, unknowns);
    cap_ = std::max(min_cap, static_cast<std::size_t>(
                                 std::ceil(cap_share * static_cast<double>(candidates_.size()))));
    failures_.emplace(std::move(members), features_);
    for (const auto& [member, observation] : begun.observed)
      if (const auto place = place_of_member_.find(member); place != place_of_member_.end())
        take(place->second, observation);
    for (const double error : begun.errors) record_.note(error);
  }

  std::optional<std::size_t> next() override {
    if (trials_left_ == 0 || waiting_.empty() || is_enough()) return std::nullopt;
    const auto untried = are_beliefs_enough() ? untried_next_to_best() : std::nullopt;
    const std::size_t begun = observed_.size() - num_fitted_ + running_.size();
    const bool explores = !are_spread_ && begun < num_explored && begun % 2 == 1;
    const std::size_t chosen = untried            ? *untried
                               : explores         ? most_different()
                               : samples_.empty() ? first_choice()
                                                  : best_choice();
    if (are_beliefs_tested()) note_belief(chosen);
    waiting_.erase(chosen);
    running_.insert(chosen);
    --trials_left_;
    is_conditioned_ = false;
    return candidates_[chosen].member;
  }

  void observe(std::size_t index, const Observation& observation) override {
    const auto found = place_of_member_.find(index);
    if (found == place_of_member_.end()) return;  // known, but none of those that are told apart
    const std::size_t place = found->second;
    // Known from the journal: what would have been believed.
    if (fitted_.contains(index)) {
      ++num_fitted_;
    } else if (observation.value && !running_.contains(place) && are_beliefs_tested()) {
      condition();
      note_belief(place);
    }
    take(place, observation);
  }

  void revise(std::size_t index, const Observation& observation) override {
    const auto found = place_of_member_.find(index);
    if (found == place_of_member_.end() || !observed_.contains(found->second)) return;
    const std::size_t place = found->second;
    std::erase_if(samples_, [&](const Sample& sample) { return sample.point == place; });
    note_value(place, observation);
    // The best of before may have lost more than others; what is learnt is of other values.
    for (const Sample& sample : samples_)
      if (candidates_[sample.point].is_ok) note_if_best(sample.point);
    num_trained_ = 0;
  }

  [[nodiscard]] bool is_done() const override {
    return running_.empty() && (trials_left_ == 0 || waiting_.empty() || is_enough());
  }

  /// The next choice is made when ranks are idle, with all that is known by then.
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    for (std::size_t place = 0; place < candidates_.size(); ++place) {
      const Candidate& candidate = candidates_[place];
      if (!candidate.reason.empty()) all.push_back({candidate.member, candidate.reason});
      if (waiting_.contains(place)) all.push_back({candidate.member, reason_of(place)});
    }
    for (const std::size_t index : never_considered_)
      all.push_back(
          {index, fmt::format("not among the {} members that promise most", candidates_.size())});
    return all;
  }

  [[nodiscard]] std::optional<double> chance_of_better() const override {
    if (!best_) return std::nullopt;
    update_chance();
    // What beliefs know nothing of may be among those that wait, too.
    return waiting_.empty() ? chance_ : 1 - (1 - chance_) * (1 - record_.chance_unforeseen());
  }

 private:
  struct Candidate {
    std::size_t member = 0;
    double prior = 0;      ///< logarithm of the metric as predicted, larger is better
    double score = 0;      ///< likewise, as measured
    bool is_ok = false;    ///< it was timed to its end
    std::string reason{};  ///< why a failure excludes it; empty: none does
  };

  /// Larger is better; up to a constant, which all members share. Nothing where there is no
  /// prediction.
  [[nodiscard]] std::optional<double> predicted_score(const PlannedExperiment& planned) const {
    const double throughput = ranked_throughput(planned.predicted).value_or(0);
    if (throughput <= 0) return std::nullopt;
    const int size = planned.experiment.shape.size();
    if (metric_ == Metric::throughput) return std::log(throughput);
    const bool is_latency = metric_ == Metric::latency;
    const auto divisor =
        is_latency ? static_cast<double>(global_batch(planned.experiment.config, size)) : size;
    return std::log(throughput / divisor);
  }

  void choose_candidates() {
    double sum = 0;
    std::vector<std::size_t> unpredicted;
    for (const std::size_t index : planned_members(space_)) {
      const auto predicted = predicted_score(space_.members[index].planned);
      sum += predicted.value_or(0);
      if (!predicted) unpredicted.push_back(candidates_.size());
      candidates_.push_back({index, predicted.value_or(0)});
    }
    const std::size_t num_predicted = candidates_.size() - unpredicted.size();
    // Nothing is known of them: as good as the others are on average.
    for (const std::size_t place : unpredicted)
      candidates_[place].prior = num_predicted > 0 ? sum / static_cast<double>(num_predicted) : 0;
    // The order breaks ties, so it must not be the document's.
    std::mt19937_64 random(seed_);
    for (std::size_t left = candidates_.size(); left > 1; --left)
      std::swap(candidates_[left - 1], candidates_[random() % left]);
    std::ranges::stable_sort(candidates_, std::ranges::greater(), &Candidate::prior);
    for (std::size_t place = max_candidates; place < candidates_.size(); ++place)
      never_considered_.push_back(candidates_[place].member);
    candidates_.resize(std::min(candidates_.size(), max_candidates));
    for (std::size_t place = 0; place < candidates_.size(); ++place) {
      place_of_member_[candidates_[place].member] = place;
      waiting_.insert(place);
    }
  }

  void take(std::size_t place, const Observation& observation) {
    waiting_.erase(place);
    running_.erase(place);
    observed_.insert(place);
    candidates_[place].reason.clear();
    note_value(place, observation);
    for (const auto& [excluded, reason] : failures_->observe(place, observation.status))
      if (waiting_.erase(excluded) > 0) candidates_[excluded].reason = reason;
    learn_memory(candidates_[place].member, observation);
  }

  /// Where nothing was planned, what was measured says what surely runs out of memory.
  void learn_memory(std::size_t index, const Observation& observation) {
    if (!space_.is_unplanned) return;
    memory_.observe(index, observation);
    std::erase_if(waiting_, [&](std::size_t place) {
      std::string& reason = candidates_[place].reason;
      reason = memory_.refusal(candidates_[place].member);
      return !reason.empty();
    });
  }

  /// Another size of its configuration says more of the memory.
  [[nodiscard]] bool is_beyond_middle(std::size_t place) const {
    return space_.is_unplanned && memory_.is_beyond_middle(candidates_[place].member);
  }

  void note_value(std::size_t place, const Observation& observation) {
    is_conditioned_ = false;
    if (!observation.value || !(observation.value->value > 0)) return;
    Candidate& candidate = candidates_[place];
    samples_.push_back(sample_of(place, *observation.value));
    candidate.score = samples_.back().value + candidate.prior;
    candidate.is_ok = observation.status == Status::ok;
    if (candidate.is_ok) note_if_best(place);
    note_error(samples_.back());
  }

  [[nodiscard]] bool are_beliefs_tested() const {
    const bool is_predicted = candidates_.front().prior != candidates_.back().prior;
    return samples_.size() >= (is_predicted ? min_believed : min_believed_unpredicted);
  }

  /// What is believed of a member that begins to run, before the record widens it.
  void note_belief(std::size_t place) {
    const Posterior posterior = surrogate_->at(place);
    believed_[place] = {posterior.mean, posterior.deviation / trusted_scale_};
  }
  /// How far off that was, now that it was measured.
  void note_error(const Sample& sample) {
    const auto believed = believed_.extract(sample.point);
    if (!believed) return;
    const auto [mean, deviation, has_heavy_tails] = believed.mapped();
    record_.note((sample.value - mean) /
                 std::hypot(deviation, surrogate_->noise_scale() * sample.noise));
  }

  void note_if_best(std::size_t place) {
    if (!best_ || candidates_[place].score > candidates_[*best_].score) best_ = place;
  }

  [[nodiscard]] Sample sample_of(std::size_t place, const MetricValue& value) const {
    const double sign = is_minimised(metric_) ? -1 : 1;
    double deviation = no_precision;
    if (value.ci_low > 0 && std::isfinite(value.ci_high) && value.ci_high > 0)
      deviation = std::log(value.ci_high / value.ci_low) / (2 * 1.96);
    deviation = std::min(deviation, no_precision);
    return {place, sign * std::log(value.value) - candidates_[place].prior,
            std::hypot(deviation, run_error_)};
  }

  /// Brings the posterior up to what is known. Those that run count as if they would end as
  /// expected.
  void condition() const {
    if (is_conditioned_ || samples_.empty()) return;
    // Learning takes cubic time: not after each of many.
    if (samples_.size() > num_trained_ + num_trained_ / 10) {
      surrogate_->learn(samples_);
      num_trained_ = samples_.size();
    }
    surrogate_->condition(samples_);
    std::vector<Sample> with_running = samples_;
    for (const std::size_t place : running_)
      with_running.push_back({place, surrogate_->at(place).mean, run_error_});
    if (with_running.size() > samples_.size()) surrogate_->condition(with_running);
    trusted_scale_ = record_.scale();
    surrogate_->trust(trusted_scale_, record_.has_heavy_tails());
    is_conditioned_ = true;
    is_chance_known_ = false;
  }

  /// How much better than the best one is.
  [[nodiscard]] Posterior advantage(std::size_t place) const {
    Posterior posterior = surrogate_->difference(place, *best_);
    posterior.mean += candidates_[place].prior - candidates_[*best_].prior;
    return posterior;
  }
  /// By how much more than what is worth finding.
  [[nodiscard]] Posterior relevant_advantage(std::size_t place) const {
    Posterior posterior = advantage(place);
    posterior.mean -= std::log1p(relevant_gain);
    return posterior;
  }

  /// Of those that wait the first one with the highest score.
  template <class Score>
  [[nodiscard]] std::size_t most_promising(const Score& score_of) const {
    std::size_t chosen = candidates_.size();
    double best_score = 0;
    const bool bisects =
        !std::ranges::all_of(waiting_, [&](std::size_t place) { return is_beyond_middle(place); });
    for (const std::size_t place : waiting_) {
      if (bisects && is_beyond_middle(place)) continue;
      const double score = score_of(place);
      if (chosen != candidates_.size() && score <= best_score) continue;
      chosen = place;
      best_score = score;
    }
    return chosen;
  }

  /// Nothing is known: what is predicted to be best, or drawn from the seed; rather what shares
  /// little with what runs or has failed.
  [[nodiscard]] std::size_t first_choice() const {
    return most_promising([&](std::size_t place) {
      double similarity = 0;
      for (const auto* const others : {&running_, &observed_})
        for (const std::size_t other : *others)
          similarity = std::max(similarity, features_.similarity(place, other));
      return candidates_[place].prior - similarity;
    });
  }

  /// Least like what was run before, so that beliefs are tested everywhere.
  [[nodiscard]] std::size_t most_different() const {
    condition();
    const auto score_of = [&](std::size_t place) {
      if (is_hopeless(place)) return candidates_[place].prior - candidates_.front().prior;
      double nearest = HUGE_VAL;
      for (const auto* const others : {&running_, &observed_})
        for (const std::size_t other : *others)
          nearest = std::min(nearest, neighbours_->difference(place, other));
      return nearest;
    };
    const std::size_t chosen = most_promising(score_of);
    if (!space_.is_unplanned || !(score_of(chosen) > 0)) return chosen;
    // Of those that teach as much the one whose steps take least.
    const double enough = as_different * score_of(chosen);
    return most_promising([&](std::size_t place) {
      return score_of(place) >= enough ? -expected_step(place) : -HUGE_VAL;
    });
  }

  /// How long a step is likely to take: a logarithm, up to a constant.
  [[nodiscard]] double expected_step(std::size_t place) const {
    const Experiment& experiment = space_.members[candidates_[place].member].planned.experiment;
    const double score =
        candidates_[place].prior + (samples_.empty() ? 0 : surrogate_->at(place).mean);
    if (metric_ == Metric::latency) return -score;
    const int size = metric_ == Metric::throughput ? experiment.shape.size() : 1;
    return std::log(static_cast<double>(global_batch(experiment.config, size))) - score;
  }

  /// What is likeliest to be better (Kushner 1964): that ends a search soonest. By how much it may
  /// be better does not count; what is uncertain is tried by most_different(). It does count where
  /// nothing was planned, since beliefs are wide, and where few trials are allowed, since nothing
  /// corrects a small step.
  [[nodiscard]] std::size_t best_choice() const {
    condition();
    return most_promising([&](std::size_t place) {
      // Without a best one all that was timed was raced out: what is known of the member decides.
      if (!best_) return candidates_[place].prior + surrogate_->at(place).mean;
      // Rises with the chance, and tells apart what is all but sure, or next to impossible.
      const Posterior advantage = relevant_advantage(place);
      if (space_.is_unplanned || is_short_) return expected_improvement(advantage);
      return advantage.mean / std::max(advantage.deviation, least_deviation);
    });
  }

  [[nodiscard]] bool is_enough() const {
    if (!best_) return false;
    if (observed_.size() + running_.size() >= cap_) return true;
    return are_beliefs_enough() && !untried_next_to_best();
  }

  [[nodiscard]] bool are_beliefs_enough() const {
    if (!best_ || !record_.holds()) return false;
    update_chance();
    return chance_ < small_chance;
  }

  [[nodiscard]] std::int64_t memory_bytes(std::size_t place) const {
    return space_.members[candidates_[place].member].planned.predicted.peak_memory_bytes;
  }

  /// It is predicted to be many times slower than the best.
  [[nodiscard]] bool is_hopeless(std::size_t place) const {
    const double factor = fitted_.empty() ? hopeless_factor : hopeless_size_factor;
    return candidates_[place].prior < candidates_.front().prior - std::log(factor);
  }

  /// It would be better than the best if the most favourable of all measured corrections held of
  /// it.
  [[nodiscard]] bool could_win(std::size_t place) const {
    return candidates_[place].prior + std::ranges::max(samples_, {}, &Sample::value).value >=
           candidates_[*best_].score + std::log1p(relevant_gain);
  }

  /// A member that waits and has a value of a knob, or values of two knobs that act together, that
  /// were not tried near the best one. A prediction alone does not exclude them.
  [[nodiscard]] std::optional<std::size_t> untried_next_to_best() const {
    for (std::size_t knob = 0; knob < neighbours_->num_knobs(); ++knob)
      for (const int value : neighbours_->values_next_to(*best_, knob))
        if (const auto place = untried_with({{knob, value}})) return place;
    if (const auto place = untried_below_limit()) return place;
    for (const auto& [one, other] : features_.points.pairs)
      for (const int of_one : neighbours_->values_next_to(*best_, one))
        for (const int of_other : neighbours_->values_next_to(*best_, other))
          if (const auto place = untried_with({{one, of_one}, {other, of_other}})) return place;
    return std::nullopt;
  }

  /// What needs more than some memory may be slower than predicted, whatever its knobs are. Where
  /// such a limit separates what was measured: the most promising one below it that, corrected as
  /// those below it were, would be better than the best.
  [[nodiscard]] std::optional<std::size_t> untried_below_limit() const {
    std::vector<std::pair<std::int64_t, double>> measured;
    for (const Sample& sample : samples_)
      measured.emplace_back(memory_bytes(sample.point), sample.value);
    std::ranges::sort(measured);
    for (std::size_t split = few_samples; split + few_samples <= measured.size(); ++split) {
      const auto limit = measured.begin() + static_cast<std::ptrdiff_t>(split);
      const std::int64_t too_many_bytes = limit->first;
      std::vector<double> below, above;
      for (auto each = measured.begin(); each != measured.end(); ++each)
        (each < limit ? below : above).push_back(each->second);
      if (std::prev(limit)->first == too_many_bytes ||
          std::ranges::min(below) - std::ranges::max(above) < cost_of_limit)
        continue;
      std::ranges::sort(below);
      const double needed =
          candidates_[*best_].score + std::log1p(relevant_gain) - below[below.size() / 2];
      for (const std::size_t place : waiting_)
        if (memory_bytes(place) < too_many_bytes && candidates_[place].prior >= needed)
          return place;
    }
    return std::nullopt;
  }

  /// Nothing where one was tried near the best one, or runs, or none is left, or where what was
  /// measured excludes them.
  [[nodiscard]] std::optional<std::size_t> untried_with(const KnobChoice& values) const {
    const auto is_near = [&](std::size_t place) {
      return neighbours_->has(place, values) && neighbours_->distance(place, *best_) <= near;
    };
    if (std::ranges::any_of(observed_, is_near) || std::ranges::any_of(running_, is_near))
      return std::nullopt;
    std::optional<std::size_t> nearest;
    int least = 0;
    // The first of equal ones promises most.
    for (const std::size_t place : waiting_) {
      if (!neighbours_->has(place, values) || is_hopeless(place) || is_beyond_middle(place))
        continue;
      if (!neighbours_->is_of_knob(values) && !could_win(place)) continue;
      if (const int far = neighbours_->distance(place, *best_); !nearest || far < least) {
        nearest = place;
        least = far;
      }
    }
    if (nearest && is_excluded(*nearest, values)) return std::nullopt;
    return nearest;
  }

  /// Each of the values was measured somewhere, and by what that says the member is not better.
  [[nodiscard]] bool is_excluded(std::size_t place, const KnobChoice& values) const {
    const bool all_measured = std::ranges::all_of(values, [&](const KnobPoint& each) {
      return std::ranges::any_of(
          samples_, [&](const Sample& one) { return neighbours_->has(one.point, {each}); });
    });
    if (!all_measured) return false;
    condition();
    return chance_above_zero(relevant_advantage(place)) <
           (neighbours_->is_of_knob(values) ? excluded_chance : excluded_chance_of_others);
  }

  /// The chance that any of those that wait is better by more than what is worth finding.
  void update_chance() const {
    condition();
    if (is_chance_known_) return;
    using Chance = std::pair<double, Surrogate::Challenger>;
    std::vector<Chance> challengers;
    for (const std::size_t place : waiting_) {
      const Posterior posterior = relevant_advantage(place);
      const double offset = candidates_[place].prior - candidates_[*best_].prior;
      challengers.push_back(
          {chance_above_zero(posterior), {place, offset - std::log1p(relevant_gain)}});
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
      return std::min(1.0,
                      surrogate_->chance_of_any(closest, *best_, seed_, draws) + sum_from(joint));
    };
    const double at_most = sum_from(0);
    if (at_most < small_chance) {
      chance_ = at_most;
    } else if (challengers.front().first < small_chance || samples_.size() <= few_samples) {
      chance_ = any_of(max_challengers, num_draws);
    } else {
      // Members are more alike in what is wrong about them than beliefs know. So the truth lies
      // between the likeliest one's chance and that of all, as if they hung together no more.
      chance_ = (challengers.front().first + any_of(few_challengers, few_draws)) / 2;
    }
    is_chance_known_ = true;
  }

  [[nodiscard]] std::string reason_of(std::size_t place) const {
    if (trials_left_ == 0) return "past the cap of trials";
    if (!best_) return "nothing to compare it with was measured";
    if (observed_.size() >= cap_ && !record_.holds())
      return fmt::format("past {} members, the cap where predictions do not hold", cap_);
    condition();
    Posterior posterior = advantage(place);
    const double percent = 100 * std::expm1(posterior.mean);
    posterior.mean -= std::log1p(relevant_gain);
    const double chance = 100 * chance_above_zero(posterior);
    return fmt::format(
        "expected {:.1f} % {} the best, with a chance {} % to be more than {:.0f} % better",
        std::abs(percent), percent < 0 ? "below" : "above",
        chance < 0.01 ? "below 0.01" : fmt::format("of {:.2g}", chance), 100 * relevant_gain);
  }

  const PlannedSpace& space_;
  Metric metric_;
  std::uint64_t seed_;
  std::size_t trials_left_ = SIZE_MAX;
  bool is_short_ = false;  ///< few trials are allowed
  std::vector<Candidate> candidates_;
  std::vector<std::size_t> never_considered_;
  std::unordered_map<std::size_t, std::size_t> place_of_member_;
  Features features_;
  std::optional<FailureRules> failures_;
  MeasuredMemory memory_;
  double run_error_;                                    ///< Begun's
  bool are_spread_;                                     ///< what ran before
  std::set<std::size_t> fitted_;                        ///< members
  std::size_t num_fitted_ = 0;                          ///< of these, that were observed
  std::set<std::size_t> waiting_, running_, observed_;  ///< places
  std::vector<Sample> samples_;
  std::optional<std::size_t> best_;
  std::optional<Neighbours> neighbours_;
  std::size_t cap_ = 0;
  TrackRecord record_;
  std::unordered_map<std::size_t, Posterior> believed_;  ///< of those that run, when they began
  // Beliefs, made where they are asked for.
  mutable double trusted_scale_ = 1;
  mutable std::optional<Surrogate> surrogate_;
  mutable std::size_t num_trained_ = 0;
  mutable bool is_conditioned_ = false;
  mutable bool is_chance_known_ = false;
  mutable double chance_ = 1;
};

}  // namespace

std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options,
                                       const Begun& begun) {
  return std::make_unique<RaceTuner>(space, options, begun);
}

}  // namespace dstune
