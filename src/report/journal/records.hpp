#pragma once
/// How the journal keeps what all records of a space share: once. Local.

#include <optional>
#include <string_view>

#include "dstune/base/json.hpp"

namespace dstune {

/// The event that records differ from, until the next one.
inline constexpr std::string_view base_kind = "base";
/// The event of all members that will not run. Nothing follows from it.
inline constexpr std::string_view not_planned_kind = "not_planned";

/// Tells whether the event has a record by its difference from a base.
[[nodiscard]] bool is_difference(const json::Value& finished);
/// Returns the event as event::finished(key, record) writes it; nothing where it does not fit
/// `base`, the last event of that kind before it (null: none was).
[[nodiscard]] std::optional<json::Value> whole_record(const json::Value& finished,
                                                      const json::Value& base);

}  // namespace dstune
