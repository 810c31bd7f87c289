#include "names.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include <fmt/format.h>

#include "dstune/space/search_space.hpp"

namespace dstune {

namespace {

constexpr std::string_view micro_batch_name = "train_micro_batch_size_per_gpu";
constexpr std::string_view accumulation_key = "gradient_accumulation_steps";

/// First letters of the parts between underscores.
std::string acronym(const std::string& key) {
  std::string letters;
  for (std::size_t at = 0; at < key.size(); ++at) {
    if (key[at] != '_' && (at == 0 || key[at - 1] == '_')) letters += key[at];
  }
  return letters;
}

/// As Python's str() writes it.
std::string python_text(const json::Value& value, bool is_nested = false) {
  if (value.is_null()) return "None";
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_nested ? "'" + text + "'" : text;
  }
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, element] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += "'" + key + "': ";
    text += python_text(element, true);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string value_text(const json::Value& value) {
  if (value.is_boolean()) return value.get<bool>() ? "T" : "F";
  if (value.is_number() && value.get<double>() > 9000) {
    return fmt::format("{:.1e}", value.get<double>());
  }
  return python_text(value);
}

/// "oo_", then every setting of the section whatever the keys are.
std::string offload_text(const json::Value& section, const std::string& letters, bool omit_values) {
  std::string text = letters + "_";
  if (omit_values) return text;
  if (!section.is_object()) return text + python_text(section) + "_";
  for (const auto& [key, value] : section.items()) {
    text += acronym(key) + value_text(value) + "_";
  }
  return text;
}

}  // namespace

std::string canonical_part(const std::string& key, const json::Value& value,
                           const std::vector<std::string>& keys, bool omit_values) {
  if (key == "arg_mappings") return "";
  if (key == "offload_param") return offload_text(value, "op", omit_values);
  if (key == "offload_optimizer") return offload_text(value, "oo", omit_values);
  if (value.is_object()) {
    std::string parts;
    for (const auto& [inner, member] : value.items())
      parts += canonical_part(inner, member, keys, omit_values);
    return parts;
  }
  const bool is_named = key == micro_batch_name || key == accumulation_key ||
                        std::find(keys.begin(), keys.end(), key) != keys.end();
  return is_named ? acronym(key) + (omit_values ? "" : value_text(value)) + "_" : "";
}

std::string canonical_name(const json::Value& config, const std::vector<std::string>& keys,
                           const std::string& prefix, bool omit_values) {
  std::string name = canonical_part("", config, keys, omit_values);
  if (name.empty()) return prefix + "exp";
  name.pop_back();
  return prefix + name;
}

std::string folder_safe(const std::string& name) {
  constexpr std::size_t longest = 160;
  std::string safe = name;
  for (char& c : safe) {
    const bool is_kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                         std::string_view(".+-_=").find(c) != std::string_view::npos;
    if (!is_kept) c = '-';
  }
  if (safe.size() <= longest) return safe;
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const unsigned char c : name) hash = (hash ^ c) * 1099511628211ULL;
  return fmt::format("{}_{:016x}", safe.substr(0, longest), hash);
}

}  // namespace dstune
