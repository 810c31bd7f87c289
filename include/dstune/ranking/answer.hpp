#pragma once
/// The answer of a search: one value that every report renders, be it text, JSON or a page. It also
/// has what is strange about its measurements (docs/inside/measuring.md has the rules). Local.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/packed_list.hpp"
#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

/// A member of the space. It points into the scoreboard.
struct Standing {
  const Row* row = nullptr;
  std::optional<MetricValue> ranked{};    ///< what it is ranked by
  std::optional<MetricValue> reported{};  ///< the same with the interval for people
  std::optional<MetricValue> verified{};  ///< what DeepSpeed itself made of it
  /// The value of the built-in step, if it is ranked by the target's time, or the engine decides
  /// beside it.
  std::optional<MetricValue> measured{};
  std::optional<TargetTime> target{};         ///< likewise
  std::optional<double> joules_per_sample{};  ///< mean over all its runs whose energy is known
  std::shared_ptr<const Row> made{};          ///< the row of one that was never run
};

/// Returns the outcome of a member: its record's status, `infeasible`, `pruned`, or `not_run`.
[[nodiscard]] std::string status_text(const Row& row);
/// Returns the reason why it has no result; empty if it has one or nobody said.
[[nodiscard]] const std::string& reason_text(const Row& row);
[[nodiscard]] Standing standing_of(const Scoreboard& scoreboard, std::size_t member);

/// The effect of the calibration, and how far each of its runs is from it.
struct CalibrationSummary {
  struct Run {
    std::string name;
    std::string path;
    double step_s = 0;      ///< an optimizer step in the user's training
    double measured_s = 0;  ///< here
    double fitted_s = 0;    ///< what the calibration makes of that
  };
  TimeCalibration fit;
  std::int64_t memory_offset_bytes = 0;
  std::vector<Run> runs{};
};

/// A configuration that the verification jobs run.
struct ToVerify {
  const Experiment* experiment = nullptr;
  int place = 0;             ///< among what was measured, from 1; 0: none of the best
  bool is_baseline = false;  ///< the user's own configuration
};

/// A member that may be as good as the recommended one.
struct Undecided {
  std::size_t member = 0;
  std::string name;
  double at_most = 0;  ///< the share by which it may be better: more with a chance of 2.5 %
};

/// The configuration that the user came with, and what the recommended one gains over it.
struct BaselineStanding {
  std::size_t member = 0;
  std::string name;
  std::optional<MetricValue> value{};  ///< nothing where it gave no result
  /// The gain in throughput, 0.1: by a tenth; nothing if one of the two has none.
  std::optional<double> gain{};
  /// The 95 % interval of the gain, of what was measured of both; nothing where one has no
  /// interval.
  std::optional<double> gain_low{}, gain_high{};
};

/// Another global batch than today's: another training, for which another learning rate may be
/// better.
struct BatchChange {
  std::int64_t today = 0;   ///< samples of an optimizer step
  std::int64_t answer = 0;  ///< likewise
};

/// The cost of the tuning, in all jobs that led to it, and when it is earned back.
struct TuningCost {
  double gpu_hours = 0;  ///< of all ranks
  int earlier_jobs = 0;  ///< beside this one
  double elapsed_s = 0;
  /// Optimizer steps with the answer until they have saved the time of the tuning against as many
  /// samples with the baseline; nothing where there is no gain.
  std::optional<double> earned_back_steps{};
};

/// The order of what was measured may be another one in the user's training, for the errors of the
/// constants alone.
struct OrderDoubt {
  double chance = 0;      ///< that another member that was measured is more than 1 % better
  std::string likeliest;  ///< the name of one; empty: none is
  double chance_of_it = 0;
};

/// The recommended configuration.
struct Recommendation {
  Metric metric = Metric::throughput;
  std::size_t member = 0;
  Standing standing{};
  bool is_by_engine = false;  ///< DeepSpeed's engine measured it
  std::string label;  ///< how far it can be trusted: "verified", "engine", "calibrated" or "proxy"
  double probability_best = 0;
  std::optional<double> chance_of_better{};  ///< as Scoreboard::conclude()'s
  /// The best that was measured here, where DeepSpeed itself ran both and this one faster.
  std::optional<Standing> ahead_here{};
  /// The likeliest to be the best, where this one is as good and takes less memory.
  std::optional<std::string> as_good_with_more_memory{};
  int final_rounds = 0;  ///< runs after the search that its value is made of, beside its first
  std::vector<Undecided> undecided{};  ///< the likeliest first
  /// The time that it would take to tell the first of them apart to within 1 %; nothing if it is
  /// settled.
  std::optional<double> more_time_s{};
  std::optional<BaselineStanding> baseline{};
  std::optional<BatchChange> batch_change{};  ///< nothing where the global batch stays
  TuningCost cost{};
  std::optional<CalibrationSummary> calibration{};  ///< by the user's own runs
  /// The constants of the target's time; nothing if members are ranked by their own.
  std::optional<TargetConstants> constants{};
  /// Nothing where members are ranked by their own times or by the user's own runs.
  std::optional<OrderDoubt> order_doubt{};
  std::vector<ToVerify> to_verify{};
  std::optional<ModelProfile> model_profile{};  ///< nothing where the model is not known
};

/// The best of those that were dispatched, by ZeRO stage or (`global`, last) of all.
struct TuningSpace {
  std::string name;
  std::size_t num_experiments = 0;
  std::size_t first = 0;              ///< member
  std::optional<std::size_t> best{};  ///< member; nothing where none gave a result
};

/// A member's value and its costs.
struct Offer {
  std::size_t member = 0;
  double value = 0;  ///< of the metric
  int num_gpus = 0;
  /// The memory of the fullest rank: DeepSpeed's engine used it if it ran, else the target needs
  /// it.
  std::int64_t memory_bytes = 0;
  /// No other beats it. One that beats it has no worse a value, no more GPUs and no more memory. It
  /// is better in one of the three, or equal and earlier.
  bool is_on_front = false;
  std::optional<double> throughput_per_gpu{};  ///< of those on the front
};

/// The outcome of a finalist.
struct Finalist {
  std::size_t member = 0;
  std::optional<MetricValue> first_run{};
  std::optional<double> probability_best{};  ///< nothing where it has no value
};

/// How many members have which status.
struct StatusCount {
  std::string status;
  std::size_t count = 0;
};

/// The reason with every number replaced: members that fail for the same cause with other figures
/// belong together.
[[nodiscard]] std::string without_numbers(const std::string& reason);

/// Members of one status that have no result for the same reason, figures in it aside.
struct ReasonGroup {
  std::string status;
  std::string first_reason;
  std::size_t count = 0;
  std::vector<std::string> first_names{};  ///< at most three
};

/// Predicted beside measured throughput, samples/s.
struct PredictedSpeed {
  const Record* record = nullptr;
  double measured = 0;
  double error = 0;              ///< predicted over measured, less 1
  double mean_error_so_far = 0;  ///< of the errors' absolute values, up to this one
};
/// Predicted over measured throughput, less 1; nothing where the one or the other is missing.
[[nodiscard]] std::optional<double> prediction_error(const Record& record);

/// Before the reason why times say nothing of a training with a GPU for each rank.
inline constexpr const char* not_comparable_words = "not comparable with a training on such GPUs";

/// Returns what is strange about one run and its timed steps; empty if nothing is.
[[nodiscard]] std::vector<std::string> flags_of(const Measurement& measurement,
                                                const Policy& policy = default_policy());

enum class FlagKind { unsteady, throttled, not_comparable, fallback };
/// How many experiments have a flag of a kind; the first of them.
struct FlagCount {
  FlagKind kind = FlagKind::unsteady;
  std::size_t count = 0;
  std::string first_name{};
  std::string first_flag{};
};
/// In the order of the kinds, those that at least one experiment has.
[[nodiscard]] std::vector<FlagCount> count_flags(const PackedList<Row>& rows,
                                                 const Policy& policy = default_policy());

/// A host on which the forward takes longer than on the others of its groups, in all of them.
struct SlowHost {
  std::string host;
  int groups = 0;        ///< that it was compared in
  double slower_by = 0;  ///< median over them, 0.1: by a tenth
};
/// Only groups on several hosts tell; below stage 3, where nobody waits for others in forward.
[[nodiscard]] std::vector<SlowHost> slow_hosts(
    const PackedList<Row>& rows, const Policy::Flags& policy = default_policy().flags);

/// Keys of zero_optimization by which a configuration's losses differ from those without: ZeRO++'s
/// quantisation. None as a rule; docs/inside/reference-step.md, 6.3 and 7, has how much.
[[nodiscard]] std::vector<std::string> changed_numerics(const Experiment& experiment);

/// How steady the machine was, by all runs that were compared; standard deviations of logarithms.
struct MachineConduct {
  std::size_t num_runs = 0;
  double run_deviation = 0;    ///< of a run from its configuration's mean
  double drift_deviation = 0;  ///< of what runs near in time share
  double disturbed_runs = 0;   ///< expected number
  double loaded_runs = 0;      ///< … that a load slowed which came and went; their speeds are
                               ///< without it
  double largest_load = 0;     ///< by which a step then took longer: 0.5, by a half
  /// Something interrupts steps in most runs, so that values are of undisturbed ones.
  bool are_steps_interrupted = false;
  std::optional<HostLoad> load{};  ///< nothing where nobody counts it
};

struct Answer {
  Metric metric = Metric::throughput;
  std::string source{};                         ///< of what was measured here, as ScoreboardSetup's
  std::optional<ModelProfile> model_profile{};  ///< likewise
  std::string model_name{};                     ///< likewise
  std::vector<std::string> searched{};          ///< likewise
  PackedList<Standing> standings{};             ///< of all members, in the order of the space
  std::optional<Recommendation> recommendation{};  ///< nothing where nothing gave a result
  std::optional<std::size_t> best{};               ///< the member, of what was measured here
  bool finals_are_done = false;
  std::string no_finals_reason;
  std::vector<Finalist> finalists{};  ///< best first by their first runs
  Spread spread_of_finals{};
  Spread spread_in_search{};
  std::optional<MachineConduct> machine{};  ///< nothing where nothing was judged
  std::vector<TuningSpace> spaces{};        ///< in the order of their first experiment
  std::vector<Offer> offers{};              ///< by rising number of GPUs, then the best first
  std::vector<StatusCount> counts{};        ///< all statuses, in the order of the reports
  PruneCounts pruned{};                     ///< of `counts` those that are pruned
  std::vector<ReasonGroup> reasons{};       ///< in the order of the statuses
  std::vector<SlowHost> slow_hosts{};
  std::vector<FlagCount> flags{};
  std::vector<PredictedSpeed> predictions{};  ///< in the order in which they ended
  std::optional<double> rank_correlation{};   ///< Spearman's, of predicted and measured
  double elapsed_s = 0;
};

/// The scoreboard outlives what is made of it, and does not change meanwhile.
[[nodiscard]] Answer answer_of(const Scoreboard& scoreboard);
/// Its main part alone, which costs less; nothing where nothing gave a result.
[[nodiscard]] std::optional<Recommendation> recommendation_of(const Scoreboard& scoreboard);

/// Returns the offers of all members with a value, in Answer's order.
[[nodiscard]] std::vector<Offer> offers_of(const Scoreboard& scoreboard);
/// Spearman's: Pearson's correlation of the ranks, equal values sharing their mean rank. Lists of
/// equal length; nothing of fewer than two values, or where all of a list are equal.
[[nodiscard]] std::optional<double> rank_correlation(const std::vector<double>& one,
                                                     const std::vector<double>& other);

}  // namespace dstune
