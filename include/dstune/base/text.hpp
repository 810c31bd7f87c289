#pragma once
/// Texts: their parts, quantities as people write and read them, and the texts of enumerations.
/// Parsers return nothing for what they can not read. Local.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dstune {

/// Without such letters at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text, std::string_view letters = " \t\r\n");
/// Replaces A to Z by a to z; other letters stay.
[[nodiscard]] std::string lower_case(std::string_view text);
/// The parts between separators, empty ones among them: one more than there are separators.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);
/// The lines of a text: what stands behind its last line end counts where there is any.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);

/// Length of the UTF-8 sequence at the front of a text that is not empty, 0 where there is none
/// (RFC 3629) or a zero byte.
[[nodiscard]] std::size_t utf8_length(std::string_view text);
/// A text as a terminal may show it: control characters (C0, DEL, C1) and bytes that are no UTF-8
/// become "\x1B", line ends "\n". A name of a key or a file can not move the cursor then.
[[nodiscard]] std::string printable(std::string_view text);
/// Likewise of several lines, whose ends stay.
[[nodiscard]] std::string printable_lines(std::string_view text);

/// "64GiB", "16GB" (powers of 1000), "512 MiB", "64G" (as GiB), "1024" (bytes); any case.
std::optional<std::int64_t> parse_bytes(std::string_view text);
/// "90", "90s", "10m", "1.5h", "1h30m", "2d", "500 ms", and Slurm's "1:30:00", "90:00" (minutes and
/// seconds), "2-00:00:00" (days): seconds.
std::optional<double> parse_duration_s(std::string_view text);
/// "1.50 GiB": three significant digits, binary units.
std::string format_bytes(std::int64_t bytes);
/// "12.3 ms", "4.56 s", from a minute on "1:02:03" (hours, minutes, seconds).
std::string format_duration(double seconds);
/// Writes the value like printf's %g, with six digits.
std::string format_number(double value);
/// Three digits of a factor, and all before the point: "2.26", "1018".
std::string format_factor(double factor);
/// "1 rank", "2 ranks".
std::string format_count(std::uint64_t count, std::string_view noun);
/// UTC, "2026-01-02T03:04:05.678901Z".
std::string format_time(std::chrono::system_clock::time_point time);
std::optional<std::chrono::system_clock::time_point> parse_time(std::string_view text);

/// A row of an enumeration's table, from which writing, reading and messages follow.
struct EnumText {
  int value = 0;
  std::string_view text;
};

/// The table of an enumeration. A function `const EnumTexts& texts_of(Enum)` beside the enumeration
/// gives it, for any argument.
struct EnumTexts {
  std::span<const EnumText> all;
  /// A reader's problem with an unknown text, which stands for {}.
  std::string_view refusal = "\"{}\" is not known to this release";
};

template <class Enum>
concept EnumWithTexts = std::is_enum_v<Enum> && requires(Enum value) {
  texts_of(value);
};

template <class Enum>
constexpr EnumText enum_text(Enum value, std::string_view text) {
  return {static_cast<int>(value), text};
}
/// The rows of enumerators that count from 0, by their texts in order.
template <std::size_t size>
constexpr std::array<EnumText, size> numbered(const std::string_view (&texts)[size]) {
  std::array<EnumText, size> rows{};
  for (std::size_t each = 0; each < size; ++each)
    rows[each] = {static_cast<int>(each), texts[each]};
  return rows;
}

/// Throws LogicError where the table has no such row.
[[nodiscard]] std::string_view find_text(const EnumTexts& texts, int value);
[[nodiscard]] std::optional<int> find_value(const EnumTexts& texts, std::string_view text);

template <EnumWithTexts Enum>
[[nodiscard]] std::string_view to_text(Enum value) {
  return find_text(texts_of(value), static_cast<int>(value));
}
/// Nothing where no enumerator has this text.
template <EnumWithTexts Enum>
[[nodiscard]] std::optional<Enum> from_text(std::string_view text) {
  const std::optional<int> value = find_value(texts_of(Enum{}), text);
  if (!value) return std::nullopt;
  return static_cast<Enum>(*value);
}

}  // namespace dstune
