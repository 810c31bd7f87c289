#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "json/builder.hpp"

namespace dstune::json {

namespace {

char last_visible_before(std::string_view text, std::size_t offset) {
  while (offset > 0 && std::isspace(static_cast<unsigned char>(text[offset - 1])) != 0) --offset;
  return offset == 0 ? '\0' : text[offset - 1];
}

/// A word that people bring from other languages, and a hint.
std::string_view advice(std::string_view word) {
  std::string lower = lower_case(word);
  if (!lower.empty() && (lower.front() == '-' || lower.front() == '+')) lower.erase(0, 1);
  if (lower == "nan" || lower == "infinity" || lower == "inf")
    return "; only finite numbers can be written";
  if (lower == "true" || lower == "false") return "; write true and false in small letters";
  if (lower == "none" || lower == "null") return "; write null";
  if (word == "'") return "; write texts in double quotes";
  if (word.size() > 1 && std::isdigit(static_cast<unsigned char>(lower.front())) != 0)
    return "; this is no JSON number";
  if (word.size() > 1) return "; write texts in double quotes";
  return "";
}

struct Meaning {
  std::string_view problem_text;  ///< a piece of the library's message
  std::string_view words;
};
constexpr std::array inside_texts = {
    Meaning{"missing closing quote", "a text is not closed: add the closing double quote"},
    Meaning{"control character",
            "a line break or control character stands inside a text: close the text or write \\n"},
    Meaning{
        "forbidden character after backslash",
        "a backslash in a text is followed by a character that it can not escape: write \\\\ for a "
        "backslash"},
    Meaning{"must be followed by 4 hex digits", "\\u needs four hexadecimal digits after it"},
    Meaning{"surrogate",
            "half of a surrogate pair stands alone: write both halves as \\uXXXX\\uXXXX"},
    Meaning{"invalid comment", "a comment is not complete: comments are // … and /* … */"},
};
constexpr std::array between_texts = {
    Meaning{"while parsing object key", "a key in double quotes or }"},
    Meaning{"while parsing object separator", "':' after the key"},
    Meaning{"while parsing object", "',' or '}'"},
    Meaning{"while parsing array", "',' or ']'"},
    Meaning{"expected end of input", "the end of the file"},
};

/// Explains the error in the syntax at `offset`, at which the library's reader stopped with
/// `problem_text`.
std::string explain_syntax(std::string_view text, std::size_t offset,
                           std::string_view problem_text) {
  const auto holds = [problem_text](const Meaning& meaning) {
    return problem_text.find(meaning.problem_text) != std::string_view::npos;
  };
  for (const Meaning& meaning : inside_texts)
    if (holds(meaning)) return std::string(meaning.words);

  // "1." is found wrong at what follows it.
  const bool after_number = problem_text.find("invalid number") != std::string_view::npos &&
                            offset > 0 && !is_word_char(text[offset]);
  const std::string found = found_at(text, after_number ? offset - 1 : offset);
  if ((found == "}" || found == "]") && last_visible_before(text, offset) == ',')
    return fmt::format("there is a comma before {}: remove it", found);
  std::string_view expected = "a value";
  const auto* place = std::find_if(between_texts.begin(), between_texts.end(), holds);
  if (place != between_texts.end()) expected = place->words;
  return fmt::format("expected {} but found {}{}", expected, found, advice(found));
}

/// Hands characters to the library's reader and says how far it has come.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Hands the library's events on, each with the line it was read on.
class JsonReader : public nlohmann::json_sax<Value> {
 public:
  JsonReader(std::string_view text, TreeBuilder& tree)
      : text_(text), tree_(&tree), reached_(text.data()) {}

  void run() {
    const CountingIterator begin(text_.data(), &reached_);
    const CountingIterator end(text_.data() + text_.size(), &reached_);
    Value::sax_parse(begin, end, this, nlohmann::detail::input_format_t::json, true, true);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Value::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Value::array()); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override { return tree_->key(std::move(name), line()); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& cause) override {
    constexpr int number_overflow = 406;
    const std::size_t offset = position == 0 ? 0 : position - 1;
    const TextPlaces& places = tree_->places();
    if (cause.id == number_overflow)
      tree_->refuse_number(line());
    else if (offset >= text_.size())
      tree_->refuse(places.line(text_.size()), early_end(cause.what()));
    else
      tree_->refuse(places.line(offset), fmt::format("column {}: {}", places.column(offset),
                                                     explain_syntax(text_, offset, cause.what())));
    return false;
  }

 private:
  /// The line of the token that was read last. The reader has seen one character more where that
  /// was a number; only a line break there matters.
  [[nodiscard]] int line() const {
    auto offset = static_cast<std::size_t>(reached_ - text_.data());
    if (offset > 0) --offset;
    if (offset > 0 && text_[offset] == '\n') --offset;
    return tree_->places().line(offset);
  }

  bool add(Value&& value) { return tree_->add(std::move(value), line()); }
  bool open(Value&& empty) { return tree_->open(std::move(empty), line()); }
  bool close() {
    tree_->close();
    return true;
  }

  [[nodiscard]] std::string early_end(std::string_view problem_text) const {
    if (text_.find_first_not_of(" \t\r\n") == text_.npos)
      return "the file is empty: it must hold a JSON document";
    if (problem_text.find("missing closing quote") != problem_text.npos)
      return "the file ends inside a text: add the closing double quote";
    if (problem_text.find("invalid comment") != problem_text.npos)
      return "the file ends inside a comment: close it with */";
    return tree_->depth() == 0 ? "the file ends before its value is complete" : tree_->unfinished();
  }

  std::string_view text_;
  TreeBuilder* tree_;
  const char* reached_;
};

}  // namespace

void read_json(std::string_view text, TreeBuilder& tree) {
  JsonReader(text, tree).run();
}

}  // namespace dstune::json
