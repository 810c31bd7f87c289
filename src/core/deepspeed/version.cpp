#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

Version known_release(Version version) {
  const auto* const newer = std::ranges::upper_bound(known_releases, version);
  return newer == known_releases.begin() ? oldest_release : *(newer - 1);
}

Version known_release_before(Version release) {
  const auto* const found = std::ranges::lower_bound(known_releases, release);
  return found == known_releases.begin() ? oldest_release : *(found - 1);
}

bool is_unsure(Version version, Version change) {
  const auto* const newer = std::ranges::upper_bound(known_releases, version);
  return version != known_release(version) && newer != known_releases.end() && change == *newer;
}

std::string to_text(Version version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

std::optional<Version> parse_version(std::string_view text) {
  std::array<int, 3> numbers{};
  std::size_t count = 0;
  for (; count < numbers.size(); ++count) {
    if (count > 0 && !text.starts_with('.')) break;
    if (count > 0) text.remove_prefix(1);
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), numbers.at(count));
    if (error != std::errc() || numbers.at(count) < 0) break;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  const bool ends_well =
      text.empty() || std::string_view("+.-abcrd").find(text.front()) != text.npos;
  if (count < 2 || !ends_well) return std::nullopt;
  return Version{numbers[0], numbers[1], numbers[2]};
}

}  // namespace dstune
