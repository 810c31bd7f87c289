#include "command/accelerate_file.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/yaml.hpp"
#include "dstune/core/launch_line.hpp"

namespace dstune {

namespace {

/// DeepSpeedPlugin._deepspeed_config_checks(); `mixed_precision` stands beside `deepspeed_config`.
constexpr std::array<std::string_view, 8> refused_inline{
    "gradient_accumulation_steps", "gradient_clipping",     "zero_stage",
    "offload_optimizer_device",    "offload_param_device",  "offload_param_nvme_path",
    "offload_optimizer_nvme_path", "zero3_save_16bit_model"};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const json::Value* find(const json::Value& values, const std::string& key) {
  if (!values.is_object()) return nullptr;
  const auto found = values.find(key);
  return found == values.end() || found->is_null() ? nullptr : &*found;
}

json::Value read_values(const std::string& path) {
  return path.ends_with(".json") ? json::Document::read(path).root() : read_yaml(path);
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

std::optional<std::string> accelerate_value(const json::Value& values, const std::string& key) {
  const json::Value* value = find(values, key);
  if (const json::Value* section = find(values, "deepspeed_config"); value == nullptr && section)
    value = find(*section, key);
  if (value == nullptr || value->is_structured()) return std::nullopt;
  return value->is_string() ? value->get<std::string>() : value->dump();
}

std::vector<std::string> inline_keys(const json::Value& values) {
  std::vector<std::string> keys;
  const json::Value* const section = find(values, "deepspeed_config");
  if (section == nullptr || !section->is_object()) return keys;
  for (const std::string_view key : refused_inline)
    if (section->contains(key)) keys.emplace_back(key);
  return keys;
}

}  // namespace dstune
