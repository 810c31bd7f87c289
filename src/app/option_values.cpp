#include "option_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

std::vector<std::string> OptionValues::all(const char* name) const {
  return has(name) ? map_[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

std::optional<std::string> OptionValues::text(const char* name) const {
  if (!has(name)) return std::nullopt;
  return map_[name].as<std::string>();
}

std::optional<Version> OptionValues::version(const char* name) const {
  const std::optional<std::string> words = text(name);
  if (!words) return std::nullopt;
  const std::optional<Version> value = parse_version(*words);
  if (!value) refuse(name, "expected a version such as 0.19.8");
  return value;
}

std::optional<double> OptionValues::duration_s(const char* name) const {
  const std::optional<std::string> words = text(name);
  if (!words) return std::nullopt;
  const std::optional<double> value = parse_duration_s(*words);
  if (!value) refuse(name, "expected a duration such as 90s, 10m, 1.5h or 1:30:00");
  return value;
}

std::optional<std::int64_t> OptionValues::bytes(const char* name) const {
  const std::optional<std::string> words = text(name);
  if (!words) return std::nullopt;
  const std::optional<std::int64_t> value = parse_bytes(*words);
  if (!value || *value <= 0) refuse(name, "expected an amount of memory such as 1TiB");
  return value;
}

std::optional<std::string> OptionValues::folder(const char* name) const {
  const std::optional<std::string> path = text(name);
  if (path && path->empty()) refuse(name, "expected the name of a folder");
  return path;
}

void OptionValues::refuse(const char* name, const std::string& why) const {
  throw UsageError(fmt::format("--{} {}: {}", name, map_[name].as<std::string>(), why));
}

std::optional<std::int64_t> OptionValues::integer(const char* name, std::int64_t low,
                                                  std::int64_t high) const {
  const std::optional<std::string> digits = text(name);
  if (!digits) return std::nullopt;
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(*digits, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != digits->size() || value < low || value > high)
    refuse(name, fmt::format("expected a whole number from {} to {}", low, high));
  return value;
}

void OptionValues::refuse_word(const char* name, const std::string& word,
                               const std::vector<std::string_view>& known) const {
  refuse(name,
         fmt::format("use one of {}{}", fmt::join(known, ", "), json::suggestion(word, known)));
}

}  // namespace dstune
