#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "surrogate.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

class ModelBasedTuner : public Tuner {
 public:
  ModelBasedTuner(const PlannedSpace& space, const TuningOptions& options)
      : policy_(options.policy->model_based),
        is_minimised_(is_minimised(options.metric)),
        random_(static_cast<std::uint64_t>(options.seed)),
        trials_left_(options.num_trials.value_or(policy_.num_trials)),
        early_stopping_(options.metric, options.early_stopping.value_or(policy_.early_stopping)),
        members_(planned_members(space)),
        place_of_member_(space.members.size(), nowhere) {
    std::vector<const Experiment*> experiments;
    for (std::size_t place = 0; place < members_.size(); ++place) {
      place_of_member_[members_[place]] = place;
      waiting_.push_back(place);
      experiments.push_back(&space.experiment(members_[place]));
    }
    points_ = features_of(experiments).points;
  }

  std::optional<std::size_t> next() override {
    if (is_done()) return std::nullopt;
    const bool explores =
        num_asked_ < policy_.num_initial || examples_.empty() || uniform() < policy_.exploration;
    const std::size_t place = explores ? waiting_[random_() % waiting_.size()] : most_promising();
    std::erase(waiting_, place);
    ++num_asked_;
    --trials_left_;
    return members_[place];
  }

  void observe(std::size_t member, const Observation& observation) override {
    const std::size_t place = place_of_member_.at(member);
    if (place == nowhere) return;
    std::erase(waiting_, place);
    early_stopping_.observe(member, observation.result());
    examples_.push_back({place, score_of(observation)});
    is_trained_ = false;
  }

  void withdraw(std::size_t /*member*/) override { ++trials_left_; }

  void revise(std::size_t member, const Observation& observation) override {
    const std::size_t place = place_of_member_.at(member);
    early_stopping_.revise(member, observation.result());
    for (BoostedTrees::Example& example : examples_)
      if (example.point == place) example.value = score_of(observation);
    is_trained_ = false;
  }

  [[nodiscard]] bool is_done() const override {
    return waiting_.empty() || trials_left_ <= 0 || early_stopping_.is_due();
  }
  /// The next choice is made when ranks are idle, with all that is known by then.
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    const SkipReason reason =
        early_stopping_.is_due() ? early_stopping_.reason() : past_num_trials();
    std::vector<Skipped> all;
    for (const std::size_t place : waiting_) all.push_back(skipped_for(members_[place], reason));
    return all;
  }

  [[nodiscard]] std::optional<ExpectedRuns> expected_left() const override {
    return early_stopping_.expected_left(
        std::min(waiting_.size(), static_cast<std::size_t>(std::max(0, trials_left_))));
  }

 private:
  static constexpr std::size_t nowhere = SIZE_MAX;

  /// Failed members are worse than anything. Raced out members keep the score that they had then.
  [[nodiscard]] double score_of(const Observation& observation) const {
    const double value = observation.value ? observation.value->value : 0;
    return value > 0 && is_minimised_ ? 1 / value : value;
  }

  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  std::size_t most_promising() {
    if (!is_trained_) {
      model_.learn(examples_);
      is_trained_ = true;
    }
    std::size_t best = waiting_.front();
    double best_score = -std::numeric_limits<double>::infinity();
    for (const std::size_t place : waiting_) {
      const double score = model_.score(place);
      if (score < best_score) continue;  // of equal ones the last, as DeepSpeed's sorting has it
      best = place;
      best_score = score;
    }
    return best;
  }

  const Policy::ModelBased& policy_;
  bool is_minimised_;
  std::mt19937_64 random_;
  int trials_left_;
  EarlyStopping early_stopping_;
  std::vector<std::size_t> members_;  ///< that are planned, of each place
  std::vector<std::size_t> place_of_member_;
  std::vector<std::size_t> waiting_;  ///< places, rising
  Points points_;
  BoostedTrees model_{points_, policy_};
  std::vector<BoostedTrees::Example> examples_;
  bool is_trained_ = false;
  std::size_t num_asked_ = 0;
};

}  // namespace

std::unique_ptr<Tuner> make_model_based_tuner(const PlannedSpace& space,
                                              const TuningOptions& options) {
  return std::make_unique<ModelBasedTuner>(space, options);
}

}  // namespace dstune
