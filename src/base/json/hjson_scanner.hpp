#pragma once
/// The pieces of an Hjson text, one after another.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dstune/base/json.hpp"
#include "json/builder.hpp"

namespace dstune::json {

/// The place at which reading stopped and the reason, in plain words.
struct HjsonFault {
  std::size_t offset;
  std::string message;
};

/// A number beyond any double.
struct HjsonOverflow {
  std::size_t offset;
};

class HjsonScanner {
 public:
  /// `text` and `places` outlive the scanner.
  HjsonScanner(std::string_view text, const TextPlaces& places) : text_(text), places_(&places) {}

  [[nodiscard]] std::size_t offset() const { return at_; }
  void go_back(std::size_t offset) { at_ = offset; }
  [[nodiscard]] int line() const { return places_->line(at_); }
  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] bool at(std::string_view start) const {
    return text_.substr(at_).starts_with(start);
  }

  /// Skips whitespace and comments. The character there, 0 at the end.
  char next();
  bool skip(char expected);

  // The four below begin at their first character, and throw HjsonFault.
  /// A key, with or without quotes, up to the ':' or the whitespace before it.
  std::string key();
  /// A text in double or single quotes.
  std::string quoted();
  /// A text in '''.
  std::string multiline();
  /// A value without quotes: true, false, null, a number, or a text to the end of the line. Throws
  /// HjsonOverflow, too.
  Value unquoted();

  /// The line of the latest text without quotes that ends with this bracket.
  [[nodiscard]] std::optional<int> line_of_text_ending_with(char bracket) const;

 private:
  void skip_comment();
  void skip_spaces(std::size_t at_most);
  void append_escaped(std::string& out);
  [[nodiscard]] std::string code_point(std::size_t begin) const;
  unsigned four_hex_digits();
  std::size_t characters_before(std::size_t offset);
  [[nodiscard]] std::size_t end_of_line(std::size_t from) const;
  [[nodiscard]] std::size_t end_of_word() const;
  [[nodiscard]] std::optional<Value> literal(std::string_view word) const;

  std::string_view text_;
  const TextPlaces* places_;
  std::size_t at_ = 0;
  /// How many characters of its line precede an offset: counted on from the offset before.
  struct {
    std::size_t offset = 0;
    std::size_t characters = 0;
  } counted_;
  /// The beginning of the latest text without quotes that ends with such a character.
  std::map<char, std::size_t> ending_with_;
};

}  // namespace dstune::json
