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
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

/// A row of the summary: a member with what became of it.
struct Row {
  PlannedExperiment planned;
  std::optional<Record> record;  ///< where it was dispatched
};

/// What the reports are made from.
struct Report {
  Metric metric = Metric::throughput;
  std::vector<Row> rows;  ///< in the order of the space
  double elapsed_s = 0;
  std::string label = "proxy";
};

/// Whether a row has a value and it is better than the other's: larger (smaller, where the metric
/// is minimised), at equal values with less memory. Anything is better than a row without a value.
bool is_better(const Row& row, const Row& other, Metric metric);
/// The best row's index: largest (smallest, where the metric is minimised) value among status ok;
/// ties go to less memory, then to the earlier one.
std::optional<std::size_t> best_row(const Report& report);

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
  /// ds_config_optimal.json, optimal.json, cmd_optimal.txt; at each improvement. Synced.
  void write_optimal(const Record& best, const Report& report,
                     const std::optional<std::string>& training_command,
                     const std::vector<std::pair<std::string, std::string>>& arg_mappings);
  /// summary.txt and results.csv. Synced.
  void write_summary(const Report& report);
  void write_environment(const json::Value& environment);
  /// Last of all. Synced.
  void write_exit_status(ExitCode code, const std::string& reason);

 private:
  [[nodiscard]] std::string file(std::string_view name) const;

  std::string results_dir_;
  std::string exps_dir_;
};

/// DeepSpeed's table (pipe style) over the tuning spaces z0 … z3 and `global`, then the winner and
/// the reasons of what did not run; what summary.txt holds and the program prints.
std::string summary_text(const Report& report);
/// --format json at the end of a run (design 2).
json::Value summary_json(const Report& report, int exit_code);
/// metrics.json (design 2).
json::Value metrics_json(const Record& record, Metric metric);

}  // namespace dstune
