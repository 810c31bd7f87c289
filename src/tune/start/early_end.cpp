#include "start/early_end.hpp"

#include <exception>
#include <filesystem>
#include <optional>
#include <string>

#include "dstune/core/job.hpp"
#include "dstune/report/results.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;

std::string path_beside(const std::string& space_path, const std::string& path) {
  return (fs::path(space_path).parent_path() / path).lexically_normal().string();
}

/// Files that a value names, in it and in all that it holds.
void add_texts(const json::Value& value, const std::string& space_path, InputFiles& inputs) {
  if (value.is_structured())
    for (const json::Value& inside : value) add_texts(inside, space_path, inputs);
  if (!value.is_string()) return;
  const auto& text = value.get_ref<const std::string&>();
  std::error_code cause;
  // A folder that it names may be that of the results.
  if (text.empty() || text.size() > 4096) return;
  for (const std::string& path : {path_beside(space_path, text), text})
    if (fs::is_regular_file(path, cause)) inputs.add(path);
}

std::optional<json::Document> try_to_read(const std::string& path) {
  if (path.empty()) return std::nullopt;
  try {
    return json::Document::read(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// A member of its section `autotuning` that is a text.
std::optional<std::string> named_in(const std::optional<json::Document>& space, const char* key) {
  if (!space || !space->root().is_object()) return std::nullopt;
  const auto section = space->root().find("autotuning");
  if (section == space->root().end() || !section->is_object()) return std::nullopt;
  const auto found = section->find(key);
  if (found == section->end() || !found->is_string()) return std::nullopt;
  return path_beside(space->file(), found->get<std::string>());
}

}  // namespace

FolderNames asked_folders(const JobOptions& options) {
  const TuningOptions defaults;
  const Overrides& given = options.overrides;
  std::optional<json::Document> space;
  if (!given.results_dir || !given.exps_dir) space = try_to_read(options.space_path);
  const auto results = given.results_dir ? given.results_dir : named_in(space, "results_dir");
  const auto exps = given.exps_dir ? given.exps_dir : named_in(space, "exps_dir");
  // Configurations for DeepSpeed write its defaults out.
  return {
      .results_dir = results.value_or(defaults.results_dir),
      .exps_dir = exps.value_or(defaults.exps_dir),
      .is_results_default = !given.results_dir && (!results || *results == defaults.results_dir),
      .is_exps_default = !given.exps_dir && (!exps || *exps == defaults.exps_dir)};
}

InputFiles input_files(const JobOptions& options, const json::Document& space) {
  InputFiles inputs;
  inputs.add(options.space_path);
  for (const auto& path : options.calibration_files) inputs.add(path);
  for (const auto& path : options.overrides.experiment_files) inputs.add(path);
  for (const auto& path : {options.hostfile, options.import_dir, options.overrides.model,
                           options.overrides.verify_script})
    if (path) inputs.add(*path);
  add_texts(space.root(), options.space_path, inputs);
  return inputs;
}

void write_early_end(const JobOptions& options, ExitCode code, const std::string& reason,
                     bool makes_folder) noexcept {
  try {
    if (options.dry_run) return;
    const auto space = try_to_read(options.space_path);
    InputFiles inputs;
    inputs.add(options.space_path);
    if (space) inputs = input_files(options, *space);
    create_early_exit_status(asked_folders(options), inputs, code, reason, makes_folder);
  } catch (const std::exception&) {
    // The message has been said; there is nowhere to write it.
  }
}

}  // namespace dstune
