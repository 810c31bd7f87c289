#pragma once
/// Builds a document's values from a reader's events, whatever the notation: with the line of each,
/// every repeated key, and a limit on nesting. Time and memory are linear in the text.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dstune/base/json.hpp"
#include "json_text.hpp"

namespace dstune::json {

class TreeBuilder {
 public:
  /// `text` outlives the builder.
  TreeBuilder(std::string_view text, std::string file) : places_(text), file_(std::move(file)) {}

  /// These two return false, with a problem, where reading is to end.
  [[nodiscard]] bool open(Value&& empty, int line);
  [[nodiscard]] bool key(std::string name, int line);
  void add(Value&& value, int line) { place(std::move(value), line); }
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
  struct Placed {
    Value* value;
    LineTree* lines;
  };

  Placed place(Value&& value, int line);
  [[nodiscard]] std::string next_pointer() const;

  TextPlaces places_;
  std::string file_;
  Value root_;
  LineTree lines_;
  std::vector<Container> open_;
  Problems problems_;
};

}  // namespace dstune::json
