#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/command_reading.hpp"
#include "dstune/report/dry_run.hpp"
#include "dstune/report/folder_lock.hpp"
#include "dstune/report/folder_status.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/page.hpp"
#include "dstune/report/results.hpp"
#include "dstune/report/verify_script.hpp"
#include "entries.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

/// For files that people open.
std::string indented(const json::Value& value) {
  return json_text(value, 2) + "\n";
}

/// A user's command may hold a token.
Readers readers_of(const std::optional<UserCommand>& training_command) {
  return training_command ? Readers::owner : Readers::by_umask;
}

std::string exit_status_text(ExitCode code, const std::string& reason) {
  return indented({{"exit_code", static_cast<int>(code)},
                   {"reason", reason},
                   {"finished_at", format_time(std::chrono::system_clock::now())}});
}

/// Permissions alone do not say it: a file is made and taken away again.
void check_writable(const std::string& folder) {
  std::string probe = folder + "/.dstune-probe-XXXXXX.tmp";
  const FileDescriptor descriptor(::mkstemps(probe.data(), 4));
  if (!descriptor) {
    throw IoError(
        fmt::format("can not write in {}: {}", folder, std::generic_category().message(errno)));
  }
  ::unlink(probe.c_str());
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::error_code cause;
  std::vector<fs::directory_entry> found;
  for (fs::directory_iterator at(folder, cause), end; !cause && at != end; at.increment(cause))
    found.push_back(*at);
  if (cause) throw IoError("can not list " + folder.string() + ": " + cause.message());
  return found;
}

/// `min_age`: since they were written.
void remove_temporaries(const fs::path& folder, std::chrono::seconds min_age = {}) {
  std::error_code cause;
  if (fs::symlink_status(folder, cause).type() != fs::file_type::directory) return;
  for (const fs::directory_entry& entry : entries_of(folder)) {
    const std::string path = entry.path().string();
    if (file_name::is_temporary(entry.path().filename().string()) &&
        entry.symlink_status(cause).type() == fs::file_type::regular &&
        (min_age.count() == 0 ||
         fs::file_time_type::clock::now() - entry.last_write_time(cause) >= min_age) &&
        ::unlink(path.c_str()) != 0 && errno != ENOENT)
      throw IoError("can not delete " + path + ": " + std::generic_category().message(errno));
  }
}

}  // namespace

bool is_own_file_name(std::string_view name) {
  const auto is_own = [](std::string_view file) {
    return file == file_name::journal || file == file_name::lock || file == file_name::manifest ||
           file == file_name::verification || file == file_name::library_choices ||
           std::ranges::find(file_name::in_results, file) != file_name::in_results.end();
  };
  return is_own(name) || is_own(std::string(name) + ".json");
}

ResultsFolder::ResultsFolder(std::string results_dir, std::string exps_dir,
                             const InputFiles& inputs)
    : results_dir_(std::move(results_dir)), exps_dir_(std::move(exps_dir)), inputs_(inputs) {
  for (const std::string& folder : {results_dir_, exps_dir_}) {
    create_folders(folder);
    check_writable(folder);
  }
  look_at_folders();
}

void ResultsFolder::look_at_folders() {
  own_ = std::make_unique<BothFolders>(results_dir_, exps_dir_, inputs_);
}

void ResultsFolder::begin() {
  look_at_folders();  // another job may have written until now
  // The results' last: without its manifest an earlier release's folder is looked through again.
  own_->exps.begin();
  own_->results.begin();
  // A killed job has left them. Another one that just begins, or shares the second folder, may be
  // about to rename one of its own.
  for (const std::string& folder : {results_dir_, exps_dir_})
    remove_temporaries(folder, std::chrono::minutes(1));
}

void ResultsFolder::write(std::string_view name, std::string_view content, Readers readers) {
  own_->results.write(std::string(name), content, Durability::synced, readers);
}

std::string ResultsFolder::file(std::string_view name) const {
  return fmt::format("{}/{}", results_dir_, name);
}

/// A file of an experiment, which is not synced: the journal can restore it.
void ResultsFolder::write_unsynced(const std::string& experiment, std::string_view name,
                                   std::string_view content, Readers readers) {
  require(file_name::is_experiment_name(experiment), "the name is safe as a folder's");
  own_->results.make_folder(experiment);
  own_->results.write(fmt::format("{}/{}", experiment, name), content, Durability::rename_only,
                      readers);
}

std::string ResultsFolder::journal_path() const {
  return file(file_name::journal);
}

void ResultsFolder::prepare_journal() {
  own_->results.note_appended(std::string(file_name::journal));
}

void ResultsFolder::delete_previous() {
  begin();
  OwnFiles& results = own_->results;
  OwnFiles& exps = own_->exps;
  std::set<std::string> files = results.files();
  for (const std::string_view name : file_name::in_results) {
    results.remove(std::string(name));
    files.erase(std::string(name));
  }
  std::set<std::string> folders = results.folders();
  // Marks name those whose line a power cut has taken.
  for (const fs::directory_entry& entry : entries_of(results_dir_)) {
    const std::string name = entry.path().filename().string();
    if (results.is_own(fmt::format("{}/{}", name, file_name::experiment))) folders.insert(name);
  }
  for (const std::string& name : folders) {
    exps.remove(name + ".json");
    for (const std::string_view file : file_name::in_experiment) {
      results.remove(fmt::format("{}/{}", name, file));
      files.erase(fmt::format("{}/{}", name, file));
    }
    remove_temporaries(fs::path(results_dir_) / name);
    results.remove_folder(name);
  }
  for (const std::string& file : files) results.remove(file);
  remove_temporaries(results_dir_);
  remove_temporaries(exps_dir_);
  results.remove(std::string(file_name::journal));
  // Last, since they name what is to be deleted: interrupted, the next call finishes the work.
  if (exps.is_empty()) exps.remove_manifest();
  results.remove_manifest();
  look_at_folders();
}

void ResultsFolder::write_experiment(const Experiment& experiment) {
  require(file_name::is_experiment_name(experiment.name), "the name is safe as a folder's");
  json::Value description = {{"name", experiment.name},
                             {"ds_config", experiment.ds_config},
                             {"num_gpus", experiment.shape.num_gpus},
                             {"num_nodes", experiment.shape.num_nodes},
                             {"hostfile", nullptr}};
  own_->results.make_folder(experiment.name);
  own_->exps.write(experiment.name + ".json", json_text(description) + "\n",
                   Durability::rename_only);

  const std::string folder = file(experiment.name);
  const std::string config_path = fmt::format("{}/{}", folder, file_name::config);
  write_unsynced(experiment.name, file_name::config, json_text(experiment.ds_config) + "\n");
  description["result_dir"] = folder;
  description["ds_config_path"] = config_path;
  description["sequence_length"] = experiment.config.sequence_length;
  description["recompute"] = to_text(experiment.config.recompute);
  description["written_by"] = file_name::writer;
  write_unsynced(experiment.name, file_name::experiment, json_text(description) + "\n");
}

void ResultsFolder::write_metrics(const Record& record, Metric metric,
                                  const std::optional<TargetTime>& target,
                                  const std::optional<MetricValue>& target_value) {
  const std::string text =
      json_text(metrics_json(record, metric, target, target_value, instrument_)) + "\n";
  write_unsynced(record.experiment.name, file_name::metrics, text);
  if (is_verification_) write_unsynced(record.experiment.name, file_name::verified, text);
}

void ResultsFolder::write_traceback(const std::string& name, const std::string& traceback) {
  // It quotes the command's arguments where they are wrong.
  write_unsynced(name, file_name::traceback, printable_lines(traceback), Readers::owner);
}

void ResultsFolder::write_memory(const std::string& name, const MemoryTimeline& timeline) {
  write_unsynced(name, file_name::memory_text, memory_text(timeline, 0));
}

void ResultsFolder::write_optimal(const Recommendation& recommendation,
                                  const std::optional<UserCommand>& training_command) {
  const Experiment& experiment = recommendation.standing.row->record->experiment;
  const json::Value ds_config = without_tuning(experiment.ds_config);
  const std::string config_path = file(file_name::optimal_config);
  const std::string shown_path = absolute_path(config_path);
  const std::string command = training_command
                                  ? launch_line(*training_command, shown_path, ds_config,
                                                experiment.config.recompute, experiment.shape)
                                  : placeholder_launch_line(shown_path, experiment.shape);
  write(file_name::optimal_config, indented(ds_config));
  if (training_command && training_command->takes_training_arguments) {
    json::Value arguments = json::Value::object();
    for (TrainingArgument& one :
         training_arguments(*training_command, ds_config, experiment.config.recompute))
      arguments[one.name] = std::move(one.value);
    write(file_name::training_arguments, indented(arguments));
  }
  const Readers readers = readers_of(training_command);
  // The page is to be shown to others, and a user's command may hold a token.
  command_ = training_command ? "" : command;
  command_of_ = experiment.name;
  write(file_name::optimal_command, command + "\n", readers);
  json::Value optimal = optimal_json(recommendation, command);
  if (environment_.contains("deepspeed"))
    optimal["deepspeed_version"] = environment_["deepspeed"]["version"];
  write(file_name::optimal, indented(optimal), readers);
}

void ResultsFolder::write_verification(const Recommendation& recommendation,
                                       const std::optional<UserCommand>& training_command) {
  VerificationJob job;
  for (const ToVerify& run : recommendation.to_verify)
    job.runs.push_back(
        {run.experiment, run.place > 0
                             ? fmt::format("Number {} of what was measured{}.", run.place,
                                           run.is_baseline ? ", and your own configuration" : "")
                             : "Your own configuration, the baseline."});
  job.folder = absolute_path(file(file_name::verification));
  job.training_command = training_command;
  const auto write_script = [&](std::string_view name, BatchSystem system) {
    job.script_path = absolute_path(file(name));
    write(name, verify_script(job, system), readers_of(training_command));
  };
  write_script(file_name::verify_slurm, BatchSystem::slurm);
  write_script(file_name::verify_pbs, BatchSystem::pbs);
}

void ResultsFolder::write_page(const Answer& answer, const JobState& state,
                               const std::optional<MemoryTimeline>& memory, Durability durability) {
  AnswerOnPage on_page{.command = "", .memory = memory};
  // While a job runs, the optimum may be an earlier one.
  if (answer.recommendation &&
      answer.recommendation->standing.row->planned.experiment.name == command_of_)
    on_page.command = command_;
  OwnFilePieces data(own_->results, std::string(file_name::page_data));
  OwnFilePieces page(own_->results, std::string(file_name::page));
  write_report(
      answer, environment_, state, on_page, [&](std::string_view piece) { data.add(piece); },
      [&](std::string_view piece) { page.add(piece); });
  data.take_place(durability);
  page.take_place(durability);
}

void ResultsFolder::write_summary(const Answer& answer, const JobState& state,
                                  const std::optional<MemoryTimeline>& memory) {
  OwnFilePieces table(own_->results, std::string(file_name::table));
  write_results_csv(answer, [&](std::string_view piece) { table.add(piece); });
  table.take_place(Durability::synced);
  write_page(answer, state, memory, Durability::synced);
  write(file_name::summary,
        printable_lines(headline_text(answer, results_dir_) + "\n" + summary_text(answer)));
}

void ResultsFolder::write_state(const JobState& state) {
  json::Value value = state_json(state);
  value["written_by"] = file_name::writer;
  own_->results.write(std::string(file_name::state), indented(value), Durability::rename_only);
}

void ResultsFolder::write_environment(const json::Value& environment) {
  write(file_name::environment, indented(environment));
  environment_ = environment;
}

void ResultsFolder::write_validation(const Answer& answer) {
  write(file_name::validation, json_text(validation_json(answer)) + "\n");
}

std::map<std::string, std::string> ResultsFolder::library_choices(std::string& note) const {
  const std::string name(file_name::library_choices);
  const std::string path = file(name);
  std::map<std::string, std::string> choices;
  if (!entries::status_of(path)) return choices;
  if (!own_->results.is_own(name)) {
    note = path +
           " is not as dstune-mpi wrote it: it is not used and stays as it is; move it away, "
           "and choices are kept again";
    return choices;
  }
  const json::Value value =
      json::Value::parse(entries::content_of(path).value_or(""), nullptr, false);
  if (!value.is_object() || !value.contains("choices") || !value["choices"].is_object())
    return choices;
  for (const auto& [what, place] : value["choices"].items())
    if (place.is_string()) choices[what] = place;
  return choices;
}

void ResultsFolder::write_library_choices(const std::map<std::string, std::string>& choices) {
  const std::string name(file_name::library_choices);
  if (!own_->results.obstacle(name).empty()) return;
  write(name, indented({{"written_by", file_name::writer}, {"choices", choices}}));
}

void ResultsFolder::forget_exit_status() {
  has_written_exit_status_ = false;
  own_->results.remove(std::string(file_name::exit_status));
}

void ResultsFolder::write_exit_status(ExitCode code, const std::string& reason) {
  if (was_ended_by_others()) return;
  write(file_name::exit_status, exit_status_text(code, reason));
  has_written_exit_status_ = true;
}

std::string ResultsFolder::exit_status_path() const {
  return absolute_path(file(file_name::exit_status));
}

bool ResultsFolder::was_ended_by_others() const {
  return !has_written_exit_status_ && ::access(file(file_name::exit_status).c_str(), F_OK) == 0;
}

void create_early_exit_status(const FolderNames& asked, const InputFiles& inputs, ExitCode code,
                              const std::string& reason, bool makes_folder) {
  const std::optional<std::string> folder = choose_results_folder(asked, inputs);
  if (!folder) return;
  std::error_code cause;
  if (!fs::is_directory(*folder, cause)) {
    if (!makes_folder) return;
    create_folders(*folder);
  }
  const FolderLock lock(*folder);
  // It may have come meanwhile.
  if (!choose_results_folder({.results_dir = *folder, .exps_dir = asked.exps_dir}, inputs)) return;
  // It is known by what it holds: the folder stays one that anybody may use.
  write_file_atomically(fmt::format("{}/{}", *folder, file_name::exit_status),
                        exit_status_text(code, reason));
}

bool create_exit_status(const std::string& path, ExitCode code,
                        const std::string& reason) noexcept {
  try {
    const std::string text = exit_status_text(code, reason);
    const FileDescriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!file) return false;
    const bool is_whole =
        ::write(file.value(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!is_whole) ::unlink(path.c_str());  // a part of it would be nobody's
    return is_whole && ::fsync(file.value()) == 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace dstune
