#pragma once
/// What was measured, repeated, verified and believed of every member of the space, and which one
/// leads. docs/measuring.md has the rules and formulas. Knows no clock. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dstune/core/interval.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

/// A member of the space with what became of it.
struct Row {
  PlannedExperiment planned;
  std::optional<Record> record{};  ///< where it was dispatched
  /// What the same configuration did in DeepSpeed itself, where a verification job ran it.
  std::optional<Measurement> verified{};
  std::vector<Repeat> repeats{};  ///< in the order in which they ended
  Overheads overheads{};          ///< of a step in the user's training, for the calibration
};

/// One of the user's own runs in DeepSpeed, of a member of the space.
struct UserRun {
  std::size_t row = 0;
  std::string path;
  double step_s = 0;              ///< an optimizer step
  std::int64_t memory_bytes = 0;  ///< of rank 0's device; 0: not known
};

/// What became of the finalists' being measured again (run_again.hpp).
struct Finals {
  bool is_done = false;  ///< the answer is one of the finalists, by their final rounds
  std::string reason;    ///< why it is not done
  std::vector<std::size_t> finalists;  ///< rows, best first by their first runs
};

/// What a run of this experiment says in a metric, as in core/measurement.hpp.
[[nodiscard]] std::optional<MetricValue> metric_value(const Measurement& measurement, Metric metric,
                                                      const Experiment& experiment);
[[nodiscard]] std::optional<MetricValue> value_so_far(const Measurement& measurement, Metric metric,
                                                      const Experiment& experiment);
/// The mean step time of a run that ended ok, or 0.
[[nodiscard]] double mean_step_s(const Measurement& measurement);
/// Final rounds of a row that ended ok.
[[nodiscard]] int num_final_rounds(const Row& row);
/// What DeepSpeed itself made of a row; nothing where it did not run there to its end.
[[nodiscard]] std::optional<MetricValue> verified_value(const Row& row, Metric metric);

/// Half of an interval's width, of the logarithm; infinite where it has no end.
[[nodiscard]] double half_width(const MetricValue& value);

/// One configuration that ran here and in the user's training.
struct CalibrationPoint {
  double measured_s = 0;  ///< an optimizer step here
  double target_s = 0;    ///< there
  Overheads overheads{};  ///< of the step
};

/// Least squares of the relative errors over the scale and the costs, none below 0. The costs are
/// drawn to 0, each as strongly as a normal prior of what such a thing may cost says beside the
/// errors that measurements have (ridge regression: Hoerl and Kennard, Technometrics 12, 1970; with
/// the bounds: Lawson and Hanson, Solving Least Squares Problems, 1974): so what the points do not
/// tell apart changes the scale, and one point gives the scale alone. At least one point; times
/// are positive and finite.
TimeCalibration fit_time(const std::vector<CalibrationPoint>& points);

/// What is known before anything is measured.
struct ScoreboardSetup {
  Metric metric = Metric::throughput;
  std::vector<UserRun> user_runs{};           ///< --calibrate
  std::int64_t memory_offset_bytes = 0;       ///< what they say about the target's memory
  std::optional<std::size_t> baseline_row{};  ///< the configuration that the user came with
};

/// Rank 0's account of a search. A row is named by its place in the space. What costs time in
/// proportion to the space is done where the finals end or the calibration changes, and not for
/// each experiment.
class Scoreboard {
 public:
  explicit Scoreboard(ScoreboardSetup setup = {}, std::vector<Row> rows = {});

  /// A first run has ended, or the one that takes its place. Whether it leads now. Where the user
  /// ran it, too, the calibration is fitted anew.
  bool record(std::size_t row, Record record, const Overheads& overheads = {});
  /// A run once more has ended.
  void repeat(std::size_t row, Repeat repeat);
  /// DeepSpeed itself ran the row before; without enough memory there it becomes infeasible.
  void verify(std::size_t row, Measurement measurement);
  /// Times from now on are those of the user's training: all rows are ranked anew.
  void calibrate(const TimeCalibration& calibration);
  /// Before a row runs: samples/s.
  void predict(std::size_t row, std::optional<double> throughput);
  /// Why a row was not run, and whether it was to be.
  void leave_out(std::size_t row, std::string reason, PlanStatus status = PlanStatus::planned);
  /// From now on final rounds are run of these rows, best first …
  void begin_finals(std::vector<std::size_t> finalists);
  /// … and now they count, and decide …
  void end_finals();
  /// … or nothing comes of them.
  void give_up_finals(std::string reason);
  /// At the end: how long it took, and the tuner's belief that something that was not run is more
  /// than 1 % better than the best.
  void conclude(double elapsed_s, std::optional<double> chance_of_better);

  [[nodiscard]] const ScoreboardSetup& setup() const { return setup_; }
  [[nodiscard]] Metric metric() const { return setup_.metric; }
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  [[nodiscard]] const Row& row(std::size_t row) const { return rows_[row]; }
  [[nodiscard]] const Finals& finals() const { return finals_; }
  /// Nothing until a row that the user ran, too, was measured.
  [[nodiscard]] const std::optional<TimeCalibration>& calibration() const { return calibration_; }
  [[nodiscard]] double elapsed_s() const { return elapsed_s_; }
  [[nodiscard]] std::optional<double> chance_of_better() const { return chance_of_better_; }
  /// First runs that ended ok.
  [[nodiscard]] std::size_t num_results() const { return num_results_; }

  /// The row with the largest (smallest, where the metric is minimised) value among status ok; ties
  /// go to less memory, then to the earlier one. Finalists that were measured again are tied where
  /// they are within 0.1 %.
  [[nodiscard]] std::optional<std::size_t> best() const { return best_; }
  /// What is recommended: the best, unless DeepSpeed itself ran that one and others, and one of
  /// them faster; that one then.
  [[nodiscard]] std::optional<std::size_t> answer() const { return answer_; }
  /// Changes whenever the answer or its value does.
  [[nodiscard]] std::uint64_t answer_revision() const { return answer_revision_; }
  /// The best rows by that rule, best first, at most `most`.
  [[nodiscard]] std::vector<std::size_t> best_rows(std::size_t most) const;
  /// Whether a row has a value and it is better than the other's: larger (smaller, where the metric
  /// is minimised), at equal values with less memory. Anything is better than a row without; once
  /// the finals are done one with final rounds than any other.
  [[nodiscard]] bool is_better(std::size_t row, std::size_t other) const;

  /// What a row's first run says in a metric. Nothing unless it is ok.
  [[nodiscard]] std::optional<MetricValue> first_value(std::size_t row, Metric metric) const;
  /// What a row that was measured says in a metric, by its final rounds where they count. Nothing
  /// unless it is ok.
  [[nodiscard]] std::optional<MetricValue> measured_value(std::size_t row, Metric metric) const;
  /// What a row is ranked by: the same in the board's metric, calibrated where that is possible.
  [[nodiscard]] std::optional<MetricValue> ranked_value(std::size_t row) const;
  /// … where that is a finite number.
  [[nodiscard]] std::optional<double> finite_value(std::size_t row) const;
  /// The same for people: of a single run, whose interval is that of its own steps, with an
  /// interval that other runs of the configuration would be in, too.
  [[nodiscard]] std::optional<MetricValue> reported_value(std::size_t row) const;
  /// In a metric, over a row's final rounds; nothing without one.
  [[nodiscard]] std::optional<MetricValue> final_value(std::size_t row, Metric metric) const;
  /// Whether the row's value is that of its final rounds.
  [[nodiscard]] bool is_final(std::size_t row) const;

  /// What the runs of the search say of how runs differ: of each configuration that was repeated
  /// there, its first run and the repeats.
  [[nodiscard]] Spread spread_in_search() const;
  /// … and what the final rounds of the finalists say.
  [[nodiscard]] Spread spread_of_finals() const;
  /// How far a single run may be from the configuration's mean (of the logarithm, 95 %), as far as
  /// both and what is believed before have said it.
  [[nodiscard]] double half_width_of_run() const { return half_width_of_run_; }

 private:
  [[nodiscard]] std::vector<std::vector<double>> means_in_search() const;
  [[nodiscard]] std::vector<std::vector<double>> means_of_finals() const;
  [[nodiscard]] std::optional<std::size_t> find_best() const;
  [[nodiscard]] std::size_t find_answer(std::size_t best) const;
  void note_first_value(std::size_t row);
  void note_spread();
  void rank_anew();
  void fit_calibration();

  ScoreboardSetup setup_;
  std::vector<Row> rows_;
  /// What the records say in the metric: asked for often, and it takes a while to find out.
  std::vector<std::optional<MetricValue>> first_values_;
  std::set<std::size_t> repeated_;  ///< rows with repeats
  std::optional<TimeCalibration> calibration_;
  Finals finals_;
  std::optional<std::size_t> best_, answer_;
  std::uint64_t answer_revision_ = 0;
  std::size_t num_results_ = 0;
  double half_width_of_run_ = 0;
  double elapsed_s_ = 0;
  std::optional<double> chance_of_better_;
};

/// What the best row means for a challenger's step times; nothing to race against where there is
/// none or its times bound nothing.
[[nodiscard]] IncumbentEstimate incumbent_estimate(const Scoreboard& board,
                                                   const Experiment& challenger);

}  // namespace dstune
