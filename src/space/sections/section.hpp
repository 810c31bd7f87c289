#pragma once
/// A key that is null is absent. Local.

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

}  // namespace dstune
