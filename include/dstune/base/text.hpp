#pragma once
/// Small things done to texts. Local.

#include <string>
#include <string_view>
#include <vector>

namespace dstune {

inline constexpr std::string_view white_space = " \t\r\n";

/// Without such letters at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text,
                                       std::string_view letters = white_space);

/// With a to z for A to Z; other letters stay.
[[nodiscard]] std::string lower_case(std::string_view text);

/// The parts between separators, empty ones among them: one more than there are separators.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

/// The lines of a text: what stands behind its last line end counts where there is any.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace dstune
