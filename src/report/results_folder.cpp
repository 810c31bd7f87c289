#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/file.hpp"
#include "dstune/base/units.hpp"
#include "dstune/report/launch_line.hpp"
#include "dstune/report/memory_picture.hpp"
#include "dstune/report/results.hpp"
#include "dstune/report/verify_script.hpp"
#include "file_names.hpp"

namespace dstune {

namespace {

/// One line, as DeepSpeed writes its files. Text that is not UTF-8 is repaired, never a crash.
std::string json_line(const json::Value& value) {
  return value.dump(-1, ' ', false, json::Value::error_handler_t::replace) + "\n";
}

/// For files that people open.
std::string indented(const json::Value& value) {
  return value.dump(2, ' ', false, json::Value::error_handler_t::replace) + "\n";
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
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

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

std::string ResultsFolder::journal_path() const {
  return file(file_name::journal);
}

void ResultsFolder::write_experiment(const Experiment& experiment) {
  require(file_name::is_experiment_name(experiment.name), "the name is safe as a folder's");
  const std::string folder = file(experiment.name);
  // One call, and no look before it: this runs once for every experiment.
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    throw IoError(fmt::format("can not create folder {}: {}", folder,
                              std::generic_category().message(errno)));
  }
  json::Value description = {{"name", experiment.name},
                             {"ds_config", experiment.ds_config},
                             {"num_gpus", experiment.shape.num_gpus},
                             {"num_nodes", experiment.shape.num_nodes},
                             {"hostfile", nullptr}};
  write_file_atomically(fmt::format("{}/{}.json", exps_dir_, experiment.name),
                        json_line(description), Durability::rename_only);

  const std::string config_path = fmt::format("{}/{}", folder, file_name::config);
  write_file_atomically(config_path, json_line(experiment.ds_config), Durability::rename_only);
  description["result_dir"] = folder;
  description["ds_config_path"] = config_path;
  description["sequence_length"] = experiment.config.sequence_length;
  description["recompute"] = to_text(experiment.config.recompute);
  description["written_by"] = file_name::writer;
  write_file_atomically(fmt::format("{}/{}", folder, file_name::experiment), json_line(description),
                        Durability::rename_only);
}

void ResultsFolder::write_metrics(const Record& record, Metric metric) {
  const std::string& name = record.experiment.name;
  require(file_name::is_experiment_name(name), "the name is safe as a folder's");
  write_file_atomically(fmt::format("{}/{}/{}", results_dir_, name, file_name::metrics),
                        json_line(metrics_json(record, metric)), Durability::rename_only);
}

void ResultsFolder::write_memory(const std::string& name, const MemoryTimeline& timeline) {
  require(file_name::is_experiment_name(name), "the name is safe as a folder's");
  const std::string folder = file(name);
  write_file_atomically(fmt::format("{}/{}", folder, file_name::memory_picture),
                        memory_svg(timeline, name), Durability::rename_only);
  write_file_atomically(fmt::format("{}/{}", folder, file_name::memory_text),
                        memory_text(timeline, 0), Durability::rename_only);
}

void ResultsFolder::write_optimal(
    const Recommendation& recommendation, const std::optional<std::string>& training_command,
    const std::vector<std::pair<std::string, std::string>>& arg_mappings) {
  const Experiment& experiment = recommendation.standing.row->record->experiment;
  const json::Value ds_config = without_tuning(experiment.ds_config);
  const std::string config_path = file(file_name::optimal_config);
  const std::string shown_path = absolute_path(config_path);
  const std::string command =
      training_command
          ? launch_line(*training_command, shown_path, ds_config, experiment.shape, arg_mappings)
          : placeholder_launch_line(shown_path, experiment.shape);
  write_file_atomically(config_path, indented(ds_config));
  write_file_atomically(file(file_name::optimal_command), command + "\n");
  write_file_atomically(file(file_name::optimal), indented(optimal_json(recommendation, command)));
}

void ResultsFolder::write_verification(
    const Recommendation& recommendation, const std::optional<std::string>& training_command,
    const std::vector<std::pair<std::string, std::string>>& arg_mappings) {
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
    write_file_atomically(file(name), verify_script(job, system));
  };
  write(file_name::verify_slurm, BatchSystem::slurm);
  write(file_name::verify_pbs, BatchSystem::pbs);
}

void ResultsFolder::write_summary(const Answer& answer) {
  write_file_atomically(file(file_name::table), results_csv(answer));
  write_file_atomically(file(file_name::page), report_html(answer, environment_));
  write_file_atomically(file(file_name::summary), summary_text(answer));
}

void ResultsFolder::write_environment(const json::Value& environment) {
  write_file_atomically(file(file_name::environment), indented(environment));
  environment_ = environment;
}

void ResultsFolder::write_validation(const Answer& answer) {
  write_file_atomically(file(file_name::validation), json_line(validation_json(answer)));
}

void ResultsFolder::forget_exit_status() {
  const std::string path = file(file_name::exit_status);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw IoError(
        fmt::format("can not remove {}: {}", path, std::generic_category().message(errno)));
}

void ResultsFolder::write_exit_status(ExitCode code, const std::string& reason) {
  write_file_atomically(file(file_name::exit_status),
                        indented({{"exit_code", static_cast<int>(code)},
                                  {"reason", reason},
                                  {"finished_at", format_time(std::chrono::system_clock::now())}}));
}

}  // namespace dstune
