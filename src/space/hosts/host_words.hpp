#pragma once
/// The letters of hostfiles and of --include. Local.

#include <string_view>

namespace dstune {

[[nodiscard]] constexpr bool is_blank(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\f' || letter == '\v';
}

/// Whether this can be a host's name or address.
[[nodiscard]] bool is_host_name(std::string_view text);

}  // namespace dstune
