#pragma once
/// The text of a JSON or Hjson document: places in it, and what a reader's complaint means in plain
/// words.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstune::json {

/// Lines and columns of byte offsets; both count from 1, columns in characters.
class TextPlaces {
 public:
  explicit TextPlaces(std::string_view text);
  [[nodiscard]] int line(std::size_t offset) const;
  [[nodiscard]] int column(std::size_t offset) const;
  /// The offset at which the line of an offset begins.
  [[nodiscard]] std::size_t line_start(std::size_t offset) const;

 private:
  std::string_view text_;
  std::vector<std::size_t> line_starts_;
};

/// Whether a byte of UTF-8 is one after the first of its character.
bool is_continuation(char);

/// The word that touches `offset`, or the character there, as a message shows it.
std::string found_at(std::string_view text, std::size_t offset);

/// The offset of the first byte that is not part of a UTF-8 text, or is 0.
std::optional<std::size_t> find_bad_byte(std::string_view text);

/// What is wrong with the syntax at `offset`, where the library's reader stopped with `complaint`.
std::string explain_syntax(std::string_view text, std::size_t offset, std::string_view complaint);

}  // namespace dstune::json
