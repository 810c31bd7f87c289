#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "features.hpp"
#include "neighbours.hpp"
#include "race_beliefs.hpp"
#include "race_choice.hpp"
#include "race_entrants.hpp"
#include "race_memory.hpp"
#include "tuners.hpp"
#include "untried_values.hpp"

namespace dstune {

namespace {

Features features_of_entrants(const RaceEntrants& entrants) {
  std::vector<const Experiment*> experiments;
  for (std::size_t place = 0; place < entrants.size(); ++place)
    experiments.push_back(&entrants.planned(place).experiment);
  return features_of(experiments);
}

Neighbours neighbours_of(const RaceEntrants& entrants, const Points& points,
                         const Policy::Race& policy) {
  std::vector<std::int64_t> bytes;
  for (std::size_t place = 0; place < entrants.size(); ++place)
    bytes.push_back(entrants.memory_bytes(place));
  return Neighbours(points, bytes, policy.num_memory_classes);
}

/// A row for each entrant; none where nothing is unknown.
std::vector<std::vector<double>> unknowns_of(const RaceEntrants& entrants, const Begun& begun) {
  std::vector<std::vector<double>> unknowns;
  if (begun.unknowns.empty()) return unknowns;
  for (std::size_t place = 0; place < entrants.size(); ++place)
    unknowns.push_back(begun.unknowns[entrants[place].member]);
  return unknowns;
}

FailureRules rules_for(const RaceEntrants& entrants, const Features& features,
                       int enough_failures) {
  std::vector<const PlannedExperiment*> members;
  for (std::size_t place = 0; place < entrants.size(); ++place)
    members.push_back(&entrants.planned(place));
  return {std::move(members), features, enough_failures};
}

/// How a race goes on, and when it is enough.
class RaceTuner : public Tuner {
 public:
  RaceTuner(const PlannedSpace& space, const TuningOptions& options, const Begun& begun)
      : metric_(options.metric),
        policy_(options.policy->race),
        relevant_gain_(options.policy->answering.relevant_gain),
        enough_errors_(options.policy->surrogate.enough_errors),
        trials_left_(options.num_trials ? static_cast<std::size_t>(*options.num_trials) : SIZE_MAX),
        are_spread_(begun.are_spread),
        fitted_(begun.fitted),
        entrants_(space, options,
                  begun.fitted.empty() ? policy_.hopeless_factor : policy_.hopeless_size_factor),
        memory_(space, entrants_, *options.policy),
        features_(features_of_entrants(entrants_)),
        failures_(rules_for(entrants_, features_, policy_.enough_failures)),
        neighbours_(neighbours_of(entrants_, features_.points, policy_)),
        beliefs_(neighbours_.points(), entrants_.priors(), unknowns_of(entrants_, begun),
                 begun.run_error.value_or(policy_.run_error),
                 static_cast<std::uint64_t>(options.seed), *options.policy),
        untried_(entrants_, neighbours_, features_.points.pairs, beliefs_, memory_,
                 *options.policy),
        choice_(space, options, trials_left_ <= policy_.num_explored, entrants_, features_,
                neighbours_, beliefs_, memory_),
        cap_(std::max(policy_.min_cap,
                      static_cast<std::size_t>(
                          std::ceil(policy_.cap_share * static_cast<double>(entrants_.size()))))),
        run_before_(space.run_before) {
    for (const auto& [member, observation] : begun.observed)
      if (const auto place = entrants_.place_of(member)) take(*place, observation);
    for (const double error : begun.errors) beliefs_.note_error(error);
  }

  std::optional<std::size_t> next() override {
    if (trials_left_ == 0 || waiting().empty() || is_enough()) {
      left_ = ExpectedRuns{};
      return std::nullopt;
    }
    const ExpectedRuns left = expected_now();
    const auto untried = are_beliefs_enough() ? untried_.next() : std::nullopt;
    const std::size_t begun = num_begun() - num_fitted_;
    const bool explores = !are_spread_ && begun < policy_.num_explored && begun % 2 == 1;
    const std::size_t chosen = untried                      ? *untried
                               : explores                   ? choice_.most_different()
                               : beliefs_.samples().empty() ? choice_.first()
                                                            : choice_.likeliest();
    entrants_.begin(chosen);
    beliefs_.begin(chosen);
    memory_.begin(chosen);
    --trials_left_;
    left_ = left;
    *left_ += ExpectedRuns::exactly(-1);
    return entrants_[chosen].member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    const auto place = entrants_.place_of(member);
    if (!place) return;  // known, but none of those that are told apart
    // Known from the journal: what would have been believed.
    if (fitted_.contains(member)) {
      ++num_fitted_;
    } else if (observation.value && !running().contains(*place)) {
      beliefs_.begin_known(*place);
    }
    take(*place, observation);
  }

  void revise(std::size_t member, const Observation& observation) override {
    const auto place = entrants_.place_of(member);
    if (!place || !entrants_.ended().contains(*place)) return;
    beliefs_.forget(*place);
    note_value(*place, observation);
    beliefs_.learn_anew();
  }

  [[nodiscard]] bool is_done() const override {
    return running().empty() && (trials_left_ == 0 || waiting().empty() || is_enough());
  }

  /// The next choice is made when ranks are idle, with all that is known by then.
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    const bool is_by_cap = is_cap_reached() && !are_beliefs_at_an_end();
    for (std::size_t place = 0; place < entrants_.size(); ++place) {
      const Entrant& entrant = entrants_[place];
      if (!entrant.reason.empty())
        all.push_back({entrant.member, entrant.reason, PruneKind::excluded});
      if (waiting().contains(place))
        all.push_back(skipped_for(entrant.member, reason_of(place, is_by_cap)));
    }
    for (const std::size_t member : entrants_.never_considered())
      all.push_back(
          {member, fmt::format("not among the {} members that promise most", entrants_.size())});
    return all;
  }

  [[nodiscard]] std::optional<double> chance_of_better() const override {
    if (!best()) return std::nullopt;
    const double chance = beliefs_.chance_of_better(waiting());
    if (waiting().empty()) return chance;
    // Members that beliefs know nothing of may be among those that wait, too; and so in each way
    // in which nobody has tried to leave the best.
    const auto ways = static_cast<double>(1 + untried_.count());
    return 1 - (1 - chance) * std::pow(1 - beliefs_.chance_unforeseen(), ways);
  }

  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    return left_.value_or(within_limits(usual_race));
  }

 private:
  /// By the cap, the trials that are allowed, and the members that wait.
  [[nodiscard]] ExpectedRuns within_limits(const ExpectedRuns& runs) const {
    const std::size_t most =
        std::min({cap_ - std::min(cap_, num_capped()), trials_left_, waiting().size()});
    return runs.at_most(static_cast<double>(most));
  }

  /// Members that are asked for from now on, where it is not enough yet. As long as beliefs are not
  /// tested they are not enough. Then the chance that something is better tells: it falls as
  /// members are run, the slower the more members share it. Beliefs are brought up to date here
  /// only where the choice would do it, too.
  [[nodiscard]] ExpectedRuns expected_now() const {
    const auto begun = static_cast<double>(num_begun());
    const double untested =
        static_cast<double>(enough_errors_) + 1 - (begun - static_cast<double>(num_fitted_));
    ExpectedRuns runs = usual_race;
    if (num_begun() < policy_.few_begun || !best() || !beliefs_.are_tested()) {
      runs += ExpectedRuns::exactly(-begun);
    } else {
      const double likely = 1 + policy_.runs_a_chance * beliefs_.chance_of_better(waiting());
      runs = {likely, policy_.fewest_runs * likely, policy_.most_runs * likely};
    }
    return within_limits(runs.at_least(std::max(1.0, untested)));
  }

  [[nodiscard]] const std::set<std::size_t>& waiting() const { return entrants_.waiting(); }
  [[nodiscard]] const std::set<std::size_t>& running() const { return beliefs_.running(); }
  [[nodiscard]] const std::optional<std::size_t>& best() const { return beliefs_.best(); }
  [[nodiscard]] std::size_t num_begun() const {
    return entrants_.ended().size() + running().size();
  }

  void take(std::size_t place, const Observation& observation) {
    if (!entrants_.ended().contains(place) && run_before_.contains(entrants_[place].member))
      ++num_before_;
    entrants_.end(place);
    beliefs_.end(place);
    note_value(place, observation);
    for (const auto& [excluded, reason] : failures_.observe(place, observation.status))
      if (waiting().contains(excluded)) entrants_.exclude(excluded, reason);
    memory_.observe(place, observation);
  }

  void note_value(std::size_t place, const Observation& observation) {
    if (!observation.value || !(observation.value->value > 0)) return;
    const MetricValue& value = *observation.value;
    double deviation = policy_.no_precision;
    if (value.ci_low > 0 && std::isfinite(value.ci_high) && value.ci_high > 0)
      deviation = std::min(deviation, std::log(value.ci_high / value.ci_low) / (2 * 1.96));
    beliefs_.note(place, score_of_value(place, value.value), deviation,
                  observation.status == Status::ok);
  }

  /// In the unit of what is predicted: beliefs take for an error what is between the two, and the
  /// less of it for one of groups that have not run the larger it is.
  [[nodiscard]] double score_of_value(std::size_t place, double value) {
    if (metric_ == Metric::latency) return -std::log(1e-6 * value);
    // Nobody predicts the operations of a sample. They are about those of the first one measured.
    if (metric_ == Metric::flops) {
      if (!flops_offset_) flops_offset_ = std::log(value) - entrants_[place].prior;
      return std::log(value) - *flops_offset_;
    }
    return std::log(value);
  }

  [[nodiscard]] bool is_enough() const {
    if (!best()) return false;
    return is_cap_reached() || are_beliefs_at_an_end();
  }

  /// The runs that the cap counts.
  [[nodiscard]] std::size_t num_capped() const { return num_begun() - num_before_; }
  [[nodiscard]] bool is_cap_reached() const { return num_capped() >= cap_; }
  /// Tells whether the search ends whatever the cap is.
  [[nodiscard]] bool are_beliefs_at_an_end() const {
    return are_beliefs_enough() && !untried_.next();
  }

  [[nodiscard]] bool are_beliefs_enough() const {
    return best() && beliefs_.hold() && beliefs_.chance_of_better(waiting()) < policy_.small_chance;
  }

  /// `is_by_cap`: the cap has ended the search, and beliefs have not.
  [[nodiscard]] SkipReason reason_of(std::size_t place, bool is_by_cap) const {
    if (trials_left_ == 0) return past_num_trials();
    if (!best()) return {"nothing to compare it with was measured"};
    SkipReason reason = belief_of(place);
    if (!is_by_cap) return reason;
    return {
        fmt::format("past the limit of {} experiments ({:.0f} % of the members, {} at least): {}",
                    cap_, 100 * policy_.cap_share, policy_.min_cap, reason.text),
        PruneKind::cap};
  }

  [[nodiscard]] SkipReason belief_of(std::size_t place) const {
    const double percent = 100 * std::expm1(beliefs_.advantage(place).mean);
    const double chance = 100 * chance_above_zero(beliefs_.relevant_advantage(place));
    return {fmt::format(
        "expected {:.1f} % {} the best, with a chance {} {:.2g} % to be more than {:.0f} % better",
        std::abs(percent), percent < 0 ? "below" : "above", chance < 0.01 ? "below" : "of",
        std::max(chance, 0.01), 100 * relevant_gain_)};
  }

  Metric metric_;
  const Policy::Race& policy_;
  double relevant_gain_;
  std::size_t enough_errors_;
  std::size_t trials_left_;
  bool are_spread_;               ///< what ran before
  std::set<std::size_t> fitted_;  ///< members
  RaceEntrants entrants_;
  RaceMemory memory_;
  Features features_;
  FailureRules failures_;
  Neighbours neighbours_;
  RaceBeliefs beliefs_;
  UntriedValues untried_;
  RaceChoice choice_;
  std::size_t cap_;
  const std::set<std::size_t>& run_before_;  ///< members that another search ran
  std::optional<double> flops_offset_{};     ///< a logarithm
  std::size_t num_before_ = 0;               ///< ended ones that the cap does not count
  std::size_t num_fitted_ = 0;               ///< of those, that were observed
  std::optional<ExpectedRuns> left_{};       ///< when something was asked for last
};

}  // namespace

std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options,
                                       const Begun& begun) {
  return std::make_unique<RaceTuner>(space, options, begun);
}

}  // namespace dstune
