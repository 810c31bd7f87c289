#pragma once
/// The keys in which the members of a space differ, and each member's value of them. The page and
/// results.csv show them. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/ranking/answer.hpp"

namespace dstune {

/// A key of the DeepSpeed config, or a dimension that DeepSpeed lacks, with the values that occur.
struct SearchedKey {
  std::string pointer;      ///< JSON pointer in the DeepSpeed config; empty for a dimension
  std::string label;        ///< "zero_optimization.stage"; "num_gpus"
  bool is_config = true;    ///< of the DeepSpeed config
  bool is_derived = false;  ///< its value follows from other keys
  std::vector<json::Value> values{};  ///< in the order of their first members
  /// The place in `values` of each member's value; absent: the member lacks the key.
  std::vector<std::int32_t> value_of{};
  static constexpr std::int32_t absent = -1;

  /// The value of a member; null: it lacks the key.
  [[nodiscard]] const json::Value* find(std::size_t member) const {
    const std::int32_t place = value_of[member];
    return place == absent ? nullptr : &values[static_cast<std::size_t>(place)];
  }
};

struct SearchedKeys {
  /// Those that are searched in the order of the space, then dimensions, then what is derived.
  std::vector<SearchedKey> keys;
  json::Value common_config;  ///< all that the members' DeepSpeed configs share
};

/// Takes milliseconds for a thousand members.
[[nodiscard]] SearchedKeys searched_keys(const Answer& answer);

}  // namespace dstune
