#pragma once
/// Lines of 100 columns for help and references. Local.

#include <cstddef>
#include <string>
#include <string_view>

namespace dstune {

inline constexpr std::size_t line_columns = 100;

/// Breaks a text at blanks, but not inside of quotes like these: `1`. All lines but the first begin
/// behind the indent; the first one begins in `column`.
[[nodiscard]] std::string wrapped_text(std::string_view text, std::size_t indent,
                                       std::size_t column);
[[nodiscard]] inline std::string wrapped_text(std::string_view text, std::size_t indent) {
  return wrapped_text(text, indent, indent);
}

}  // namespace dstune
