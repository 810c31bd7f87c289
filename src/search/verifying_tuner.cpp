// The search of the instrument that decides: a few members spread over the space first, then race.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

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

class VerifyingTuner : public Tuner {
 public:
  VerifyingTuner(const PlannedSpace& space, const TuningOptions& options, BeliefsOf beliefs)
      : space_(space),
        options_(options),
        policy_(options.policy->verifying),
        beliefs_(std::move(beliefs)) {
    take_beliefs();
    if (space_.baseline) waiting_.push_back(*space_.baseline);
    for (const std::size_t anchor : choose_anchors(space_, policy_.max_anchors))
      waiting_.push_back(anchor);
    if (options_.num_trials)
      waiting_.resize(std::min(waiting_.size(), static_cast<std::size_t>(*options_.num_trials)));
  }

  std::optional<std::size_t> next() override {
    if (race_) return race_->next();
    if (waiting_.empty()) return std::nullopt;
    const std::size_t member = waiting_.front();
    waiting_.erase(waiting_.begin());
    running_.insert(member);
    ++num_begun_;
    return member;
  }

  void observe(std::size_t member, const Observation& observation) override {
    if (race_) return race_->observe(member, observation);
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
    return race_ ? race_->is_done() : have_first_ended();
  }
  [[nodiscard]] std::size_t max_waiting() const override {
    return race_ ? race_->max_waiting() : 1;
  }
  [[nodiscard]] std::vector<Skipped> skipped() const override {
    return race_ ? race_->skipped() : std::vector<Skipped>{};
  }
  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return race_ ? race_->chance_of_better() : std::nullopt;
  }
  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    if (race_) return race_->expected_left();
    const auto first = static_cast<double>(waiting_.size());
    const auto others = static_cast<double>(planned_members(space_).size()) - first -
                        static_cast<double>(begun_.observed.size() + running_.size());
    ExpectedRuns left = ExpectedRuns::exactly(first);
    left += usual_race.at_most(std::max(0.0, others));
    return options_.num_trials ? left.at_most(std::max(0, *options_.num_trials)) : left;
  }

 private:
  [[nodiscard]] bool have_first_ended() const { return waiting_.empty() && running_.empty(); }

  void begin_race() {
    if (options_.num_trials)
      options_.num_trials = std::max(0, *options_.num_trials - static_cast<int>(num_begun_));
    for (MemberBelief& belief : believed_) begun_.unknowns.push_back(std::move(belief.unknowns));
    begun_.are_spread = true;
    begun_.run_error = policy_.between_runs;
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
  BeliefsOf beliefs_;
  std::vector<std::size_t> waiting_;
  std::set<std::size_t> running_;
  std::vector<MemberBelief> believed_;
  Begun begun_;
  std::vector<std::pair<std::size_t, Observation>> later_;
  std::size_t num_begun_ = 0;
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
