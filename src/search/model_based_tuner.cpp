#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "boosted_trees.hpp"
#include "surrogate.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

// DeepSpeed's settings.
constexpr std::size_t num_initial = 2;
constexpr double exploration = 0.2;
constexpr int default_early_stopping = 5;
constexpr int default_num_trials = 50;

class ModelBasedTuner : public Tuner {
 public:
  ModelBasedTuner(const PlannedSpace& space, const TuningOptions& options)
      : is_minimised_(is_minimised(options.metric)),
        random_(static_cast<std::uint64_t>(options.seed)),
        trials_left_(options.num_trials.value_or(default_num_trials)),
        early_stopping_(options.metric, options.early_stopping.value_or(default_early_stopping)),
        place_of_member_(space.members.size(), nowhere) {
    std::vector<const Experiment*> experiments;
    for (std::size_t index = 0; index < space.members.size(); ++index) {
      const PlannedExperiment& planned = space.members[index].planned;
      if (planned.status != PlanStatus::planned) continue;
      place_of_member_[index] = members_.size();
      members_.push_back(index);
      experiments.push_back(&planned.experiment);
    }
    waiting_.resize(members_.size());
    for (std::size_t place = 0; place < waiting_.size(); ++place) waiting_[place] = place;
    points_ = features_of(experiments).points;
  }

  std::optional<std::size_t> next() override {
    if (is_over()) return std::nullopt;
    const bool explores = num_asked_ < num_initial || examples_.empty() || uniform() < exploration;
    const std::size_t place = explores ? waiting_[random_() % waiting_.size()] : most_promising();
    std::erase(waiting_, place);
    ++num_asked_;
    --trials_left_;
    return members_[place];
  }

  void observe(std::size_t index, const Observation& observation) override {
    const std::size_t place = place_of_member_.at(index);
    if (place == nowhere) return;
    std::erase(waiting_, place);
    const bool is_ok = observation.status == Status::ok && observation.value.has_value();
    early_stopping_.observe(is_ok ? std::optional(observation.value->value) : std::nullopt);
    // What failed is worse than anything; what was raced out is as good as it was when it was.
    const double value = observation.value ? observation.value->value : 0;
    const double score = value > 0 && is_minimised_ ? 1 / value : value;
    examples_.push_back({place, score});
    is_trained_ = false;
  }

  [[nodiscard]] bool is_done() const override { return is_over(); }
  /// The next choice is made when ranks are idle, with all that is known by then.
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    const std::string reason =
        early_stopping_.is_due()
            ? fmt::format("early stopping: {} experiments brought nothing better",
                          early_stopping_.num_since_best())
            : "past the cap of trials";
    std::vector<Skipped> all;
    for (const std::size_t place : waiting_) all.push_back({members_[place], reason});
    std::sort(all.begin(), all.end(),
              [](const Skipped& one, const Skipped& other) { return one.index < other.index; });
    return all;
  }

 private:
  static constexpr std::size_t nowhere = SIZE_MAX;

  [[nodiscard]] bool is_over() const {
    return waiting_.empty() || trials_left_ <= 0 || early_stopping_.is_due();
  }

  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  std::size_t most_promising() {
    if (!is_trained_) {
      model_.learn(examples_);
      is_trained_ = true;
    }
    std::size_t best = waiting_.front();
    double best_score = model_.score(best);
    for (const std::size_t place : waiting_) {
      const double score = model_.score(place);
      if (score < best_score) continue;  // of equal ones the last, as DeepSpeed's sorting has it
      best = place;
      best_score = score;
    }
    return best;
  }

  bool is_minimised_;
  std::mt19937_64 random_;
  int trials_left_;
  EarlyStopping early_stopping_;
  std::vector<std::size_t> place_of_member_;
  std::vector<std::size_t> members_;  ///< that are planned, of each place
  std::vector<std::size_t> waiting_;  ///< places, rising
  Points points_;
  BoostedTrees model_{points_};
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
