#pragma once
/// The measured, repeated, verified and believed values of every member of the space, and which one
/// leads. docs/inside/measuring.md has the rules and formulas. Knows no clock. Local.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dstune/base/packed_list.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/model_profile.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/ranking/calibration.hpp"
#include "dstune/ranking/loads.hpp"
#include "dstune/ranking/verdict.hpp"

namespace dstune {

/// A member of the space with what became of it.
struct Row {
  PlannedExperiment planned;
  std::optional<Record> record{};  ///< where it was dispatched
  /// The measurement of the same configuration in DeepSpeed itself, if a verification job ran it.
  std::optional<Measurement> verified{};
  std::vector<Repeat> repeats{};  ///< in the order in which they ended
  Overheads overheads{};          ///< of a step in the user's training
};

/// The members of a space, for a scoreboard that holds only those that were run.
class MemberSource {
 public:
  MemberSource() = default;
  virtual ~MemberSource() = default;
  MemberSource(const MemberSource&) = delete;
  MemberSource& operator=(const MemberSource&) = delete;

  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual PlannedExperiment planned(std::size_t member) const = 0;
  // Single facts of it cost little.
  [[nodiscard]] virtual PlanStatus status(std::size_t member) const = 0;
  [[nodiscard]] virtual PruneKind prune_kind(std::size_t member) const = 0;
  [[nodiscard]] virtual std::string_view reason(std::size_t member) const = 0;
};

/// The rows of members of which none was run. The members stay as they are.
[[nodiscard]] PackedList<Row> rows_of(std::shared_ptr<const MemberSource> members);

/// One of the user's own runs in DeepSpeed, of a member of the space.
struct UserRun {
  std::size_t member = 0;
  std::string path;
  double step_s = 0;              ///< an optimizer step
  std::int64_t memory_bytes = 0;  ///< of rank 0's device; 0: not known
};

/// The outcome of measuring the finalists again (run_again.hpp).
struct Finals {
  bool is_done = false;                ///< no more runs are wanted
  std::string reason;                  ///< why nothing was measured again
  std::vector<std::size_t> finalists;  ///< members, in the order in which they joined
};

/// Returns the value of this experiment's run in a metric, as in core/measurement.hpp.
[[nodiscard]] std::optional<MetricValue> metric_value(
    const Measurement& measurement, Metric metric, const Experiment& experiment,
    StepEstimate step = StepEstimate::mean,
    const Policy::Intervals& policy = default_policy().intervals);
[[nodiscard]] std::optional<MetricValue> value_so_far(
    const Measurement& measurement, Metric metric, const Experiment& experiment,
    StepEstimate step = StepEstimate::mean,
    const Policy::Intervals& policy = default_policy().intervals);
/// The mean step time of a run that ended ok, or 0.
[[nodiscard]] double mean_step_s(const Measurement& measurement);
/// Returns the median of at least one value; for an even number the mean of the middle two.
[[nodiscard]] double median(std::vector<double> values);
/// Final rounds of a member that ended ok.
[[nodiscard]] int num_final_rounds(const Row& row);
/// … and those that were begun.
[[nodiscard]] int num_final_tries(const Row& row);
/// It failed as often as it was measured again, which was often enough: it is passed over.
[[nodiscard]] bool fails_again(const Row& row,
                               const Policy::Answering& policy = default_policy().answering);
/// Returns a member's value in DeepSpeed itself; nothing if it did not run there to its end.
[[nodiscard]] std::optional<MetricValue> verified_value(const Row& row, Metric metric);

/// The facts that are known before anything is measured.
struct ScoreboardSetup {
  Metric metric = Metric::throughput;
  std::vector<UserRun> user_runs{};       ///< --calibrate
  std::int64_t memory_offset_bytes = 0;   ///< what they say about the target's memory
  std::optional<std::size_t> baseline{};  ///< the configuration that the user came with
  /// Samples of an optimizer step of the user's training; nothing where nobody says it.
  std::optional<std::int64_t> todays_batch{};
  /// The constants by which members are ranked in the target's time; nothing: they are ranked by
  /// their own.
  std::optional<TargetConstants> target{};
  int num_ranks = 0;  ///< of the job: GPUs, or groups of cores
  /// Jobs that this one goes on from, and what they took: seconds, and the same times ranks.
  int earlier_jobs = 0;
  double earlier_s = 0, earlier_rank_s = 0;
  /// The label of every answer, if the deciding instrument gives it one: "verified", "engine"; else
  /// empty.
  std::string label{};
  std::string source = "dstune-mpi's built-in step";  ///< of values, in words
  std::optional<ModelProfile> model_profile{};        ///< nothing where the model is not known
  std::string model_name{};                           ///< as shown; empty: not known
  /// JSON pointers in the DeepSpeed config of what is searched; empty: all that differs.
  std::vector<std::string> searched{};
  /// All steps of an experiment do the same, so that what makes some of them longer is not its own.
  bool are_steps_alike = false;
  const Policy* policy = &default_policy();
};

/// How busy rank 0's host was while the search went on.
struct HostLoad {
  double stolen_share = 0;  ///< of its processors' time: other virtual machines had it
  double load_average = 0;  ///< at the end: threads that ran or wanted to
  int num_cores = 0;
};

/// A measurement in the target's time.
struct TargetTime {
  double throughput = 0;  ///< samples/s
  double scale = 1;       ///< of the step's time here
  Overheads costs_s{};    ///< what each adds to this experiment's step
  std::string source{};   ///< who says so
};

/// Rank 0's account of a search. A member is named by its number in the space. Work in proportion
/// to the space is done when the finals end or the calibration changes, and not for each
/// experiment.
class Scoreboard {
 public:
  explicit Scoreboard(ScoreboardSetup setup = {}, PackedList<Row> rows = {});

  /// A first run has ended, or the one that takes its place. Returns whether it leads now. If the
  /// user ran it, too, the calibration is fitted anew.
  bool record(std::size_t member, Record record, const Overheads& overheads = {});
  /// A run once more has ended.
  void repeat(std::size_t member, Repeat repeat);
  /// DeepSpeed itself ran the member before; without enough memory there it becomes infeasible.
  void verify(std::size_t member, Measurement measurement);
  /// Takes the calibration by the user's own runs. Times from now on are those of the user's
  /// training, and all members are ranked anew.
  void calibrate(const TimeCalibration& calibration);
  /// Before a member runs: what is predicted of its speed now; of its memory all stays.
  void predict(std::size_t member, const Prediction& predicted);
  /// Members are compared with another one from now on.
  void set_baseline(std::size_t member) {
    if (setup_.baseline != member) {
      ++answer_revision_;
      is_verdict_new_ = false;
    }
    setup_.baseline = member;
  }
  /// Notes why a member was not run, and whether it was to be.
  void leave_out(std::size_t member, std::string reason, PlanStatus status = PlanStatus::planned);
  /// Notes that the tuner did not want it.
  void prune(std::size_t member, std::string reason, PruneKind kind);
  /// Compares all runs so far: values and the best are what they say together. Takes some
  /// milliseconds, however many members are far from the best, and nothing where no run has ended
  /// since. Later records count at the next time.
  void judge();
  /// From now on these members are measured again, too …
  void join_finals(const std::vector<std::size_t>& members);
  /// … until no more runs are wanted …
  void end_finals();
  /// … or nothing comes of it.
  void give_up_finals(std::string reason);
  /// At the end: how long it took, and the tuner's belief that an untested member is more than 1 %
  /// better than the best. It has what others did meanwhile, if that is known. The job has taken so
  /// long until now.
  void note_elapsed(double elapsed_s) { elapsed_s_ = elapsed_s; }
  void conclude(double elapsed_s, std::optional<double> chance_of_better,
                std::optional<HostLoad> load = std::nullopt);

  [[nodiscard]] const ScoreboardSetup& setup() const { return setup_; }
  [[nodiscard]] const Policy& policy() const { return *setup_.policy; }
  [[nodiscard]] Metric metric() const { return setup_.metric; }
  /// A row is open where its member was run or somebody looked at it by its number.
  [[nodiscard]] const PackedList<Row>& rows() const { return rows_; }
  [[nodiscard]] const Row& row(std::size_t member) const { return rows_[member]; }
  /// Visits the members with a record, in the space's order: (member, row).
  template <class Visitor>
  void visit_run(Visitor&& visitor) const {
    rows_.visit_open([&](std::size_t member, const Row& row) {
      if (row.record) visitor(member, row);
    });
  }
  // Single facts; the row stays packed.
  [[nodiscard]] bool has_run(std::size_t member) const {
    const Row* const row = rows_.opened(member);
    return row != nullptr && row->record;
  }
  [[nodiscard]] PlanStatus status(std::size_t member) const;
  [[nodiscard]] PruneKind prune_kind(std::size_t member) const;
  /// Why it was not planned, or left out.
  [[nodiscard]] std::string_view reason(std::size_t member) const;
  [[nodiscard]] const Finals& finals() const { return finals_; }
  /// The calibration that makes times of the target out of measured ones. It has the constants, and
  /// the user's own runs as soon as one of them was measured here. Nothing where there is neither.
  [[nodiscard]] const std::optional<TimeCalibration>& calibration() const { return calibration_; }
  /// Tells whether the user's own runs are in it.
  [[nodiscard]] bool is_calibrated() const { return is_calibrated_; }
  /// Changes whenever the calibration, what stands for a run's steps or the load of earlier runs
  /// does: what was observed is worth something else then.
  [[nodiscard]] std::uint64_t value_revision() const { return value_revision_; }
  /// The number that stands for the steps of each run: their mean, or the first quartile. The
  /// latter serves if steps are alike and something interrupts them in most first runs.
  [[nodiscard]] StepEstimate step_estimate() const { return step_estimate_; }
  [[nodiscard]] double elapsed_s() const { return elapsed_s_; }
  [[nodiscard]] std::optional<double> chance_of_better() const { return chance_of_better_; }
  [[nodiscard]] const std::optional<HostLoad>& host_load() const { return load_; }
  /// Nothing before judge().
  [[nodiscard]] const std::optional<Verdict>& verdict() const { return verdict_; }
  /// First runs that ended, however; those that took the place of others count, too.
  [[nodiscard]] std::uint64_t num_first_runs() const { return num_first_runs_; }
  /// First runs that ended ok.
  [[nodiscard]] std::size_t num_results() const { return num_results_; }

  /// Before judge(): the member with the largest (smallest, where the metric is minimised) value
  /// among status ok; ties go to less memory, then to the earlier one. After it: the member with
  /// the largest chance of being the best, or one within two points of that with less memory. It is
  /// the baseline if the chance that this member is better than that is below 95 %.
  [[nodiscard]] std::optional<std::size_t> best() const { return best_; }
  /// The recommended member: the best, unless DeepSpeed itself ran that one and others, and one of
  /// them faster; that one then.
  [[nodiscard]] std::optional<std::size_t> answer() const { return answer_; }
  /// Changes whenever the answer or its value does.
  [[nodiscard]] std::uint64_t answer_revision() const { return answer_revision_; }
  /// The best member, then others by their values, best first, at most `most`.
  [[nodiscard]] std::vector<std::size_t> best_members(std::size_t max_members) const;
  /// Finds what a verdict takes of all first runs; looks at all of them.
  [[nodiscard]] FirstRuns first_runs() const;
  /// … and of each run of a member that ended ok, the first one first; empty unless that is ok.
  [[nodiscard]] const std::vector<RunFacts>& facts_of_runs(std::size_t member) const;
  /// The machine's load while a run of a member went on; run 0 is the first one.
  [[nodiscard]] Load load_of(std::size_t member, std::size_t run = 0) const {
    return loads_.of(member, run);
  }
  /// The load at the end of the last run, and whether it is known.
  [[nodiscard]] Load load_now() const { return loads_.now(); }
  [[nodiscard]] bool is_load_in_doubt() const { return loads_.is_in_doubt(); }
  /// Members that ran once more.
  [[nodiscard]] const std::set<std::size_t>& repeated() const { return repeated_; }
  /// Tells whether a member has a value and it is better than the other's: larger (smaller, where
  /// the metric is minimised), at equal values with less memory. Anything is better than a member
  /// without.
  [[nodiscard]] bool is_better(std::size_t member, std::size_t other) const;

  /// Returns the value of a member's first run in a metric. Nothing unless it is ok.
  [[nodiscard]] std::optional<MetricValue> first_value(std::size_t member, Metric metric) const;
  /// Returns the value of a measured member in a metric, by all runs if they were judged. Nothing
  /// unless it is ok.
  [[nodiscard]] std::optional<MetricValue> measured_value(std::size_t member, Metric metric) const;
  /// Returns the value that a member is ranked by: the same in the scoreboard's metric, in the
  /// target's time if there is a calibration.
  [[nodiscard]] std::optional<MetricValue> ranked_value(std::size_t member) const;
  /// … where that is a finite number.
  [[nodiscard]] std::optional<double> finite_value(std::size_t member) const;
  /// Returns the value that a tuner hears of a member with a record: that of its first run, raced
  /// out or not, by which members are ranked. Nothing where no step was timed.
  [[nodiscard]] std::optional<MetricValue> observed_value(std::size_t member) const;
  /// A value that was measured of a member, in the scoreboard's metric, in the target's time;
  /// itself without a calibration.
  [[nodiscard]] MetricValue in_target(std::size_t member, const MetricValue& measured) const;
  /// Returns the target's time of a member that was measured; nothing without a calibration or if
  /// nothing was timed.
  [[nodiscard]] std::optional<TargetTime> target_time(std::size_t member) const;
  /// … of its first run alone, by the mean of its steps.
  [[nodiscard]] std::optional<TargetTime> target_time_of_first_run(std::size_t member) const;
  /// Returns the value that a member is ranked by, for people. A single run's interval is that of
  /// its own steps; it gets one that other runs of the configuration would be in, too.
  [[nodiscard]] std::optional<MetricValue> reported_value(std::size_t member) const;
  /// The logarithm of what a member would be ranked by, larger is better, if its speed here were by
  /// this logarithm above that of its first run, which is ok.
  [[nodiscard]] double score_at(std::size_t member, double faster_by) const;
  /// Tells whether the member's value is made of all its runs.
  [[nodiscard]] bool is_judged(std::size_t member) const { return judged_.contains(member); }

  /// Returns how runs differ by those of the search: of each configuration that was repeated there,
  /// its first run and the repeats.
  [[nodiscard]] Spread spread_in_search() const;
  /// … and what the final rounds of the finalists say.
  [[nodiscard]] Spread spread_of_finals() const;
  /// How far a single run may be from the configuration's mean (of the logarithm, 95 %), as far as
  /// both and what is believed before have said it.
  [[nodiscard]] double half_width_of_run() const { return half_width_of_run_; }

 private:
  [[nodiscard]] std::vector<double> means_of(std::size_t member, bool of_finals) const;
  [[nodiscard]] std::vector<std::vector<double>> means_in_search() const;
  [[nodiscard]] std::vector<std::vector<double>> means_of_finals() const;
  [[nodiscard]] std::optional<TargetTime> target_time_of(
      std::size_t member, const std::optional<MetricValue>& throughput) const;
  [[nodiscard]] std::optional<std::size_t> find_best() const;
  [[nodiscard]] std::size_t declared_best(const Verdict& verdict) const;
  [[nodiscard]] std::size_t find_answer(std::size_t best) const;
  [[nodiscard]] std::optional<MetricValue> value_of_first_run(std::size_t member,
                                                              Metric metric) const;
  void decide(std::size_t member, PlanStatus status, PruneKind kind, std::string reason);
  void note_first_value(std::size_t member);
  void note_first_run(std::size_t member);
  void note_interruptions(std::size_t member);
  void note_facts(std::size_t member);
  void note_repeat(std::size_t member);
  template <class EndedRun>
  void note_facts_of(std::size_t member, const EndedRun& run, std::size_t number);
  void value_anew();
  void note_spread();
  void rank_anew();
  void fit_calibration();

  ScoreboardSetup setup_;
  PackedList<Row> rows_;
  /// The records' values in the metric: they are asked for often, and take a while to find out.
  std::unordered_map<std::size_t, MetricValue> first_values_;
  std::set<std::size_t> repeated_;  ///< members with repeats
  std::optional<TimeCalibration> calibration_;
  bool is_calibrated_ = false;
  std::uint64_t value_revision_ = 0;
  std::vector<std::optional<bool>> is_interrupted_;  ///< of each member, its first run
  std::size_t num_interrupted_ = 0, num_timed_ = 0;
  StepEstimate step_estimate_ = StepEstimate::mean;
  Finals finals_;
  std::optional<std::size_t> best_, answer_;
  std::uint64_t answer_revision_ = 0;
  std::uint64_t num_first_runs_ = 0;
  std::size_t num_results_ = 0;
  double half_width_of_run_ = 0;
  std::optional<Verdict> verdict_;
  bool is_verdict_new_ = false;  ///< nothing has changed since it was made
  std::unordered_map<std::size_t, std::vector<RunFacts>> facts_;  ///< of members with any
  Loads loads_;
  std::optional<FirstRuns> first_runs_;                  ///< where none has ended since a verdict
  std::unordered_map<std::size_t, std::size_t> judged_;  ///< member → its place in the verdict
  double elapsed_s_ = 0;
  std::optional<double> chance_of_better_;
  std::optional<HostLoad> load_;
};

/// Returns the bound of the best member on a challenger's step times; nothing to race against if
/// there is none or its times bound nothing. If there is a calibration, the two are compared in the
/// target's time. Against a challenger whose overheads alone cost too much there, the estimate is
/// so small that it loses at the first look.
[[nodiscard]] IncumbentEstimate incumbent_estimate(const Scoreboard& scoreboard,
                                                   const Experiment& challenger,
                                                   const Overheads& challenger_overheads);

/// Returns how long a challenger that lost takes beside the best member, for the same work. With a
/// calibration it is in the target's time. Empty where nothing is faster any more.
[[nodiscard]] std::string lost_race_text(const Scoreboard& scoreboard, const Experiment& challenger,
                                         const Overheads& challenger_overheads,
                                         const Measurement& measurement);

}  // namespace dstune
