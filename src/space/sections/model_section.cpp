#include <filesystem>

#include "sections/sections.hpp"

namespace dstune {

namespace {

void add_all(const InputError& error, json::Problems& problems) {
  for (const auto& problem : error.problems()) problems.add(problem);
}

std::optional<ModelSpec> read_model_file(const std::string& path, json::Problems& problems) {
  try {
    return import_huggingface(json::Document::read(path));
  } catch (const InputError& error) {
    add_all(error, problems);
    return std::nullopt;
  }
}

/// A file where there is one or where the name looks like one, else a preset.
bool names_a_file(const std::string& name, const std::string& path) {
  std::error_code ignored;
  return name.ends_with(".json") || std::filesystem::is_regular_file(path, ignored);
}

std::optional<ModelSpec> read_preset(const std::string& name, const json::Node* place,
                                     json::Problems& problems) {
  try {
    return preset(name);
  } catch (const InputError& error) {
    for (const auto& problem : error.problems()) {
      problems.add(place ? place->problem(problem.message) : problem);
    }
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

}  // namespace

std::optional<ModelSpec> find_model(const std::optional<std::string>& override_name,
                                    const std::optional<json::Node>& node,
                                    const std::string& folder, json::Problems& problems) {
  if (override_name) {
    if (names_a_file(*override_name, *override_name)) {
      return read_model_file(*override_name, problems);
    }
    return read_preset(*override_name, nullptr, problems);
  }
  if (!node) return std::nullopt;
  if (node->is_string()) {
    const auto name = node->value().get<std::string>();
    const auto path = path_from(folder, name);
    if (names_a_file(name, path)) return read_model_file(path, problems);
    return read_preset(name, &*node, problems);
  }
  if (const auto path = node->find("hf_config"))
    return read_model_file(path_from(folder, path->value().get<std::string>()), problems);
  const json::Value written = without_nulls(node->value());
  return read_model(json::Node(node->document(), written, node->pointer()), problems);
}

}  // namespace dstune
