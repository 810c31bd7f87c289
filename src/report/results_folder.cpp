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
#include "dstune/report/numerics.hpp"
#include "dstune/report/results.hpp"
#include "dstune/report/validation.hpp"
#include "dstune/report/verify_script.hpp"
#include "file_names.hpp"
#include "journal/record_json.hpp"
#include "results_csv.hpp"
#include "row.hpp"

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

json::Value verified_json(const Row& row, Metric metric) {
  const auto value = verified_value(row, metric);
  if (!value) return nullptr;
  return {{"value", finite_or_null(value->value)},
          {"ci_low", finite_or_null(value->ci_low)},
          {"ci_high", finite_or_null(value->ci_high)},
          {"peak_memory_bytes", row.verified->peak_memory.total_bytes}};
}

json::Value calibration_json(const Report& report) {
  if (!report.calibration) return nullptr;
  const TimeCalibration& fit = *report.calibration;
  json::Value runs = json::Value::array();
  for (const OwnRun& run : report.own_runs) {
    const Row& row = report.rows[run.row];
    const auto latency_us = row.record ? value_in(*row.record, Metric::latency) : std::nullopt;
    if (!latency_us) continue;
    const double measured_s = latency_us->value * 1e-6;
    runs.push_back({{"name", row.planned.experiment.name},
                    {"path", run.path},
                    {"step_s", run.step_s},
                    {"measured_s", measured_s},
                    {"fitted_s", fit.target_s(measured_s, row.overheads)}});
  }
  json::Value costs_s = json::Value::object();
  for (std::size_t each = 0; each < fit.costs_s.size(); ++each)
    costs_s[std::string(to_text(static_cast<Overhead>(each)))] = fit.costs_s[each];
  return {{"scale", fit.scale},
          {"costs_s", std::move(costs_s)},
          {"memory_offset_bytes", report.memory_offset_bytes},
          {"runs", std::move(runs)}};
}

json::Value optimal_json(const Row& answer, const Report& report, const std::string& command) {
  const Record& best = *answer.record;
  const auto value = reported_value(report, answer);
  require(value.has_value(), "the best experiment has a value");
  const GroupShape& shape = best.experiment.shape;
  json::Value out = {
      {"name", best.experiment.name},
      {"metric", to_text(report.metric)},
      {"value", finite_or_null(value->value)},
      {"ci_low", finite_or_null(value->ci_low)},
      {"ci_high", finite_or_null(value->ci_high)},
      {"num_gpus", shape.size()},
      {"num_gpus_per_node", shape.num_gpus},
      {"num_nodes", shape.num_nodes},
      {"sequence_length", best.experiment.config.sequence_length},
      {"recompute", to_text(best.experiment.config.recompute)},
      {"label", label_of(report, answer)},
      {"changed_numerics", changed_numerics(best.experiment)},
      {"probability_best", chance_of_best(report, answer)},
      {"chance_of_better",
       report.chance_of_better ? json::Value(*report.chance_of_better) : json::Value()},
      {"verified", verified_json(answer, report.metric)},
      {"calibration", calibration_json(report)},
      {"command", command}};
  if (const std::string& why = best.measurement.not_comparable; !why.empty())
    out["not_comparable"] = why;
  return out;
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
    const Row& answer, const Report& report, const std::optional<std::string>& training_command,
    const std::vector<std::pair<std::string, std::string>>& arg_mappings) {
  require(answer.record.has_value(), "the answer was measured");
  const Experiment& experiment = answer.record->experiment;
  const json::Value ds_config = without_tuning(experiment.ds_config);
  const std::string config_path = file(file_name::optimal_config);
  const std::string shown_path = absolute_path(config_path);
  const std::string command =
      training_command
          ? launch_line(*training_command, shown_path, ds_config, experiment.shape, arg_mappings)
          : placeholder_launch_line(shown_path, experiment.shape);
  write_file_atomically(config_path, indented(ds_config));
  write_file_atomically(file(file_name::optimal_command), command + "\n");
  write_file_atomically(file(file_name::optimal), indented(optimal_json(answer, report, command)));
}

void ResultsFolder::write_verification(
    const Report& report, const std::optional<std::string>& training_command,
    const std::vector<std::pair<std::string, std::string>>& arg_mappings) {
  constexpr std::size_t num_finalists = 3;
  VerificationJob job;
  bool has_own = false;
  for (const std::size_t index : best_rows(report, num_finalists)) {
    const bool is_own = index == report.own_row;
    has_own = has_own || is_own;
    job.runs.push_back({&report.rows[index].planned.experiment,
                        fmt::format("Number {} of what was measured{}.", job.runs.size() + 1,
                                    is_own ? ", and your own configuration" : "")});
  }
  if (job.runs.empty()) return;
  if (report.own_row && !has_own)
    job.runs.push_back({&report.rows[*report.own_row].planned.experiment,
                        "Your own configuration: the first candidate of every list."});
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

void ResultsFolder::write_summary(const Report& report) {
  write_file_atomically(file(file_name::table), results_csv(report));
  write_file_atomically(file(file_name::page), report_html(report, environment_));
  write_file_atomically(file(file_name::summary), summary_text(report));
}

void ResultsFolder::write_environment(const json::Value& environment) {
  write_file_atomically(file(file_name::environment), indented(environment));
  environment_ = environment;
}

void ResultsFolder::write_validation(const Report& report) {
  write_file_atomically(file(file_name::validation), json_line(validation_json(report)));
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
