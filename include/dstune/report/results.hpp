#pragma once
/// Every file of the results and experiments folders; docs/files.md has each with its fields. All
/// writing is here, and all of it is atomic: a reader, and a full disk, find the old file or the
/// new one. Local. Throws IoError.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/core/calibration.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/memory_timeline.hpp"

namespace dstune {

/// A row of the summary: a member with what became of it.
struct Row {
  PlannedExperiment planned;
  std::optional<Record> record;  ///< where it was dispatched
  /// What the same configuration did in DeepSpeed itself, where a verification job ran it.
  std::optional<Measurement> verified;
  std::vector<Repeat> repeats{};  ///< in the order in which they ended
  Overheads overheads{};          ///< of a step in the user's training, for the calibration
  /// What the record says in the report's metric; nothing: not looked at yet (note_value()).
  std::optional<MetricValue> first_run{};
};

/// What became of the finalists' being measured again (validation.hpp).
struct Validation {
  bool is_done = false;  ///< the answer is one of the finalists, by their final rounds
  std::string reason;    ///< why it is not done
  std::vector<std::size_t> finalists;  ///< rows, best first by their first runs
};

/// One of the user's own runs in DeepSpeed, of a member of the space.
struct OwnRun {
  std::size_t row = 0;
  std::string path;
  double step_s = 0;              ///< an optimizer step
  std::int64_t memory_bytes = 0;  ///< of rank 0's device; 0: not known
};

/// What the reports are made from.
struct Report {
  Metric metric = Metric::throughput;
  std::vector<Row> rows;  ///< in the order of the space
  double elapsed_s = 0;
  std::vector<OwnRun> own_runs;  ///< --calibrate
  /// What they say about the times that were measured here; nothing until one of their members was.
  std::optional<TimeCalibration> calibration;
  std::int64_t memory_offset_bytes = 0;  ///< … and about the target's memory
  std::optional<std::size_t> own_row;    ///< the configuration that the user came with
  Validation validation;
  /// How far a single run may be from the configuration's mean (of the logarithm, 95 %), as far as
  /// runs of the same configuration have said it.
  double half_width_of_run = dstune::half_width_of_run(believed_spread({}));
  /// That something that was not run is more than 1 % better than the best, as the tuner believes.
  std::optional<double> chance_of_better;
};

/// What a row is ranked by: what was measured (once the validation is done: in its final rounds,
/// where it has some), calibrated where that is possible. Nothing unless it is ok.
std::optional<MetricValue> ranked_value(const Report& report, const Row& row);
/// The same for people: of a single run, whose interval is that of its own steps, with an interval
/// that other runs of the configuration would be in, too.
std::optional<MetricValue> reported_value(const Report& report, const Row& row);
/// Keeps what the row's record says, which is asked for often and takes a while to find out. Where
/// a row has it, it is called anew whenever the record changes.
void note_value(Row& row, Metric metric);
/// Whether a row has such a value and it is better than the other's: larger (smaller, where the
/// metric is minimised), at equal values with less memory. Anything is better than a row without;
/// once the validation is done one with final rounds than any other.
bool is_better(const Report& report, const Row& row, const Row& other);
/// The best row's index: largest (smallest, where the metric is minimised) value among status ok;
/// ties go to less memory, then to the earlier one. Finalists that were measured again are tied
/// where they are within 0.1 %.
std::optional<std::size_t> best_row(const Report& report);
/// What is recommended: the best row, unless DeepSpeed itself ran that one and others, and one of
/// them faster; that one then. `best`: what best_row() gives.
std::size_t answer_row(const Report& report, std::size_t best);
/// What DeepSpeed itself made of a row; nothing where it did not run there to its end.
std::optional<MetricValue> verified_value(const Row& row, Metric metric);
/// How far a row can be trusted: "verified", "calibrated" or "proxy".
std::string label_of(const Report& report, const Row& row);
/// Why the answer is another one than the best that was measured here; empty where it is that one.
std::string choice_text(const Report& report, std::size_t answer);
/// The best rows by that rule, best first, at most `most`.
std::vector<std::size_t> best_rows(const Report& report, std::size_t most);

class ResultsFolder {
 public:
  /// Creates the folders; throws IoError where they can not be written.
  ResultsFolder(std::string results_dir, std::string exps_dir);

  [[nodiscard]] std::string journal_path() const;
  [[nodiscard]] const std::string& path() const { return results_dir_; }

  /// Deletes what a dstune-mpi wrote here before, and nothing else: its files, and the experiments
  /// that the journal or a marked exp.json names. What else lies in an experiment's folder stays,
  /// and so does the folder then. A damaged journal is no hindrance.
  void delete_previous();

  /// <name>/exp.json, <name>/ds_config.json, and <name>.json in the experiments folder; at
  /// dispatch. Renamed into place but not synced: what must survive a crash is in the journal.
  void write_experiment(const Experiment& experiment);
  /// <name>/metrics.json; once, at the end of the experiment. Not synced, likewise. `metric`: the
  /// one that ci_low and ci_high belong to.
  void write_metrics(const Record& record, Metric metric = Metric::throughput);
  /// <name>/memory.svg and <name>/memory.txt, of the winner; beside what write_experiment() wrote.
  /// Not synced.
  void write_memory(const std::string& name, const MemoryTimeline& timeline);
  /// ds_config_optimal.json, optimal.json, cmd_optimal.txt; at each improvement. Synced.
  void write_optimal(const Row& answer, const Report& report,
                     const std::optional<std::string>& training_command,
                     const std::vector<std::pair<std::string, std::string>>& arg_mappings);
  /// verify.sbatch and verify.pbs for the three best and the user's own configuration; with the
  /// optimum, and at the end. Synced.
  void write_verification(const Report& report, const std::optional<std::string>& training_command,
                          const std::vector<std::pair<std::string, std::string>>& arg_mappings);
  /// summary.txt, report.html and results.csv. Synced.
  void write_summary(const Report& report);
  /// environment.json, which report.html then shows, too. Synced.
  void write_environment(const json::Value& environment);
  /// validation.json. Synced.
  void write_validation(const Report& report);
  /// An earlier job's exit_status.json says nothing of this one.
  void forget_exit_status();
  /// Last of all. Synced.
  void write_exit_status(ExitCode code, const std::string& reason);

 private:
  [[nodiscard]] std::string file(std::string_view name) const;

  std::string results_dir_;
  std::string exps_dir_;
  json::Value environment_;
};

/// DeepSpeed's table (pipe style) over the tuning spaces z0 … z3 and `global`, then the winner and
/// the reasons of what did not run; what summary.txt holds and the program prints.
std::string summary_text(const Report& report);
/// report.html: the answer, figures, a row for each member, and why some did not run; in one file
/// that needs nothing else.
std::string report_html(const Report& report, const json::Value& environment);
/// --format json at the end of a run (design 2).
json::Value summary_json(const Report& report, int exit_code);
/// metrics.json (design 2).
json::Value metrics_json(const Record& record, Metric metric);

}  // namespace dstune
