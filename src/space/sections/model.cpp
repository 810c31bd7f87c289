#include "sections/model.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace dstune {

namespace {

namespace fs = std::filesystem;

constexpr const char* config_name = "config.json";

/// A problem of the place in the document that names a model, else of the command line.
Problem problem_at(const json::Node* place, std::string message) {
  return place != nullptr ? place->problem(std::move(message))
                          : Problem{"--model", "", 0, std::move(message)};
}

/// `named`: a config.json, or a folder with one.
std::optional<ModelSpec> read_model_file(const std::string& named, const json::Node* place,
                                         SectionTarget& target) {
  json::Problems& problems = *target.problems;
  std::error_code ignored;
  const bool is_folder = fs::is_directory(named, ignored);
  const std::string path = is_folder ? (fs::path(named) / config_name).string() : named;
  if (is_folder && !fs::exists(path, ignored)) {
    problems.add(problem_at(
        place, fmt::format("the folder {} has no {}: name the one of a Hugging Face model", named,
                           config_name)));
    return std::nullopt;
  }
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
    problems.add(problem_at(place, error.what()));
    return std::nullopt;
  }
}

/// A file or a folder where there is one or where the name looks like one.
bool names_a_file(const std::string& name, const std::string& path) {
  std::error_code ignored;
  return name.ends_with(".json") || name.ends_with('/') || name.starts_with('/') ||
         name.starts_with("./") || name.starts_with("../") || std::ranges::count(name, '/') > 1 ||
         fs::exists(path, ignored);
}

/// Tells whether a name can be one of Hugging Face's hub: "owner/model".
bool is_hub_name(std::string_view name) {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const std::size_t slash = name.find('/');
  if (slash == name.npos) return false;
  const auto is_word = [&](std::string_view word) {
    return !word.empty() && word.front() != '.' && word.front() != '-' &&
           word.find_first_not_of(letters) == word.npos;
  };
  return is_word(name.substr(0, slash)) && is_word(name.substr(slash + 1));
}

/// The way from a name of the hub to a file.
std::string download_hint(const std::string& name) {
  const std::string model = name.substr(name.find('/') + 1);
  const std::vector<std::string_view> known = preset_names();
  const bool is_preset = std::ranges::find(known, lower_case(model)) != known.end();
  return fmt::format(
      "\"{0}\" is neither a preset nor a file. Nothing is downloaded from Hugging Face's hub here: "
      "run \"hf download {0} {1} --local-dir {2}\" (older: huggingface-cli download), and name "
      "{2}/{1}{3}",
      name, config_name, model,
      is_preset ? fmt::format("; or take the preset {}", lower_case(model)) : "");
}

/// `place`: where the document names it.
std::optional<ModelSpec> read_named_model(const std::string& name, const std::string& path,
                                          const json::Node* place, SectionTarget& target) {
  if (names_a_file(name, path)) return read_model_file(path, place, target);
  if (is_hub_name(name)) {
    target.problems->add(problem_at(place, download_hint(name)));
    return std::nullopt;
  }
  try {
    return preset(name);
  } catch (const InputError& error) {
    for (const auto& problem : error.problems())
      target.problems->add(problem_at(
          place, fmt::format("{}; any other model is named by its {}, or by the folder with it",
                             problem.message, config_name)));
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

/// The model that the command line (a file's, a folder's or a preset's name) or `dstune.model`
/// names; nothing where neither does or where it can not be read.
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
    return read_model_file(path_from(folder, path->value().get<std::string>()), &*path, target);
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
    problems.add(
        (section != nullptr ? *section : root)
            .problem("no model is given: use --model FILE|NAME, or dstune.model; a training "
                     "that DeepSpeed's engine runs needs none: \"workload\": {\"type\": "
                     "\"deepspeed\"} in dstune"));
  } else if (!is_named || job.is_by_engine()) {
    // No step of ours is run; predictions need some model.
    job.model = preset("gpt2");
  }
}

}  // namespace dstune
