#pragma once
/// One value of a config, read by its row of the table. Local.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/knobs.hpp"

namespace dstune {

/// Null and "auto", where the row takes them.
[[nodiscard]] bool stands_for_default(const json::Node& node, const Knob& knob);

/// The value at `node` as the row wants it, or nothing after adding a problem. Objects and lists
/// give monostate, lists of texts a text with a line for each. Members of models (is_converted) are
/// converted as DeepSpeed converts them: "yes" to true, "5" to 5.
std::optional<KnobValue> read_knob(const json::Node& node, const Knob& knob,
                                   json::Problems& problems);

/// The words that a row's `choices` lists.
[[nodiscard]] std::vector<std::string_view> choices_of(std::string_view choices);
/// The one of them that `word` is, in capitals too where `any_case`, as it is listed.
[[nodiscard]] std::optional<std::string_view> find_choice(std::string_view choices,
                                                          std::string_view word, bool any_case);

[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace dstune
