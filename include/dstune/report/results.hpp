#pragma once
/// Every file of the results and experiments folders; docs/fields.md has each with its fields. All
/// writing is here, and all of it is atomic: a reader, and a full disk, find the old file or the
/// new one. Their content is the Answer's; nothing is decided here. Local. Throws IoError.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/report/chosen_folders.hpp"
#include "dstune/report/job_state.hpp"
#include "dstune/report/text_sink.hpp"

namespace dstune {

class ResultsFolder {
 public:
  /// Creates the folders; throws IoError where they can not be written. `inputs` are not touched.
  ResultsFolder(std::string results_dir, std::string exps_dir, const InputFiles& inputs = {});
  /// Once the folder's lock is held: the manifests are there from here on (own_files.hpp). Whatever
  /// is written below takes no other file's place than one of ours.
  void begin();
  /// Before the journal is opened.
  void prepare_journal();

  [[nodiscard]] std::string journal_path() const;
  [[nodiscard]] const std::string& path() const { return results_dir_; }

  /// Deletes what a dstune-mpi wrote here before, and nothing else: what the manifests name and has
  /// not been changed since, and marked files. Other files in an experiment's folder stay, and so
  /// does the folder then. A damaged journal is no hindrance.
  void delete_previous();

  /// <name>/exp.json, <name>/ds_config.json, and <name>.json in the experiments folder; after it.
  /// Renamed into place but not synced: what must survive a crash is in the journal.
  /// Throws IoError where the folder is a symbolic link: nothing is written through one.
  void write_experiment(const Experiment& experiment);
  /// <name>/metrics.json; once, after the experiment. Not synced, likewise. `metric`: the
  /// one that ci_low and ci_high belong to. `target`, `target_value`: as metrics_json()'s.
  void write_metrics(const Record& record, Metric metric = Metric::throughput,
                     const std::optional<TargetTime>& target = {},
                     const std::optional<MetricValue>& target_value = {});
  /// Sets the instrument that measures experiments: `instrument` of metrics.json; "step" if nobody
  /// says. `is_verification`: it is the user's training, whose figures stand in
  /// <name>/verified.json, too.
  void set_instrument(std::string instrument, bool is_verification = false) {
    instrument_ = std::move(instrument);
    is_verification_ = is_verification;
  }
  /// <name>/traceback.txt, of one that failed in Python. Not synced.
  void write_traceback(const std::string& name, const std::string& traceback);
  /// <name>/memory.txt, of the winner; beside what write_experiment() wrote. Not synced.
  void write_memory(const std::string& name, const MemoryTimeline& timeline);
  /// ds_config_optimal.json, optimal.json, cmd_optimal.txt; at each improvement. Synced.
  void write_optimal(const Recommendation& recommendation,
                     const std::optional<UserCommand>& training_command);
  /// verify.sbatch and verify.pbs for what the recommendation names; with the optimum. Synced.
  void write_verification(const Recommendation& recommendation,
                          const std::optional<UserCommand>& training_command);
  /// summary.txt, results.csv and the page. Synced. `memory`: of the answer, over a step.
  void write_summary(const Answer& answer, const JobState& state = {.phase = TuningPhase::done},
                     const std::optional<MemoryTimeline>& memory = {});
  /// report.json and report.html alone, as they are while the job runs. Synced where `durability`
  /// says so.
  void write_page(const Answer& answer, const JobState& state,
                  const std::optional<MemoryTimeline>& memory = {},
                  Durability durability = Durability::rename_only);
  /// status.json: every few seconds while the job runs, and at its end. Not synced.
  void write_state(const JobState& state);
  /// environment.json, which report.html then shows, too. Synced.
  void write_environment(const json::Value& environment);
  /// validation.json. Synced.
  void write_validation(const Answer& answer);
  /// library_choices.json of an earlier job: what of libraries' candidates was chosen, by what for.
  /// One that is not ours, or was changed, is none, and the note says so.
  [[nodiscard]] std::map<std::string, std::string> library_choices(std::string& note) const;
  /// library_choices.json; whenever something new was chosen. Synced. Nothing is written where the
  /// file is not ours.
  void write_library_choices(const std::map<std::string, std::string>& choices);
  /// An earlier job's exit_status.json says nothing of this one.
  void forget_exit_status();
  /// Last of all. Synced. Not where others have ended the job in this process's place.
  void write_exit_status(ExitCode code, const std::string& reason);
  [[nodiscard]] std::string exit_status_path() const;
  /// Since forget_exit_status() somebody else has written exit_status.json: they saw this process
  /// gone, and it has no say any more.
  [[nodiscard]] bool was_ended_by_others() const;

 private:
  [[nodiscard]] std::string file(std::string_view name) const;
  void look_at_folders();
  void write(std::string_view name, std::string_view content, Readers readers = Readers::by_umask);
  void write_unsynced(const std::string& experiment, std::string_view name,
                      std::string_view content, Readers readers = Readers::by_umask);

  std::string results_dir_;
  std::string exps_dir_;
  InputFiles inputs_;
  std::unique_ptr<BothFolders> own_;
  json::Value environment_;
  /// That launches the latest optimum, for the page, and its name.
  std::string command_, command_of_;
  std::string instrument_ = "step";
  bool is_verification_ = false;
  bool has_written_exit_status_ = false;
};

/// exit_status.json in the place of a rank 0 that can not: made where there is none, and never
/// replaced. Returns whether it was made. Does not throw.
bool create_exit_status(const std::string& path, ExitCode code, const std::string& reason) noexcept;

/// exit_status.json of a job that has not opened its folders, replacing what is there; not where
/// the folder holds somebody else's files, and not where another job has it. `makes_folder`: the
/// folder may be missing. Throws IoError.
void create_early_exit_status(const FolderNames& asked, const InputFiles& inputs, ExitCode code,
                              const std::string& reason, bool makes_folder);

/// Tells whether an experiment of this name would take the place of one of our files. Such a name
/// is a file's or folder's of the results, or becomes one with ".json" behind it.
[[nodiscard]] bool is_own_file_name(std::string_view name);

/// The answer in four lines: the configuration with its value and its gain over the baseline; how
/// sure that is; what the tuning cost and when that is earned back; where the files are. A fifth
/// tells of another global batch. summary.txt begins with it, and what the program prints ends with
/// it.
std::string headline_text(const Answer& answer, const std::string& results_dir);
/// DeepSpeed's table (pipe style) over the tuning spaces z0 … z3 and `global`, then the winner and
/// the reasons of what did not run; what else summary.txt holds and the program prints.
std::string summary_text(const Answer& answer);
/// results.csv: one row a member, whatever became of it, with a column for each searched key at the
/// end. RFC 4180: a header, CRLF line ends, quotes where a field needs them. An empty field: no
/// value.
std::string results_csv(const Answer& answer);
/// The same, piece by piece.
void write_results_csv(const Answer& answer, const TextSink& sink);
/// --format json at the end of a run.
json::Value summary_json(const Answer& answer, int exit_code);
/// optimal.json. `command`: the launch line of the user's training.
json::Value optimal_json(const Recommendation& recommendation, const std::string& command);
/// validation.json
json::Value validation_json(const Answer& answer);
/// metrics.json. `target`: the measurement in the target's time, where it is ranked by
/// that; `target_value`: its value_so_far() there, with the interval. `instrument`: what measured
/// it.
json::Value metrics_json(const Record& record, Metric metric,
                         const std::optional<TargetTime>& target = {},
                         const std::optional<MetricValue>& target_value = {},
                         std::string_view instrument = "step");

}  // namespace dstune
