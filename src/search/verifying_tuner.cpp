// The search of the instrument that decides: a few members spread over the space first, then race.
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "dstune/ranking/scoreboard.hpp"
#include "dstune/search/verifying.hpp"
#include "features.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// Beside the baseline.
constexpr std::size_t max_anchors = 4;

/// Members that together have what the space varies: each value of words and switches, the least
/// and the largest of amounts. The next one has most of what is not yet there; of equal ones that
/// of which most is believed. The baseline is there already.
std::vector<std::size_t> choose_anchors(const PlannedSpace& space) {
  const std::vector<std::size_t> members = planned_members(space);
  std::vector<const Experiment*> experiments;
  for (const std::size_t member : members)
    experiments.push_back(&space.members[member].planned.experiment);
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
  VerifyingTuner(const PlannedSpace& space, const TuningOptions& options, Beliefs beliefs)
      : space_(space), options_(options), beliefs_(std::move(beliefs)) {
    take_beliefs();
    if (space_.baseline) waiting_.push_back(*space_.baseline);
    for (const std::size_t anchor : choose_anchors(space_)) waiting_.push_back(anchor);
    if (options_.num_trials)
      waiting_.resize(std::min(waiting_.size(), static_cast<std::size_t>(*options_.num_trials)));
  }

  std::optional<std::size_t> next() override {
    if (!waiting_.empty()) {
      const std::size_t index = waiting_.front();
      waiting_.erase(waiting_.begin());
      running_.insert(index);
      ++num_begun_;
      return index;
    }
    if (!race_) return std::nullopt;
    return race_->next();
  }

  void observe(std::size_t index, const Observation& observation) override {
    if (race_) return race_->observe(index, observation);
    std::erase(waiting_, index);
    running_.erase(index);
    observed_.emplace_back(index, observation);
    if (waiting_.empty() && running_.empty()) begin_race();
  }

  void revise(std::size_t index, const Observation& observation) override {
    if (race_) race_->revise(index, observation);
  }

  [[nodiscard]] bool is_done() const override { return race_ && race_->is_done(); }
  [[nodiscard]] std::size_t max_waiting() const override {
    return race_ ? race_->max_waiting() : 1;
  }
  [[nodiscard]] std::vector<Skipped> skipped() const override {
    return race_ ? race_->skipped() : std::vector<Skipped>{};
  }
  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return race_ ? race_->chance_of_better() : std::nullopt;
  }

 private:
  void take_beliefs() {
    const std::vector<Prediction> beliefs = beliefs_();
    for (std::size_t index = 0; index < beliefs.size(); ++index)
      space_.members[index].planned.predicted = beliefs[index];
  }

  void begin_race() {
    take_beliefs();
    if (options_.num_trials)
      options_.num_trials = std::max(0, *options_.num_trials - static_cast<int>(num_begun_));
    race_ = make_race_tuner(space_, options_);
    for (const auto& [index, observation] : observed_) race_->observe(index, observation);
  }

  PlannedSpace space_;  ///< with what is believed as predictions
  TuningOptions options_;
  Beliefs beliefs_;
  std::vector<std::size_t> waiting_;
  std::set<std::size_t> running_;
  std::vector<std::pair<std::size_t, Observation>> observed_;
  std::size_t num_begun_ = 0;
  std::unique_ptr<Tuner> race_;  ///< once the anchors have ended
};

}  // namespace

std::vector<std::optional<double>> believed_throughputs(
    const std::vector<ScreenedMember>& members, const std::vector<EngineRun>& runs,
    const std::optional<TargetConstants>& constants) {
  std::vector<CalibrationPoint> points;
  for (const auto& [place, step_s] : runs) {
    const ScreenedMember& member = members[place];
    if (member.step_s && step_s > 0)
      points.push_back({*member.step_s, step_s, member.precision, member.overheads});
  }
  std::optional<TimeCalibration> calibration;
  if (!points.empty())
    calibration = fit_time(points, constants ? prior_of(*constants) : unknown_target());
  else if (constants)
    calibration = constants->time;
  std::vector<std::optional<double>> believed;
  for (const ScreenedMember& member : members) {
    std::optional<double>& one = believed.emplace_back();
    if (!member.step_s) continue;
    one = member.batch /
          (calibration ? calibration->target_s(*member.step_s, member.precision, member.overheads)
                       : *member.step_s);
  }
  return believed;
}

std::unique_ptr<Tuner> make_verifying_tuner(const PlannedSpace& space, const TuningOptions& options,
                                            Beliefs beliefs) {
  return std::make_unique<VerifyingTuner>(space, options, std::move(beliefs));
}

}  // namespace dstune
