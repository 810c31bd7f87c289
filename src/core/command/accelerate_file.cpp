#include "command/accelerate_file.hpp"

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/yaml.hpp"
#include "dstune/core/launch_line.hpp"

namespace dstune {

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

json::Value read_values(const std::string& path) {
  return (path.ends_with(".json") ? json::Document::read(path) : read_yaml(path)).root();
}

}  // namespace

std::string default_accelerate_file() {
  std::string cache = variable("HF_HOME");
  if (cache.empty()) {
    const std::string shared = variable("XDG_CACHE_HOME");
    cache = (shared.empty() ? variable("HOME") + "/.cache" : shared) + "/huggingface";
  }
  return cache + "/accelerate/default_config.yaml";
}

AccelerateFile accelerate_file(const GivenOptions& options, const std::string& folder) {
  AccelerateFile file;
  std::error_code ignored;
  if (const GivenOption* given = options.find("--config_file")) {
    file.path = given->value;
    if (is_variable(file.path)) {
      file.problem = fmt::format("--config_file is {}: write the file's path", file.path);
      return file;
    }
    file.path = path_in_command(folder, file.path);
  } else if (options.find("--cpu") == nullptr &&
             std::filesystem::is_regular_file(default_accelerate_file(), ignored)) {
    file.path = default_accelerate_file();
    file.is_default = true;
  }
  if (file.path.empty()) return file;
  try {
    file.values = read_values(file.path);
    if (!file.values.is_object())
      file.problem = fmt::format("{} holds no keys: write it as accelerate config does", file.path);
  } catch (const InputError& error) {
    file.problem = error.what();
  }
  if (!file.problem.empty()) file.values = json::Value::object();
  return file;
}

}  // namespace dstune
