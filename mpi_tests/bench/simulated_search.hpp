#pragma once
/// A search without training, in simulated time: a tuner asks and is told as in a job, and the
/// finalists are measured again by a job's rules, as long as those want. Local.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dstune/core/job.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune::bench {

/// Changes the process's policy as "GROUP.NAME=FACTOR" says, before anything has read it. Throws
/// std::runtime_error where there is no such number.
void change_policy_by(const std::string& text);

/// A load that comes and goes: what is computed meanwhile takes `factor` times as long. How long it
/// stays, and how long it stays away, is drawn anew each time, any order of magnitude as often as
/// another.
class ComingLoad {
 public:
  struct Options {
    double factor = 1.5;
    double shortest_s = 2, longest_s = 120;
    std::uint64_t seed = 0;
  };
  explicit ComingLoad(const Options& options);

  /// The logarithm of the factor where it is there at this moment, or 0.
  [[nodiscard]] double at(double now_s);

 private:
  Options options_;
  std::mt19937_64 random_;
  bool is_there_at_first_ = false;
  std::vector<double> changes_s_;  ///< when it comes or goes, as far as anybody has asked
};

/// What is searched. The metric is throughput.
struct SimulatedSpace {
  PlannedSpace space;
  TuningOptions tuning;
  /// Of each member, without noise; 0: it does not run.
  std::vector<double> truth;
  /// By how much the machine is slower than usual at a moment: a logarithm. Empty: it never is.
  std::function<double(double now_s, std::mt19937_64& random)> disturbance{};
  /// By how much each step is longer that begins at a moment: a logarithm. Empty: none is.
  std::function<double(double now_s)> load{};
  /// One run of a member while the machine is slower by so much.
  std::function<Measurement(std::size_t member, double slower_by, std::mt19937_64& random)> run{};

  /// One run of each member takes so long, what is built aside; 0: it is not known.
  double grid_s = 0;

  [[nodiscard]] double best_truth() const;
};

struct SimulationOptions {
  std::string tuner = "race";
  std::size_t num_slots = 1;
  /// Trials are stopped where they have lost to the best so far, by a job's rule.
  bool races = false;
  /// Likewise after the few steps that DeepSpeed's engine is looked at after.
  bool races_early = false;
  /// Short runs of one member show between the others whether the machine is as fast as before.
  bool has_controls = false;
  /// The finalists are measured again and the answer is chosen as a job does.
  bool has_finals = true;
  /// Finalists stay built and take turns step by step; else each is built and warmed for each run.
  bool keeps_finalists = false;
  double build_s = 0;          ///< an experiment takes so long beside its steps
  bool has_means = false;      ///< the mean of its steps stands for a run, whatever interrupts them
  FinalRounds final_rounds{};  ///< that are run in any case
  /// A tuner of one's own instead; it may look at the scoreboard.
  std::function<std::unique_ptr<Tuner>(const TuningOptions& tuning, const Scoreboard& scoreboard)>
      make_tuner{};
};

/// What was believed at some moment, and what was true.
struct Belief {
  double chance = 0;
  bool came_true = false;
};

struct SimulatedSearch {
  std::size_t answer = 0;  ///< member
  std::size_t experiments = 0;
  std::size_t stopped = 0;     ///< of these, while they ran
  std::size_t runs_again = 0;  ///< of finalists
  std::size_t steps = 0;       ///< of these, too
  double seconds = 0;          ///< simulated
  double finals_s = 0;         ///< of these
  double undisturbed_s = 0;    ///< what the same runs would have taken without a load
  double controls_s = 0;       ///< of these, controls
  double tuner_s = 0;          ///< the tuner's own time, real
  double regret = 0;           ///< how far the answer's truth is below the best one's, relative
  /// After every experiment: that something that was not run is more than 1 % better than the best.
  std::vector<Belief> better_elsewhere{};
  /// At the end: that the answer is the best of what was measured.
  std::optional<Belief> is_best{};
  /// At the end, of members that are judged, the answer aside: that the interval of their ratio to
  /// the answer, as stated, holds the true one; and how many there are.
  std::size_t ratios_held = 0, ratios_stated = 0;
};

/// Deterministic for the same seed, tuner_s aside.
SimulatedSearch simulate(const SimulatedSpace& simulated, const SimulationOptions& options,
                         std::int64_t seed);

/// What any search has to be better than: runs so many members once, as they are predicted, and the
/// best three once more. The median of the steps stands for a run. Where nothing is predicted the
/// order is drawn from the seed.
SimulatedSearch in_predicted_order(const SimulatedSpace& simulated, std::size_t experiments,
                                   double build_s, std::int64_t seed);

}  // namespace dstune::bench
