#pragma once
/// Texts as a terminal shows them: how many columns they take, and what of them fits. Local.

#include <cstddef>
#include <string>
#include <string_view>

namespace dstune {

/// Columns of a text in UTF-8 without control characters. Combining marks take none, East Asian
/// letters and pictures two.
[[nodiscard]] std::size_t num_columns(std::string_view text);

/// The text, or as much of its beginning as fits, with "…" behind it. It is never cut inside a
/// character.
[[nodiscard]] std::string cut_to_columns(std::string_view text, std::size_t max_columns);

}  // namespace dstune
