#include "dstune/core/accelerate_values.hpp"

#include <array>
#include <string_view>

namespace dstune {

namespace {

/// DeepSpeedPlugin._deepspeed_config_checks(); `mixed_precision` stands beside `deepspeed_config`.
constexpr std::array<std::string_view, 8> refused_inline{
    "gradient_accumulation_steps", "gradient_clipping",     "zero_stage",
    "offload_optimizer_device",    "offload_param_device",  "offload_param_nvme_path",
    "offload_optimizer_nvme_path", "zero3_save_16bit_model"};

const json::Value* find(const json::Value& values, const std::string& key) {
  if (!values.is_object()) return nullptr;
  const auto found = values.find(key);
  return found == values.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

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
