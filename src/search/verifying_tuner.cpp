// The search of the instrument that decides: a few members spread over the space first, then race.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "dstune/ranking/scoreboard.hpp"
#include "dstune/search/verifying.hpp"
#include "features.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// Members that together have what the space varies: each value of words and switches, the least
/// and the largest of amounts. The next one has most of what is not yet there; of equal ones that
/// of which most is believed. The baseline is there already.
std::vector<std::size_t> choose_anchors(const PlannedSpace& space, std::size_t max_anchors) {
  const std::vector<std::size_t> members = planned_members(space);
  std::vector<const Experiment*> experiments;
  for (const std::size_t member : members) experiments.push_back(&space.experiment(member));
  const std::vector<KnobValues> knobs = knob_values(features_of(experiments).points);
  std::set<std::pair<std::size_t, int>> seen;
  const auto count_new = [&](std::size_t place, bool takes) {
    std::size_t count = 0;
    for (std::size_t knob = 0; knob < knobs.size(); ++knob) {
      const int value = knobs[knob].value_of[place];
      const bool is_between = knobs[knob].is_ordered && value > 0 && value + 1 < knobs[knob].size();
      if (is_between || seen.contains({knob, value})) continue;
      ++count;
      if (takes) seen.insert({knob, value});
    }
    return count;
  };
  const auto believed = [&](std::size_t place) {
    return ranked_throughput(space.members[members[place]].planned.predicted).value_or(0);
  };
  std::vector<std::size_t> anchors;
  for (std::size_t place = 0; place < members.size(); ++place)
    if (members[place] == space.baseline) count_new(place, true);
  while (anchors.size() < max_anchors) {
    std::optional<std::size_t> next;
    std::size_t most = 0;
    for (std::size_t place = 0; place < members.size(); ++place) {
      const std::size_t count = count_new(place, false);
      if (count == 0 || count < most) continue;
      if (count > most || believed(place) > believed(*next)) next = place;
      most = count;
    }
    if (!next) break;
    count_new(*next, true);
    anchors.push_back(members[*next]);
  }
  return anchors;
}

/// Few members need few of them: there the engine soon runs a large share of all. Each stage is to
/// be seen.
std::size_t num_anchors(const PlannedSpace& space, const std::vector<std::size_t>& members,
                        const Policy::Verifying& policy) {
  std::set<int> stages;
  for (const std::size_t member : members)
    stages.insert(space.experiment(member).config.zero_stage);
  const auto share = static_cast<std::size_t>(
      std::ceil(policy.anchor_share * static_cast<double>(members.size())));
  return std::min(policy.max_anchors, std::max({policy.min_anchors, share, stages.size() - 1}));
}

/// How many members of a small space may run to the end; SIZE_MAX in others.
std::size_t most_to_end(std::size_t members, const Policy::Verifying& policy) {
  if (members >= policy.few_members) return SIZE_MAX;
  return std::max(policy.min_to_end,
                  static_cast<std::size_t>(policy.share_to_end * static_cast<double>(members)));
}

/// The policy of the race. In a small space as many errors as usual would be most of the runs.
Policy policy_of_race(std::size_t members, const Policy& policy) {
  Policy own = policy;
  if (members >= policy.verifying.few_members) return own;
  own.surrogate.enough_errors = policy.verifying.few_errors;
  own.surrogate.most_squares = policy.verifying.squares_of_few;
  return own;
}

class VerifyingTuner : public Tuner {
 public:
  VerifyingTuner(const PlannedSpace& space, const TuningOptions& options, BeliefsOf beliefs)
      : space_(space),
        options_(options),
        policy_(options.policy->verifying),
        beliefs_(std::move(beliefs)) {
    const std::vector<std::size_t> members = planned_members(space_);
    most_to_end_ = most_to_end(members.size(), policy_);
    policy_of_race_ = policy_of_race(members.size(), *options_.policy);
    take_beliefs();
    if (space_.baseline) waiting_.push_back(*space_.baseline);
    std::vector<std::size_t> anchors =
        choose_anchors(space_, num_anchors(space_, members, policy_));
    // The best goes first: the others are compared with it while they run.
    std::ranges::stable_sort(anchors, std::ranges::greater(), [&](std::size_t anchor) {
      return ranked_throughput(space_.members[anchor].planned.predicted).value_or(0);
    });
    waiting_.insert(waiting_.end(), anchors.begin(), anchors.end());
    if (options_.num_trials)
      waiting_.resize(std::min(waiting_.size(), static_cast<std::size_t>(*options_.num_trials)));
  }

  std::optional<std::size_t> next() override {
    if (race_) {
      if (is_limit_reached()) return std::nullopt;
      const auto member = race_->next();
      if (member) racing_.insert(*member);
      return member;
    }
    if (waiting_.empty()) return std::nullopt;
    const std::size_t member = waiting_.front();
    waiting_.erase(waiting_.begin());
    running_.insert(member);
    ++num_begun_;
    return member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    if (observation.status == Status::ok && !space_.run_before.contains(member))
      ended_.insert(member);
    if (race_) {
      racing_.erase(member);
      return race_->observe(member, observation);
    }
    if (std::erase(waiting_, member) + running_.erase(member) == 0) {
      // Known from the journal: race chose it, and hears of it when it begins.
      later_.emplace_back(member, observation);
      return;
    }
    note_error(member, observation);
    begun_.observed.emplace_back(member, observation);
    take_beliefs();
    if (have_first_ended()) begin_race();
  }

  void revise(std::size_t member, const Observation& observation) override {
    if (race_) race_->revise(member, observation);
  }

  [[nodiscard]] bool is_done() const override {
    if (!race_) return have_first_ended();
    return race_->is_done() || (racing_.empty() && is_limit_reached());
  }
  [[nodiscard]] std::size_t max_waiting() const override {
    return race_ ? race_->max_waiting() : 1;
  }
  [[nodiscard]] std::vector<Skipped> skipped() const override {
    if (!race_) return {};
    std::vector<Skipped> all = race_->skipped();
    if (!is_limit_reached() || race_->is_done()) return all;
    for (Skipped& each : all) {
      if (each.kind != PruneKind::not_chosen) continue;
      each.reason = fmt::format("past the limit of {} members that the engine runs to the end: {}",
                                most_to_end_, each.reason);
      each.kind = PruneKind::cap;
    }
    return all;
  }
  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return race_ ? race_->chance_of_better() : std::nullopt;
  }
  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    if (race_) return is_limit_reached() ? ExpectedRuns{} : race_->expected_left();
    const auto first = static_cast<double>(waiting_.size());
    const auto others = static_cast<double>(planned_members(space_).size()) - first -
                        static_cast<double>(begun_.observed.size() + running_.size());
    ExpectedRuns left = ExpectedRuns::exactly(first);
    left += usual_race.at_most(std::max(0.0, others));
    return options_.num_trials ? left.at_most(std::max(0, *options_.num_trials)) : left;
  }

 private:
  /// Those that run count as if they would end.
  [[nodiscard]] bool is_limit_reached() const {
    return ended_.size() + racing_.size() >= most_to_end_;
  }

  [[nodiscard]] bool have_first_ended() const { return waiting_.empty() && running_.empty(); }

  void begin_race() {
    if (options_.num_trials)
      options_.num_trials = std::max(0, *options_.num_trials - static_cast<int>(num_begun_));
    for (MemberBelief& belief : believed_) begun_.unknowns.push_back(std::move(belief.unknowns));
    begun_.are_spread = true;
    begun_.run_error = policy_.between_runs;
    options_.policy = &policy_of_race_;
    race_ = make_race_tuner(space_, options_, begun_);
    for (const auto& [member, observation] : later_) race_->observe(member, observation);
  }

  void take_beliefs() {
    std::vector<std::size_t> ran;
    for (const auto& [member, observation] : begun_.observed) ran.push_back(member);
    believed_ = beliefs_(ran);
    for (std::size_t member = 0; member < believed_.size(); ++member)
      space_.members[member].planned.predicted = believed_[member].prediction;
  }

  /// Before it is learnt from: how far what was believed is from what was measured.
  void note_error(std::size_t member, const Observation& observation) {
    const PlannedExperiment& planned = space_.members[member].planned;
    const auto believed = ranked_throughput(planned.predicted);
    if (!believed || !observation.value || !(observation.value->value > 0)) return;
    const auto measured = throughput_of(observation.value->value, planned.experiment);
    if (!measured) return;
    begun_.errors.push_back(std::log(*measured / *believed) /
                            std::hypot(believed_[member].deviation,
                                       options_.policy->calibrating.error_of_believed_time));
  }

  /// Samples/s, of a value of the metric; nothing where it does not tell.
  [[nodiscard]] std::optional<double> throughput_of(double value,
                                                    const Experiment& experiment) const {
    const int size = experiment.shape.size();
    switch (options_.metric) {
      case Metric::throughput:
        return value;
      case Metric::throughput_per_gpu:
        return value * size;
      case Metric::latency:
        return static_cast<double>(global_batch(experiment.config, size)) / (value * 1e-6);
      default:
        return std::nullopt;
    }
  }

  PlannedSpace space_;  ///< with what is believed as predictions
  TuningOptions options_;
  const Policy::Verifying& policy_;
  Policy policy_of_race_;
  BeliefsOf beliefs_;
  std::vector<std::size_t> waiting_;
  std::set<std::size_t> running_;
  std::vector<MemberBelief> believed_;
  Begun begun_;
  std::vector<std::pair<std::size_t, Observation>> later_;
  std::size_t num_begun_ = 0;
  std::size_t most_to_end_ = SIZE_MAX;
  std::set<std::size_t> ended_;   ///< that were not stopped, and have not failed
  std::set<std::size_t> racing_;  ///< those of the race that run
  std::unique_ptr<Tuner> race_;
};

}  // namespace

std::vector<MemberBelief> believed_in_engine(const std::vector<ForecastMember>& members,
                                             const std::vector<EngineRun>& runs,
                                             const std::optional<TargetConstants>& constants,
                                             const Policy& policy) {
  const auto point_of = [](const ForecastMember& member, double target_s) {
    return CalibrationPoint{*member.step_s, target_s, member.precision, member.overheads};
  };
  std::vector<CalibrationPoint> points, known;
  for (const auto& [member, step_s] : runs)
    if (members[member].step_s && step_s > 0) points.push_back(point_of(members[member], step_s));
  for (const ForecastMember& member : members)
    if (member.step_s) known.push_back(point_of(member, 0));
  std::vector<BelievedTime> times = believed_times(known, points, constants, policy.calibrating);
  std::vector<MemberBelief> beliefs;
  auto next = times.begin();
  for (const ForecastMember& member : members) {
    MemberBelief& belief = beliefs.emplace_back();
    belief.deviation = policy.verifying.unknown_error;
    if (!member.step_s) continue;
    belief.prediction.throughput = member.batch / next->target_s;
    belief.deviation = next->deviation;
    belief.unknowns = std::move(next->unknowns);
    ++next;
  }
  return beliefs;
}

std::unique_ptr<Tuner> make_verifying_tuner(const PlannedSpace& space, const TuningOptions& options,
                                            BeliefsOf beliefs) {
  return std::make_unique<VerifyingTuner>(space, options, std::move(beliefs));
}

}  // namespace dstune
