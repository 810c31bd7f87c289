#pragma once
/// Code that the readers of JSON and Hjson share: places in a text, problems in plain words, and
/// the values that are built from the text.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dstune/base/json.hpp"

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

/// Tells whether a byte of UTF-8 is one after the first of its character.
bool is_continuation(char);
/// Tells whether a character belongs to a word of JSON, or of other languages that people bring.
bool is_word_char(char);

/// The word that touches `offset`, or the character there, as a message shows it.
std::string found_at(std::string_view text, std::size_t offset);

/// The offset of the first byte that is not part of a UTF-8 text, or is 0.
std::optional<std::size_t> find_bad_byte(std::string_view text);

/// Builds a document's values from a reader's events, whatever the notation: with the line of each,
/// every repeated key, and limits on nesting and on the number of values. Time and memory are
/// linear in the text.
class TreeBuilder {
 public:
  /// `text` outlives the builder.
  TreeBuilder(std::string_view text, std::string file, std::size_t max_values)
      : places_(text), file_(std::move(file)), max_values_(max_values) {}

  /// These three return false, with a problem, where reading is to end.
  [[nodiscard]] bool open(Value&& empty, int line);
  [[nodiscard]] bool key(std::string name, int line);
  [[nodiscard]] bool add(Value&& value, int line);
  void close() { open_.pop_back(); }

  [[nodiscard]] const TextPlaces& places() const { return places_; }
  [[nodiscard]] std::size_t depth() const { return open_.size(); }
  [[nodiscard]] bool in_list() const { return !open_.empty() && open_.back().value->is_array(); }
  /// The bracket that closes the innermost list or object.
  [[nodiscard]] char closing() const { return in_list() ? ']' : '}'; }
  /// "the list that begins on line 3": the innermost.
  [[nodiscard]] std::string innermost() const;

  /// A problem with the document as a whole.
  void refuse(int line, std::string message) {
    problems_.add({file_, "", line, std::move(message)});
  }
  /// A number that would be the next value.
  void refuse_number(int line);
  /// "the file ends inside the list that begins on line 3: close it with ]". Only inside one.
  [[nodiscard]] std::string unfinished() const;

  /// Throws InputError where there is a problem; else moves the values out, once.
  void finish(Value& root, LineTree& lines);

 private:
  struct Container {
    Value* value;
    LineTree* lines;
    std::string key = {};  ///< of the member being read
    std::unordered_map<std::string, int> seen = {};
  };

  bool has_room(int line);
  Container place(Value&& value, int line);
  [[nodiscard]] std::string next_pointer() const;

  TextPlaces places_;
  std::string file_;
  std::size_t max_values_;
  std::size_t num_values_ = 0;  ///< below the root
  Value root_;
  LineTree lines_;
  std::vector<Container> open_;
  Problems problems_;
};

/// Reads JSON with comments. `text` is UTF-8 and begins with no byte order mark. Errors become
/// problems of the tree.
void read_json(std::string_view text, TreeBuilder& tree);
/// Likewise Hjson (hjson.github.io/syntax.html) as the Python package that DeepSpeed reads its
/// configs with does, so that what works there means the same here. Stricter than it, because the
/// other reading is a mistake of the writer: repeated keys, numbers too large for a double, halves
/// of surrogate pairs, control characters, an empty document and one that is a single text without
/// quotes are refused.
void read_hjson(std::string_view text, TreeBuilder& tree);

}  // namespace dstune::json
