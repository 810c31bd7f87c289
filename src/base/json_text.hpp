#pragma once
/// The text of a JSON document: places in it, and what a reader's complaint means in plain words.

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

 private:
  std::string_view text_;
  std::vector<std::size_t> line_starts_;
};

/// The offset of the first byte that is not part of a UTF-8 text, or is 0.
std::optional<std::size_t> find_bad_byte(std::string_view text);

/// What is wrong with the syntax at `offset`, where the library's reader stopped with `complaint`.
std::string explain_syntax(std::string_view text, std::size_t offset, std::string_view complaint);

}  // namespace dstune::json
