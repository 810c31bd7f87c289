#pragma once
/// Releases of DeepSpeed: what differs between them is known of some. Local.

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace dstune {

/// A release of DeepSpeed.
struct Version {
  int major = 0, minor = 0, patch = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the generated 0 for a pointer.
  auto operator<=>(const Version&) const = default;
};

/// The releases that were compared. A key's `since` is the first of these that knows it.
inline constexpr std::array known_releases = {
    Version{0, 14, 5}, Version{0, 15, 4}, Version{0, 16, 9}, Version{0, 17, 6}, Version{0, 18, 9},
    Version{0, 19, 0}, Version{0, 19, 6}, Version{0, 19, 7}, Version{0, 19, 8}};
inline constexpr Version oldest_release = known_releases.front();
inline constexpr Version newest_release = known_releases.back();
/// The one whose keys and defaults the program had before it knew of others.
inline constexpr Version release_of_old_journals{0, 19, 6};

/// The newest known release that is not newer; the oldest where all are.
[[nodiscard]] Version known_release(Version version);
/// The newest known release that is older; the oldest where none is.
[[nodiscard]] Version known_release_before(Version release);
/// Tells whether `version` is no known release, and `change` the next known one, whose changes it
/// may or may not have.
[[nodiscard]] bool is_unsure(Version version, Version change);

/// "0.19.8"
[[nodiscard]] std::string to_text(Version version);
/// Reads the three numbers of "0.19.8", "0.19.8+cafe" or "0.19.9rc1"; "0.19" is 0.19.0.
[[nodiscard]] std::optional<Version> parse_version(std::string_view text);

}  // namespace dstune
