#include "sections/model.hpp"

#include <filesystem>

#include <fmt/format.h>

namespace dstune {

namespace {

std::optional<ModelSpec> read_model_file(const std::string& path, SectionTarget& target) {
  json::Problems& problems = *target.problems;
  JobSpec& job = *target.job;
  const bool is_engine = !job.has_own_step() && job.is_by_engine();
  try {
    if (WorkloadSpec* const engine = job.engine())
      engine->model_config = read_file(path, max_input_bytes);
    const json::Document config = json::Document::read(path);
    target.model_precision = huggingface_precision(config);
    return import_huggingface(config);
  } catch (const InputError& error) {
    // Python reads it, whatever is planned here.
    if (is_engine && !job.engine()->model_config.empty()) {
      job.warnings.push_back(fmt::format("nothing is predicted: {}", error.what()));
    } else {
      add_all(error, problems);
    }
    return std::nullopt;
  } catch (const IoError& error) {
    problems.add({path, "", 0, error.what()});
    return std::nullopt;
  }
}

/// A file where there is one or where the name looks like one, else a preset.
bool names_a_file(const std::string& name, const std::string& path) {
  std::error_code ignored;
  return name.ends_with(".json") || std::filesystem::is_regular_file(path, ignored);
}

/// `place`: where the document names it.
std::optional<ModelSpec> read_named_model(const std::string& name, const std::string& path,
                                          const json::Node* place, SectionTarget& target) {
  json::Problems& problems = *target.problems;
  if (names_a_file(name, path)) return read_model_file(path, target);
  try {
    return preset(name);
  } catch (const InputError& error) {
    for (const auto& problem : error.problems())
      problems.add(place != nullptr ? place->problem(problem.message) : problem);
    return std::nullopt;
  }
}

/// The object without keys that are null, which stand for their defaults.
json::Value without_nulls(const json::Value& object) {
  json::Value kept = json::Value::object();
  for (const auto& [key, value] : object.items())
    if (!value.is_null()) kept[key] = value;
  // The family is a word: read in any case of letters.
  if (kept.contains("family")) kept["family"] = lower_case(kept["family"].get<std::string>());
  return kept;
}

/// The model that the command line (a file's or preset's name) or `dstune.model` names; nothing
/// where neither does or where it can not be read.
std::optional<ModelSpec> find_model(const std::optional<std::string>& override_name,
                                    SectionTarget& target) {
  const std::optional<json::Node>& node = target.model;
  const std::string& folder = target.job->folder;
  if (override_name) return read_named_model(*override_name, *override_name, nullptr, target);
  if (!node) return std::nullopt;
  if (node->is_string()) {
    const auto name = node->value().get<std::string>();
    return read_named_model(name, path_from(folder, name), &*node, target);
  }
  if (const auto path = node->find("hf_config"))
    return read_model_file(path_from(folder, path->value().get<std::string>()), target);
  const json::Value written = without_nulls(node->value());
  return read_model(json::Node(node->document(), written, node->pointer()), *target.problems);
}

}  // namespace

void decide_model(const Overrides& overrides, const json::Node& root, const json::Node* section,
                  SectionTarget& target) {
  JobSpec& job = *target.job;
  json::Problems& problems = *target.problems;
  const bool is_named = overrides.model || (section != nullptr && given(*section, "model"));
  if (const auto model = find_model(overrides.model, target)) {
    job.model = *model;
    job.is_model_known = true;
  } else if (!is_named && job.has_own_step()) {
    problems.add((section != nullptr ? *section : root)
                     .problem("no model is given: use --model FILE|NAME, or dstune.model"));
  } else if (!is_named || job.is_by_engine()) {
    // No step of ours is run; predictions need some model.
    job.model = preset("gpt2");
  }
}

}  // namespace dstune
