#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "features.hpp"
#include "measured_memory.hpp"
#include "memory_room.hpp"
#include "neighbours.hpp"
#include "race_beliefs.hpp"
#include "size_search.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// Before so many are begun the chance of something better says nothing yet; after it a search
/// whose chance is 1 asks for so many more.
constexpr std::size_t few_begun = 3;
constexpr double runs_a_chance = 20;

/// The deviation of what is known exactly.
constexpr double least_deviation = 1e-9;

class RaceTuner : public Tuner {
 public:
  RaceTuner(const PlannedSpace& space, const TuningOptions& options, const Begun& begun)
      : space_(space),
        metric_(options.metric),
        policy_(options.policy->race),
        relevant_gain_(options.policy->answering.relevant_gain),
        enough_errors_(options.policy->surrogate.enough_errors),
        largest_step_up_(options.policy->sizes.largest_step_up),
        seed_(static_cast<std::uint64_t>(options.seed)),
        memory_(space, options.policy->memory),
        are_spread_(begun.are_spread),
        fitted_(begun.fitted) {
    if (options.num_trials) trials_left_ = static_cast<std::size_t>(*options.num_trials);
    is_short_ = trials_left_ <= policy_.num_explored;
    choose_entrants();
    if (space_.baseline) tried_size_ = space_.micro_batch(*space_.baseline);
    std::vector<const PlannedExperiment*> members;
    std::vector<const Experiment*> experiments;
    std::vector<double> predicted;
    std::vector<std::int64_t> bytes;
    std::vector<std::vector<double>> unknowns;
    for (const Entrant& entrant : entrants_) {
      members.push_back(&space_.members[entrant.member].planned);
      experiments.push_back(&members.back()->experiment);
      predicted.push_back(entrant.prior);
      bytes.push_back(members.back()->predicted.peak_memory_bytes);
      if (!begun.unknowns.empty()) unknowns.push_back(begun.unknowns[entrant.member]);
    }
    const bool is_memory_planned =
        std::ranges::all_of(bytes, [](std::int64_t each) { return each > 0; });
    if (!space_.is_unplanned && is_memory_planned) room_.emplace(space, options.policy->memory);
    features_ = features_of(experiments);
    neighbours_.emplace(features_.points, bytes, policy_.num_memory_classes);
    beliefs_.emplace(neighbours_->points(), std::move(predicted), unknowns,
                     begun.run_error.value_or(policy_.run_error), seed_, *options.policy);
    cap_ = std::max(policy_.min_cap,
                    static_cast<std::size_t>(
                        std::ceil(policy_.cap_share * static_cast<double>(entrants_.size()))));
    failures_.emplace(std::move(members), features_, policy_.enough_failures);
    for (const auto& [member, observation] : begun.observed)
      if (const auto place = place_of_member_.find(member); place != place_of_member_.end())
        take(place->second, observation);
    for (const double error : begun.errors) beliefs_->note_error(error);
  }

  std::optional<std::size_t> next() override {
    if (trials_left_ == 0 || waiting_.empty() || is_enough()) {
      left_ = ExpectedRuns{};
      return std::nullopt;
    }
    const ExpectedRuns left = expected_now();
    const auto untried = are_beliefs_enough() ? untried_next_to_best() : std::nullopt;
    const std::size_t begun = observed_.size() - num_fitted_ + running().size();
    const bool explores = !are_spread_ && begun < policy_.num_explored && begun % 2 == 1;
    const std::size_t chosen = untried             ? *untried
                               : explores          ? most_different()
                               : samples().empty() ? first_choice()
                                                   : best_choice();
    waiting_.erase(chosen);
    beliefs_->begin(chosen);
    if (room_) room_->begin(entrants_[chosen].member);
    --trials_left_;
    left_ = left;
    *left_ += ExpectedRuns::exactly(-1);
    return entrants_[chosen].member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    const auto found = place_of_member_.find(member);
    if (found == place_of_member_.end()) return;  // known, but none of those that are told apart
    const std::size_t place = found->second;
    // Known from the journal: what would have been believed.
    if (fitted_.contains(member)) {
      ++num_fitted_;
    } else if (observation.value && !running().contains(place)) {
      beliefs_->begin_known(place);
    }
    take(place, observation);
  }

  void revise(std::size_t member, const Observation& observation) override {
    const auto found = place_of_member_.find(member);
    if (found == place_of_member_.end() || !observed_.contains(found->second)) return;
    const std::size_t place = found->second;
    beliefs_->forget(place);
    note_value(place, observation);
    beliefs_->learn_anew();
  }

  [[nodiscard]] bool is_done() const override {
    return running().empty() && (trials_left_ == 0 || waiting_.empty() || is_enough());
  }

  /// The next choice is made when ranks are idle, with all that is known by then.
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    for (std::size_t place = 0; place < entrants_.size(); ++place) {
      const Entrant& entrant = entrants_[place];
      if (!entrant.reason.empty())
        all.push_back({entrant.member, entrant.reason, PruneKind::excluded});
      if (waiting_.contains(place)) all.push_back(skipped_for(entrant.member, reason_of(place)));
    }
    for (const std::size_t member : never_considered_)
      all.push_back(
          {member, fmt::format("not among the {} members that promise most", entrants_.size())});
    return all;
  }

  [[nodiscard]] std::optional<double> chance_of_better() const override {
    if (!best()) return std::nullopt;
    const double chance = beliefs_->chance_of_better(waiting_);
    if (waiting_.empty()) return chance;
    // Members that beliefs know nothing of may be among those that wait, too; and so in each way
    // in which nobody has tried to leave the best.
    const auto ways = static_cast<double>(1 + num_untried_next_to_best());
    return 1 - (1 - chance) * std::pow(1 - beliefs_->chance_unforeseen(), ways);
  }

  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    return left_.value_or(within_limits(usual_race));
  }

 private:
  /// By the cap, the trials that are allowed, and the members that wait.
  [[nodiscard]] ExpectedRuns within_limits(const ExpectedRuns& runs) const {
    const std::size_t begun = observed_.size() + running().size();
    const std::size_t most =
        std::min({cap_ - std::min(cap_, begun), trials_left_, waiting_.size()});
    return runs.at_most(static_cast<double>(most));
  }

  /// Members that are asked for from now on, where it is not enough yet. As long as beliefs are not
  /// tested they are not enough. Then the chance that something is better tells: it falls as
  /// members are run, the slower the more members share it. The figures are those of 150 simulated
  /// searches. Beliefs are brought up to date here only where the choice would do it, too.
  [[nodiscard]] ExpectedRuns expected_now() const {
    const std::size_t begun = observed_.size() + running().size();
    const double untested = static_cast<double>(enough_errors_) + 1 -
                            (static_cast<double>(begun) - static_cast<double>(num_fitted_));
    ExpectedRuns runs = usual_race;
    if (begun < few_begun || !best() || !beliefs_->are_tested()) {
      runs += ExpectedRuns::exactly(-static_cast<double>(begun));
    } else {
      const double likely = 1 + runs_a_chance * beliefs_->chance_of_better(waiting_);
      runs = {likely, 0.45 * likely, 2.2 * likely};
    }
    return within_limits(runs.at_least(std::max(1.0, untested)));
  }

  struct Entrant {
    std::size_t member = 0;
    double prior = 0;      ///< logarithm of the metric as predicted, larger is better
    std::string reason{};  ///< why a failure excludes it; empty: none does
  };

  /// Larger is better; up to a constant, which all members share. Nothing where there is no
  /// prediction.
  [[nodiscard]] std::optional<double> predicted_score(std::size_t member) const {
    const double throughput = space_.predicted_throughput(member).value_or(0);
    if (throughput <= 0) return std::nullopt;
    if (metric_ == Metric::throughput) return std::log(throughput);
    const auto divisor =
        metric_ == Metric::latency
            ? static_cast<double>(batch_of(space_.members.copy_of(member).planned.experiment))
            : space_.shape(member).size();
    return std::log(throughput / divisor);
  }

  void choose_entrants() {
    double sum = 0;
    std::vector<std::size_t> unpredicted;
    for (const std::size_t member : planned_members(space_)) {
      const auto predicted = predicted_score(member);
      sum += predicted.value_or(0);
      if (!predicted) unpredicted.push_back(entrants_.size());
      entrants_.push_back({member, predicted.value_or(0)});
    }
    const std::size_t num_predicted = entrants_.size() - unpredicted.size();
    // Nothing is known of them: as good as the others are on average.
    for (const std::size_t place : unpredicted)
      entrants_[place].prior = num_predicted > 0 ? sum / static_cast<double>(num_predicted) : 0;
    // The order breaks ties, so it must not be the document's.
    std::mt19937_64 random(seed_);
    for (std::size_t left = entrants_.size(); left > 1; --left)
      std::swap(entrants_[left - 1], entrants_[random() % left]);
    std::ranges::stable_sort(entrants_, std::ranges::greater(), &Entrant::prior);
    for (std::size_t place = policy_.max_candidates; place < entrants_.size(); ++place)
      never_considered_.push_back(entrants_[place].member);
    entrants_.resize(std::min(entrants_.size(), policy_.max_candidates));
    entrants_.shrink_to_fit();
    is_informed_ = !entrants_.empty() && entrants_.front().prior > entrants_.back().prior;
    for (std::size_t place = 0; place < entrants_.size(); ++place) {
      place_of_member_[entrants_[place].member] = place;
      waiting_.insert(place);
    }
  }

  void take(std::size_t place, const Observation& observation) {
    waiting_.erase(place);
    beliefs_->end(place);
    observed_.insert(place);
    refused_.erase(place);
    if (observation.status != Status::out_of_memory)
      tried_size_ = std::max(tried_size_, micro_batch(place));
    entrants_[place].reason.clear();
    note_value(place, observation);
    for (const auto& [excluded, reason] : failures_->observe(place, observation.status))
      if (waiting_.erase(excluded) > 0) entrants_[excluded].reason = reason;
    learn_memory(entrants_[place].member, observation);
  }

  /// Measurements and the plan say what surely runs out of memory.
  void learn_memory(std::size_t member, const Observation& observation) {
    if (room_)
      room_->observe(member, observation);
    else
      memory_.observe(member, observation);
    if (room_ && !room_->knows()) return;
    for (std::size_t place = 0; place < entrants_.size(); ++place) {
      const bool was_refused = refused_.contains(place);
      if (!was_refused && !waiting_.contains(place)) continue;
      Entrant& entrant = entrants_[place];
      entrant.reason = room_ ? room_->refusal(entrant.member) : memory_.refusal(entrant.member);
      if (entrant.reason.empty()) {
        refused_.erase(place);
        waiting_.insert(place);
      } else {
        waiting_.erase(place);
        refused_.insert(place);
      }
    }
  }

  [[nodiscard]] std::int64_t micro_batch(std::size_t place) const {
    return space_.micro_batch(entrants_[place].member);
  }

  /// A smaller size of its configuration is to be tried first, or says more of the memory.
  [[nodiscard]] bool is_for_later(std::size_t place) const {
    const std::size_t member = entrants_[place].member;
    const bool is_searched = space_.micro_batch_chain(member) && !space_.is_unplanned;
    if (is_searched && tried_size_ > 0 && micro_batch(place) > largest_step_up_ * tried_size_)
      return true;
    return room_ ? room_->is_beyond_middle(member)
                 : space_.is_unplanned && memory_.is_beyond_middle(member);
  }

  /// The largest size of its configuration that is tried before it; nothing where none is left.
  [[nodiscard]] std::optional<std::size_t> before(std::size_t place) const {
    std::optional<std::size_t> largest;
    if (!room_) return largest;
    for (const std::size_t member : room_->sizes_above(entrants_[place].member)) {
      const auto found = place_of_member_.find(member);
      if (found != place_of_member_.end() && waiting_.contains(found->second) &&
          !is_for_later(found->second))
        largest = found->second;
    }
    return largest;
  }

  [[nodiscard]] const std::set<std::size_t>& running() const { return beliefs_->running(); }
  [[nodiscard]] const std::vector<Sample>& samples() const { return beliefs_->samples(); }
  [[nodiscard]] const std::optional<std::size_t>& best() const { return beliefs_->best(); }

  void note_value(std::size_t place, const Observation& observation) {
    if (!observation.value || !(observation.value->value > 0)) return;
    const MetricValue& value = *observation.value;
    const double sign = is_minimised(metric_) ? -1 : 1;
    double deviation = policy_.no_precision;
    if (value.ci_low > 0 && std::isfinite(value.ci_high) && value.ci_high > 0)
      deviation = std::min(deviation, std::log(value.ci_high / value.ci_low) / (2 * 1.96));
    beliefs_->note(place, sign * std::log(value.value), deviation,
                   observation.status == Status::ok);
  }

  /// The first one with the highest score of those that wait; where the limit of memory is looked
  /// for, what leads there, or else another one.
  template <class Score>
  [[nodiscard]] std::size_t most_promising(const Score& score_of) const {
    const auto first_of = [&](const auto& is_taken) {
      std::size_t chosen = entrants_.size();
      double best_score = 0;
      for (const std::size_t place : waiting_) {
        if (!is_taken(place)) continue;
        const double score = score_of(place);
        if (chosen != entrants_.size() && score <= best_score) continue;
        chosen = place;
        best_score = score;
      }
      return chosen;
    };
    const std::size_t chosen = first_of([](std::size_t) { return true; });
    if (chosen == entrants_.size() || !is_for_later(chosen)) return chosen;
    if (const auto place = before(chosen)) return *place;
    const std::size_t other = first_of([&](std::size_t place) { return !is_for_later(place); });
    return other == entrants_.size() ? chosen : other;
  }

  /// Nothing is known: what is predicted to be best, or drawn from the seed; rather what shares
  /// little with what runs or has failed.
  [[nodiscard]] std::size_t first_choice() const {
    return most_promising([&](std::size_t place) {
      double similarity = 0;
      for (const auto* const others : {&running(), &observed_})
        for (const std::size_t other : *others)
          similarity = std::max(similarity, features_.similarity(place, other));
      return entrants_[place].prior - similarity;
    });
  }

  /// Least like what was run before, so that beliefs are tested everywhere.
  [[nodiscard]] std::size_t most_different() const {
    const auto score_of = [&](std::size_t place) {
      if (is_hopeless(place)) return entrants_[place].prior - entrants_.front().prior;
      double nearest = HUGE_VAL;
      for (const auto* const others : {&running(), &observed_})
        for (const std::size_t other : *others)
          nearest = std::min(nearest, neighbours_->difference(place, other));
      return nearest;
    };
    const std::size_t chosen = most_promising(score_of);
    if (!space_.is_unplanned || !(score_of(chosen) > 0)) return chosen;
    // The shortest step is chosen from those that teach as much.
    const double enough = policy_.as_different * score_of(chosen);
    return most_promising([&](std::size_t place) {
      return score_of(place) >= enough ? -expected_step(place) : -HUGE_VAL;
    });
  }

  /// How long a step is likely to take: a logarithm, up to a constant.
  [[nodiscard]] double expected_step(std::size_t place) const {
    const Experiment& experiment = space_.experiment(entrants_[place].member);
    const double score =
        samples().empty() ? entrants_[place].prior : beliefs_->expected_score(place);
    if (metric_ == Metric::latency) return -score;
    const int size = metric_ == Metric::throughput ? experiment.shape.size() : 1;
    return std::log(static_cast<double>(global_batch(experiment.config, size))) - score;
  }

  /// The member that is likeliest to be better (Kushner 1964): that ends a search soonest. The size
  /// of the gain does not count; most_different() tries uncertain members. It does count if nothing
  /// was planned, since beliefs are wide. It also counts if few trials are allowed, since nothing
  /// corrects a small step.
  [[nodiscard]] std::size_t best_choice() const {
    return most_promising([&](std::size_t place) {
      // Without a best one all that was timed was raced out: what is known of the member decides.
      if (!best()) return beliefs_->expected_score(place);
      // Rises with the chance, and tells apart what is all but sure, or next to impossible.
      const Posterior advantage = beliefs_->relevant_advantage(place);
      if (space_.is_unplanned || is_short_) return expected_improvement(advantage);
      return advantage.mean / std::max(advantage.deviation, least_deviation);
    });
  }

  [[nodiscard]] bool is_enough() const {
    if (!best()) return false;
    if (observed_.size() + running().size() >= cap_) return true;
    return are_beliefs_enough() && !untried_next_to_best();
  }

  [[nodiscard]] bool are_beliefs_enough() const {
    return best() && beliefs_->hold() &&
           beliefs_->chance_of_better(waiting_) < policy_.small_chance;
  }

  [[nodiscard]] std::int64_t memory_bytes(std::size_t place) const {
    return space_.members[entrants_[place].member].planned.predicted.peak_memory_bytes;
  }

  /// It is predicted to be many times slower than the best.
  [[nodiscard]] bool is_hopeless(std::size_t place) const {
    const double factor = fitted_.empty() ? policy_.hopeless_factor : policy_.hopeless_size_factor;
    return entrants_[place].prior < entrants_.front().prior - std::log(factor);
  }

  /// It would be better than the best if the most favourable of all measured corrections held of
  /// it.
  [[nodiscard]] bool could_win(std::size_t place) const {
    return entrants_[place].prior + std::ranges::max(samples(), {}, &Sample::value).value >=
           beliefs_->best_score() + std::log1p(relevant_gain_);
  }

  /// A member that waits and has a value of a knob, or values of two knobs that act together, that
  /// were not tried near the best one. A prediction alone does not exclude them.
  [[nodiscard]] std::optional<std::size_t> untried_next_to_best() const {
    for (const KnobChoice& values : knob_values_next_to_best())
      if (const auto place = untried_with(values)) return place;
    if (const auto place = untried_below_limit()) return place;
    for (const KnobChoice& values : pairs_next_to_best())
      if (const auto place = untried_with(values)) return place;
    return std::nullopt;
  }

  /// How many values and pairs are left for that.
  [[nodiscard]] std::size_t num_untried_next_to_best() const {
    const auto is_untried = [&](const KnobChoice& values) {
      return untried_with(values).has_value();
    };
    return static_cast<std::size_t>(std::ranges::count_if(knob_values_next_to_best(), is_untried) +
                                    std::ranges::count_if(pairs_next_to_best(), is_untried)) +
           (untried_below_limit() ? 1 : 0);
  }

  [[nodiscard]] std::vector<KnobChoice> knob_values_next_to_best() const {
    std::vector<KnobChoice> all;
    for (std::size_t knob = 0; knob < neighbours_->num_knobs(); ++knob)
      for (const int value : neighbours_->values_next_to(*best(), knob))
        all.push_back({{knob, value}});
    return all;
  }

  [[nodiscard]] std::vector<KnobChoice> pairs_next_to_best() const {
    std::vector<KnobChoice> all;
    for (const auto& [one, other] : features_.points.pairs)
      for (const int of_one : neighbours_->values_next_to(*best(), one))
        for (const int of_other : neighbours_->values_next_to(*best(), other))
          all.push_back({{one, of_one}, {other, of_other}});
    return all;
  }

  /// Members that need more than some memory may be slower than predicted, whatever their knobs
  /// are. Such a limit may separate the measured members. Then this returns the most promising one
  /// below it that would be better than the best, corrected as those below the limit were.
  [[nodiscard]] std::optional<std::size_t> untried_below_limit() const {
    std::vector<std::pair<std::int64_t, double>> measured;
    for (const Sample& sample : samples())
      measured.emplace_back(memory_bytes(sample.point), sample.value);
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
          beliefs_->best_score() + std::log1p(relevant_gain_) - below[below.size() / 2];
      for (const std::size_t place : waiting_)
        if (memory_bytes(place) < too_many_bytes && entrants_[place].prior >= needed &&
            !is_for_later(place))
          return place;
    }
    return std::nullopt;
  }

  /// Nothing where one was tried near the best one, or runs, or none is left, or where what was
  /// measured excludes them.
  [[nodiscard]] std::optional<std::size_t> untried_with(const KnobChoice& values) const {
    const auto can_be_tried = [&](std::size_t place) {
      return neighbours_->has(place, values) && !is_hopeless(place) && !is_for_later(place) &&
             (neighbours_->is_of_knob(values) || is_unpredicted_pair(values) || could_win(place));
    };
    // At another group size, or stage, only where the best one's leaves nothing to be tried.
    const bool is_local = std::ranges::any_of(waiting_, [&](std::size_t place) {
      return is_together(place, *best(), values) && can_be_tried(place);
    });
    const auto is_where_best_is = [&](std::size_t place) {
      return !is_local || is_together(place, *best(), values);
    };
    const auto is_near = [&](std::size_t place) {
      return neighbours_->has(place, values) &&
             neighbours_->distance(place, *best()) <= policy_.near && is_where_best_is(place);
    };
    if (std::ranges::any_of(observed_, is_near) || std::ranges::any_of(running(), is_near))
      return std::nullopt;
    std::optional<std::size_t> nearest;
    int least = 0;
    // The first of equal ones promises most.
    for (const std::size_t place : waiting_) {
      if (!is_where_best_is(place) || !can_be_tried(place)) continue;
      if (const int far = neighbours_->distance(place, *best()); !nearest || far < least) {
        nearest = place;
        least = far;
      }
    }
    if (nearest && is_excluded(*nearest, values)) return std::nullopt;
    return nearest;
  }

  /// Knobs act together with the size of the group, and, as long as no prediction says how, with
  /// the stage. A measurement says of a value only where these are the same. Memory is the same
  /// everywhere.
  [[nodiscard]] bool is_together(std::size_t one, std::size_t other,
                                 const KnobChoice& values) const {
    return neighbours_->is_of_memory(values) ||
           neighbours_->are_together(one, other, values, !is_informed_);
  }

  /// Without predictions there are no corrections, by the most favourable of which a pair could
  /// win.
  [[nodiscard]] bool is_unpredicted_pair(const KnobChoice& values) const {
    return !is_informed_ && values.size() > 1;
  }

  /// Each of the values was measured on groups of that size, and by what that says the member is
  /// not better.
  [[nodiscard]] bool is_excluded(std::size_t place, const KnobChoice& values) const {
    const bool all_measured = std::ranges::all_of(values, [&](const KnobPoint& each) {
      return std::ranges::any_of(samples(), [&](const Sample& one) {
        return neighbours_->has(one.point, {each}) && is_together(one.point, place, values);
      });
    });
    if (!all_measured) return false;
    // Nobody knows how a value does on groups on which it has not run.
    if (is_unpredicted_pair(values) && neighbours_->is_of_shape(values.front()) &&
        std::ranges::none_of(
            samples(), [&](const Sample& one) { return neighbours_->has(one.point, values); }))
      return false;
    return chance_above_zero(beliefs_->relevant_advantage(place)) <
           (neighbours_->is_of_knob(values) ? policy_.excluded_chance
                                            : policy_.excluded_chance_of_others);
  }

  [[nodiscard]] SkipReason reason_of(std::size_t place) const {
    if (trials_left_ == 0) return past_num_trials();
    if (!best()) return {"nothing to compare it with was measured"};
    if (observed_.size() >= cap_ && !beliefs_->hold())
      return {fmt::format("past the limit of {} experiments when predictions are unreliable", cap_),
              PruneKind::cap};
    const double percent = 100 * std::expm1(beliefs_->advantage(place).mean);
    const double chance = 100 * chance_above_zero(beliefs_->relevant_advantage(place));
    return {fmt::format(
        "expected {:.1f} % {} the best, with a chance {} {:.2g} % to be more than {:.0f} % better",
        std::abs(percent), percent < 0 ? "below" : "above", chance < 0.01 ? "below" : "of",
        std::max(chance, 0.01), 100 * relevant_gain_)};
  }

  const PlannedSpace& space_;
  Metric metric_;
  const Policy::Race& policy_;
  double relevant_gain_;
  std::size_t enough_errors_;
  std::int64_t largest_step_up_;
  std::uint64_t seed_;
  std::size_t trials_left_ = SIZE_MAX;
  bool is_short_ = false;        ///< few trials are allowed
  bool is_informed_ = false;     ///< predictions tell members apart
  std::int64_t tried_size_ = 0;  ///< the largest micro-batch that was, or is the baseline's
  std::vector<Entrant> entrants_;
  std::vector<std::size_t> never_considered_;
  std::unordered_map<std::size_t, std::size_t> place_of_member_;
  Features features_;
  std::optional<FailureRules> failures_;
  MeasuredMemory memory_;                     ///< where nothing is planned …
  std::optional<MemoryRoom> room_;            ///< … and where it is
  std::set<std::size_t> refused_{};           ///< places, by either
  bool are_spread_;                           ///< what ran before
  std::set<std::size_t> fitted_;              ///< members
  std::size_t num_fitted_ = 0;                ///< of these, that were observed
  std::set<std::size_t> waiting_, observed_;  ///< places
  std::optional<Neighbours> neighbours_;
  std::optional<RaceBeliefs> beliefs_;
  std::optional<ExpectedRuns> left_;  ///< when something was asked for last
  std::size_t cap_ = 0;
};

}  // namespace

std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options,
                                       const Begun& begun) {
  return std::make_unique<RaceTuner>(space, options, begun);
}

}  // namespace dstune
