#pragma once
/// Reading the members of a section into fields: a key that is absent or null leaves the field as
/// it is. Local.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "dstune/base/json.hpp"

namespace dstune {

/// The member, unless it is absent or null.
inline std::optional<json::Node> given(const json::Node& section, const std::string& key) {
  auto node = section.find(key);
  if (node && node->is_null()) node.reset();
  return node;
}

template <class Field>
void read_integer(const json::Node& section, const std::string& key, Field& field,
                  json::Problems& problems, std::int64_t low,
                  std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
  if (const auto node = given(section, key)) {
    if (const auto value = node->integer(problems, low, high)) {
      if constexpr (requires { typename Field::value_type; }) {
        field = static_cast<typename Field::value_type>(*value);
      } else {
        field = static_cast<Field>(*value);
      }
    }
  }
}

inline void read_boolean(const json::Node& section, const std::string& key, bool& field,
                         json::Problems& problems) {
  if (const auto node = given(section, key)) {
    if (const auto value = node->boolean(problems)) field = *value;
  }
}

/// A text that is not empty.
inline std::optional<std::string> read_text(const json::Node& section, const std::string& key,
                                            json::Problems& problems) {
  const auto node = given(section, key);
  if (!node) return std::nullopt;
  auto value = node->string(problems);
  if (value && value->empty()) {
    problems.add(node->problem("expected a text that is not empty"));
    return std::nullopt;
  }
  return value;
}

}  // namespace dstune
