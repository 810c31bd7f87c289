#pragma once
/// One value of a config, read by its row of the table. Local.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/knobs.hpp"

namespace dstune {

/// Null and "auto" stand for the default.
[[nodiscard]] bool stands_for_default(const json::Node& node);

/// A scalar of a section that DeepSpeed reads by pydantic, which takes "yes" for true and "5"
/// for 5.
[[nodiscard]] bool is_read_leniently(const Knob& knob);
/// The value at `node` as the row wants it, or nothing after adding a problem. Objects and lists
/// give monostate.
std::optional<KnobValue> read_knob(const json::Node& node, const Knob& knob,
                                   json::Problems& problems);

/// The words that a row's `choices` lists.
[[nodiscard]] std::vector<std::string_view> choices_of(std::string_view choices);
/// The one of them that `word` is in any case of letters, as it is listed.
[[nodiscard]] std::optional<std::string_view> find_choice(std::string_view choices,
                                                          std::string_view word);

[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace dstune
