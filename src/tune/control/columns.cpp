#include "control/columns.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

struct Letters {
  std::uint32_t first, last;
};

// Blocks of Unicode 15, as terminals take them; the C library's wcwidth() needs a locale.
constexpr std::array<Letters, 10> without_width{{{0x0300, 0x036F},
                                                 {0x0483, 0x0489},
                                                 {0x0591, 0x05BD},
                                                 {0x0610, 0x061A},
                                                 {0x064B, 0x065F},
                                                 {0x1AB0, 0x1AFF},
                                                 {0x200B, 0x200F},
                                                 {0x20D0, 0x20F0},
                                                 {0xFE00, 0xFE0F},
                                                 {0xFE20, 0xFE2F}}};
constexpr std::array<Letters, 12> wide{{{0x1100, 0x115F},
                                        {0x231A, 0x231B},
                                        {0x2E80, 0x303E},
                                        {0x3041, 0xA4CF},
                                        {0xA960, 0xA97C},
                                        {0xAC00, 0xD7A3},
                                        {0xF900, 0xFAFF},
                                        {0xFE30, 0xFE6F},
                                        {0xFF01, 0xFF60},
                                        {0xFFE0, 0xFFE6},
                                        {0x1F300, 0x1FAFF},
                                        {0x20000, 0x3FFFD}}};

/// A byte that is no UTF-8 stands for itself.
std::string_view first_character(std::string_view text) {
  return text.substr(0, std::max<std::size_t>(1, utf8_length(text)));
}

std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t place) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(character[place]));
  };
  if (character.size() == 1) return byte(0);
  std::uint32_t code = byte(0) & (0xFFU >> (character.size() + 1));
  for (std::size_t place = 1; place < character.size(); ++place)
    code = code << 6U | (byte(place) & 0x3FU);
  return code;
}

std::size_t columns_of(std::string_view character) {
  const std::uint32_t code = code_point(character);
  const auto has = [code](const Letters& letters) {
    return code >= letters.first && code <= letters.last;
  };
  if (std::ranges::any_of(without_width, has)) return 0;
  return std::ranges::any_of(wide, has) ? 2 : 1;
}

}  // namespace

std::size_t num_columns(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    columns += columns_of(character);
    text.remove_prefix(character.size());
  }
  return columns;
}

std::string cut_to_columns(std::string_view text, std::size_t max_columns) {
  if (num_columns(text) <= max_columns) return std::string(text);
  if (max_columns == 0) return "";
  std::size_t columns = 0, size = 0;
  while (size < text.size()) {
    const std::string_view character = first_character(text.substr(size));
    columns += columns_of(character);
    if (columns > max_columns - 1) break;
    size += character.size();
  }
  return std::string(text.substr(0, size)) + "…";
}

}  // namespace dstune
