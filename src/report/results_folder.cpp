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
#include "dstune/report/dry_run.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

/// For files that people open.
std::string indented(const json::Value& value) {
  return json_text(value, 2) + "\n";
}

/// A file of an experiment, which is not synced: the journal can restore it.
void write_unsynced(const std::string& path, const std::string& content) {
  write_file_atomically(path, content, Durability::rename_only);
}

/// A user's command may hold a token.
Readers readers_of(const std::optional<std::string>& training_command) {
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

/// The configuration alone: neither the tuner's section nor ours.
json::Value without_tuning(json::Value ds_config) {
  ds_config.erase("autotuning");
  ds_config.erase("dstune");
  return ds_config;
}

std::string absolute_path(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

/// Removes a file, a link or an empty folder. What is not there, or not empty, is left.
void remove_one(const fs::path& path) {
  std::error_code cause;
  fs::remove(path, cause);
  if (cause && cause != std::errc::directory_not_empty && cause != std::errc::file_exists)
    throw IoError("can not delete " + path.string() + ": " + cause.message());
}

void remove_file(const fs::path& path) {
  std::error_code cause;
  const fs::file_type type = fs::symlink_status(path, cause).type();
  if (type == fs::file_type::regular || type == fs::file_type::symlink) remove_one(path);
}

/// Names of a temporary file that a killed process left behind.
bool is_temporary(const std::string& name) {
  return name.starts_with(".dstune-") && name.ends_with(".tmp");
}

std::vector<fs::directory_entry> entries(const fs::path& folder) {
  std::error_code cause;
  std::vector<fs::directory_entry> found;
  for (fs::directory_iterator at(folder, cause), end; !cause && at != end; at.increment(cause))
    found.push_back(*at);
  if (cause) throw IoError("can not list " + folder.string() + ": " + cause.message());
  return found;
}

void remove_temporaries(const fs::path& folder) {
  for (const fs::directory_entry& entry : entries(folder))
    if (is_temporary(entry.path().filename().string())) remove_file(entry.path());
}

/// The text of a member, or "".
std::string member(const json::Value& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Is it the folder of an experiment of ours? DeepSpeed's own folders look alike but for the mark.
bool is_marked(const fs::path& folder) {
  std::error_code cause;
  const fs::path path = folder / file_name::experiment;
  if (!fs::is_regular_file(path, cause)) return false;
  const json::Value description = json::Value::parse(read_file(path.string()), nullptr, false);
  return member(description, "written_by") == file_name::writer &&
         member(description, "name") == folder.filename().string();
}

/// The names of the experiments that were dispatched, as far as they can be found.
std::set<std::string> previous_experiments(const std::string& results_dir,
                                           const std::string& journal_path) {
  std::set<std::string> names;
  try {
    for (const JournalContent::Event& event : read_journal(journal_path).events) {
      const std::string kind = member(event.value, "kind");
      if (kind == "started" || kind == "finished") names.insert(member(event.value, "name"));
    }
  } catch (const InputError&) {
    // A damaged journal is deleted like a whole one; the marks below still name the experiments.
    names.clear();
  }
  for (const fs::directory_entry& entry : entries(results_dir)) {
    std::error_code cause;
    if (entry.is_directory(cause) && !entry.is_symlink(cause) && is_marked(entry.path()))
      names.insert(entry.path().filename().string());
  }
  std::erase_if(names,
                [](const std::string& name) { return !file_name::is_experiment_name(name); });
  return names;
}

void remove_experiment(const fs::path& folder) {
  std::error_code cause;
  if (fs::symlink_status(folder, cause).type() != fs::file_type::directory) return;
  remove_temporaries(folder);
  for (const std::string_view name : file_name::in_experiment) remove_file(folder / name);
  remove_one(folder);
}

}  // namespace

bool is_own_file_name(std::string_view name) {
  const auto is_own = [](std::string_view file) {
    return file == file_name::journal || file == file_name::lock ||
           file == file_name::verification ||
           std::ranges::find(file_name::in_results, file) != file_name::in_results.end();
  };
  return is_own(name) || is_own(std::string(name) + ".json");
}

ResultsFolder::ResultsFolder(std::string results_dir, std::string exps_dir)
    : results_dir_(std::move(results_dir)), exps_dir_(std::move(exps_dir)) {
  for (const std::string& folder : {results_dir_, exps_dir_}) {
    create_folders(folder);
    check_writable(folder);
  }
}

std::string ResultsFolder::file(std::string_view name) const {
  return fmt::format("{}/{}", results_dir_, name);
}

/// Where an experiment's files go, made where it is missing.
std::string ResultsFolder::experiment_folder(const std::string& name) const {
  require(file_name::is_experiment_name(name), "the name is safe as a folder's");
  const std::string folder = file(name);
  // One call, and a look only where something is there: this runs for every experiment.
  if (::mkdir(folder.c_str(), 0777) == 0) return folder;
  const int cause = errno;
  struct stat found {};
  if (cause == EEXIST && ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode))
    return folder;
  throw IoError(
      fmt::format("can not create folder {}: {}", folder,
                  cause == EEXIST && S_ISLNK(found.st_mode)
                      ? "a symbolic link is there, and nothing is written through one; remove it"
                      : std::generic_category().message(cause)));
}

std::string ResultsFolder::journal_path() const {
  return file(file_name::journal);
}

void ResultsFolder::delete_previous() {
  const std::set<std::string> names = previous_experiments(results_dir_, journal_path());
  for (const std::string_view name : file_name::in_results)
    remove_file(fs::path(results_dir_) / name);
  for (const std::string& name : names) {
    remove_file(fs::path(exps_dir_) / (name + ".json"));
    remove_experiment(fs::path(results_dir_) / name);
  }
  remove_temporaries(results_dir_);
  remove_temporaries(exps_dir_);
  // Last, since it names what is to be deleted: interrupted, the next call finishes the work.
  remove_file(journal_path());
}

void ResultsFolder::write_experiment(const Experiment& experiment) {
  const std::string folder = experiment_folder(experiment.name);
  json::Value description = {{"name", experiment.name},
                             {"ds_config", experiment.ds_config},
                             {"num_gpus", experiment.shape.num_gpus},
                             {"num_nodes", experiment.shape.num_nodes},
                             {"hostfile", nullptr}};
  write_unsynced(fmt::format("{}/{}.json", exps_dir_, experiment.name),
                 json_text(description) + "\n");

  const std::string config_path = fmt::format("{}/{}", folder, file_name::config);
  write_unsynced(config_path, json_text(experiment.ds_config) + "\n");
  description["result_dir"] = folder;
  description["ds_config_path"] = config_path;
  description["sequence_length"] = experiment.config.sequence_length;
  description["recompute"] = to_text(experiment.config.recompute);
  description["written_by"] = file_name::writer;
  write_unsynced(fmt::format("{}/{}", folder, file_name::experiment),
                 json_text(description) + "\n");
}

void ResultsFolder::write_metrics(const Record& record, Metric metric,
                                  const std::optional<TargetTime>& target,
                                  const std::optional<MetricValue>& target_value) {
  const std::string folder = experiment_folder(record.experiment.name);
  const std::string_view name = is_beside_ ? file_name::verified : file_name::metrics;
  write_unsynced(fmt::format("{}/{}", folder, name),
                 json_text(metrics_json(record, metric, target, target_value, instrument_)) + "\n");
}

void ResultsFolder::write_traceback(const std::string& name, const std::string& traceback) {
  // It quotes the command's arguments where they are wrong.
  write_file_atomically(fmt::format("{}/{}", experiment_folder(name), file_name::traceback),
                        printable_lines(traceback), Durability::rename_only, Readers::owner);
}

void ResultsFolder::write_memory(const std::string& name, const MemoryTimeline& timeline) {
  const std::string folder = experiment_folder(name);
  write_unsynced(fmt::format("{}/{}", folder, file_name::memory_picture),
                 memory_svg(timeline, name));
  write_unsynced(fmt::format("{}/{}", folder, file_name::memory_text), memory_text(timeline, 0));
}

void ResultsFolder::write_optimal(const Recommendation& recommendation,
                                  const std::optional<std::string>& training_command,
                                  const ArgMappings& arg_mappings) {
  const Experiment& experiment = recommendation.standing.row->record->experiment;
  const json::Value ds_config = without_tuning(experiment.ds_config);
  const std::string config_path = file(file_name::optimal_config);
  const std::string shown_path = absolute_path(config_path);
  const std::string command =
      training_command
          ? launch_line(*training_command, shown_path, ds_config, experiment.shape, arg_mappings)
          : placeholder_launch_line(shown_path, experiment.shape);
  write_file_atomically(config_path, indented(ds_config));
  const Readers readers = readers_of(training_command);
  write_file_atomically(file(file_name::optimal_command), command + "\n", Durability::synced,
                        readers);
  json::Value optimal = optimal_json(recommendation, command);
  if (environment_.contains("deepspeed"))
    optimal["deepspeed_version"] = environment_["deepspeed"]["version"];
  write_file_atomically(file(file_name::optimal), indented(optimal), Durability::synced, readers);
}

void ResultsFolder::write_verification(const Recommendation& recommendation,
                                       const std::optional<std::string>& training_command,
                                       const ArgMappings& arg_mappings) {
  VerificationJob job;
  for (const ToVerify& run : recommendation.to_verify)
    job.runs.push_back(
        {run.experiment, run.place > 0
                             ? fmt::format("Number {} of what was measured{}.", run.place,
                                           run.is_baseline ? ", and your own configuration" : "")
                             : "Your own configuration: the first candidate of every list."});
  job.folder = absolute_path(file(file_name::verification));
  job.training_command = training_command;
  job.arg_mappings = arg_mappings;
  const auto write = [&](std::string_view name, BatchSystem system) {
    job.script_path = absolute_path(file(name));
    write_file_atomically(file(name), verify_script(job, system), Durability::synced,
                          readers_of(training_command));
  };
  write(file_name::verify_slurm, BatchSystem::slurm);
  write(file_name::verify_pbs, BatchSystem::pbs);
}

void ResultsFolder::write_summary(const Answer& answer) {
  write_file_atomically(file(file_name::table), results_csv(answer));
  write_file_atomically(file(file_name::page), report_html(answer, environment_));
  write_file_atomically(
      file(file_name::summary),
      printable_lines(headline_text(answer, results_dir_) + "\n" + summary_text(answer)));
}

void ResultsFolder::write_environment(const json::Value& environment) {
  write_file_atomically(file(file_name::environment), indented(environment));
  environment_ = environment;
}

void ResultsFolder::write_validation(const Answer& answer) {
  write_file_atomically(file(file_name::validation), json_text(validation_json(answer)) + "\n");
}

void ResultsFolder::forget_exit_status() {
  has_written_exit_status_ = false;
  const std::string path = file(file_name::exit_status);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw IoError(
        fmt::format("can not remove {}: {}", path, std::generic_category().message(errno)));
}

void ResultsFolder::write_exit_status(ExitCode code, const std::string& reason) {
  if (was_ended_by_others()) return;
  write_file_atomically(file(file_name::exit_status), exit_status_text(code, reason));
  has_written_exit_status_ = true;
}

std::string ResultsFolder::exit_status_path() const {
  return absolute_path(file(file_name::exit_status));
}

bool ResultsFolder::was_ended_by_others() const {
  return !has_written_exit_status_ && ::access(file(file_name::exit_status).c_str(), F_OK) == 0;
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
    return ::fsync(file.value()) == 0 && is_whole;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace dstune
