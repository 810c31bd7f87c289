#pragma once
/// Enumerations and their texts: one table each, from which writing, reading and messages follow.
/// Local.

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace dstune {

struct EnumText {
  int value = 0;
  std::string_view text;
};

/// The table of an enumeration. A function `const EnumTexts& texts_of(Enum)` beside the enumeration
/// gives it, whatever its argument.
struct EnumTexts {
  std::span<const EnumText> all;
  /// What a reader says of another text, which stands for {}.
  std::string_view refusal = "\"{}\" is not known to this release";
};

template <class Enum>
concept EnumWithTexts = std::is_enum_v<Enum> && requires(Enum value) {
  texts_of(value);
};

/// A row of a table.
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
