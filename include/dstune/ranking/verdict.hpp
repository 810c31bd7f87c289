#pragma once
/// Judges all runs together: first runs, repeats and slices of the members that may be the best. It
/// takes in the machine's drift and disturbances, and the predictions (docs/inside/measuring.md has
/// the model). Local.

#include <cstddef>
#include <optional>
#include <vector>

namespace dstune {

class Scoreboard;

/// How much is spent on a verdict.
enum class Care {
  quick,  ///< a millisecond: for a best-so-far answer
  full,   ///< some milliseconds: for what is decided
};

/// By how much the machine was slower for a while than where nothing loads it: a logarithm, with
/// its standard deviation.
struct Load {
  double expected = 0, deviation = 0;
};

/// A run that ended ok, as verdicts take it.
struct RunFacts {
  std::size_t run = 0;  ///< of its member: 0 is its first one, repeats follow
  double begin_s = 0, end_s = 0;
  double log_speed = 0;  ///< of its steps: a logarithm, larger is faster
  double error = 0;  ///< standard error that its own steps give it, with these degrees of freedom
  double degrees = 0;
  bool is_alone = false;
};

/// How far predictions were off, over all that was measured: logarithms, measured - predicted.
struct PredictionErrors {
  double center = 0;
  double deviation = 0;
  std::size_t count = 0;
};

/// All first runs, as verdicts take them. Runs once more change none of it.
struct FirstRuns {
  std::vector<std::size_t> best;  ///< the members whose first runs were the best, the best first
  PredictionErrors errors{};
};

/// The verdict on the best members. All functions name a member by its place among `members()`.
class Verdict {
 public:
  /// Compares the members with the best values and their runs, at most some dozens. The same runs
  /// in the same order give the same verdict, whatever was judged before.
  Verdict(const Scoreboard& scoreboard, Care care);
  Verdict(const Scoreboard& scoreboard, Care care, const FirstRuns& first_runs);

  /// The members that were compared, the largest chance of being the best first. Chances that are
  /// too small to be told apart follow in the order of speeds.
  [[nodiscard]] const std::vector<std::size_t>& members() const { return members_; }
  [[nodiscard]] std::optional<std::size_t> place_of(std::size_t member) const;

  /// The chance that it is the best of all that were measured.
  [[nodiscard]] double chance_best(std::size_t place) const { return judged_[place].chance; }
  /// The chance that the best one is better by no more than the gain that is relevant.
  [[nodiscard]] double chance_near_best(std::size_t place) const;
  /// The chance that it is better than the other one by more than this share.
  [[nodiscard]] double chance_above(std::size_t place, std::size_t other, double share = 0) const;
  /// The share by which it is better than the other one; with this probability it is no more.
  [[nodiscard]] double gain_at_most(std::size_t place, std::size_t other, double probability) const;

  /// Its speed here against that of its first run, and the ends of the 95 % interval: logarithms.
  struct Speed {
    double expected = 0, low = 0, high = 0;
  };
  [[nodiscard]] const Speed& speed(std::size_t place) const { return judged_[place].speed; }

  /// Facts on the runs: how far one is from its member's mean, how far the machine drifts (standard
  /// deviations of logarithms), and how many were disturbed.
  [[nodiscard]] double run_deviation() const { return run_deviation_; }
  [[nodiscard]] double drift_deviation() const { return drift_deviation_; }
  [[nodiscard]] double disturbed_runs() const { return disturbed_runs_; }
  [[nodiscard]] std::size_t num_runs() const { return num_runs_; }
  /// Those that a load slowed, as expected; and the largest load, 0.5: by a half.
  [[nodiscard]] double loaded_runs() const { return loaded_runs_; }
  [[nodiscard]] double largest_load() const { return largest_load_; }

 private:
  /// Scores are logarithms of what a member is ranked by, larger is better.
  struct Judged {
    double chance = 0;
    Speed speed{};
    double expected_score = 0;
    std::vector<double> scores{};  ///< of each draw
  };
  /// `expected`: the logarithm of its speed, as `draws`. The chance is left open.
  static Judged judge(const Scoreboard& scoreboard, std::size_t member, double expected,
                      std::vector<double> draws);

  double relevant_gain_;
  std::vector<std::size_t> members_;
  std::vector<Judged> judged_;       ///< by place
  std::vector<double> best_scores_;  ///< of each draw
  double run_deviation_ = 0, drift_deviation_ = 0, disturbed_runs_ = 0;
  double loaded_runs_ = 0, largest_load_ = 0;
  std::size_t num_runs_ = 0;
};

}  // namespace dstune
