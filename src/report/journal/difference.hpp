#pragma once
/// The difference of a JSON value from another one: exact, down to the order of keys and to how
/// numbers are written. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune {

struct Difference {
  /// JSON pointers and the values there. Members that the other value lacks come behind its own.
  json::Value changes = json::Value::object();
  std::vector<std::string> without;  ///< pointers of what is not there
};

/// The changes that turn `base` into `value`. Lists differ as a whole.
[[nodiscard]] Difference difference_of(const json::Value& base, const json::Value& value);
/// Returns `base` as the difference changes it; nothing where a pointer leads nowhere.
[[nodiscard]] std::optional<json::Value> restored_from(const json::Value& base,
                                                       const Difference& difference);

}  // namespace dstune
