#include <algorithm>

#include <fmt/format.h>

#include "json/builder.hpp"
#include "json/hjson_scanner.hpp"

namespace dstune::json {

namespace {

/// Thrown where the tree has taken the problem.
struct Stopped {};

/// Tells whether a message can show it as it is.
bool is_short_word(std::string_view text) {
  return text.size() <= 40 && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F;
         });
}

class HjsonReader {
 public:
  HjsonReader(std::string_view text, TreeBuilder& tree)
      : text_(text), tree_(&tree), scan_(text, tree.places()) {}

  void read() {
    if (scan_.next() == '\0') fail("the file is empty: it must hold an Hjson document");
    has_no_braces_ = begins_with_key();
    if (has_no_braces_)
      open(Value::object());
    else
      value();
    while (tree_->depth() > 0) read_on();
    if (scan_.next() != '\0') fail("expected the end of the file but found " + found());
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw HjsonFault{scan_.offset(), message};
  }
  [[nodiscard]] std::string found() const { return found_at(text_, scan_.offset()); }

  [[nodiscard]] bool is_root_without_braces() const {
    return has_no_braces_ && tree_->depth() == 1;
  }

  /// Tells whether the document is the members of an object whose braces are left out. A single
  /// text without quotes counts as a key: its colon is missing.
  bool begins_with_key() {
    const char first = scan_.next();
    if (first == '{' || first == '[' || scan_.at("'''")) return false;
    const std::size_t begin = scan_.offset();
    try {
      (void)scan_.key();
      bool is_key = scan_.next() == ':';
      if (!is_key && first != '"' && first != '\'') {
        scan_.go_back(begin);
        is_key = scan_.unquoted().is_string();
      }
      scan_.go_back(begin);
      return is_key;
    } catch (const HjsonFault&) {  // found again where it is read in earnest
      scan_.go_back(begin);
      return first != '"' && first != '\'';
    }
  }

  /// The next member or element, or the end of the innermost object or list.
  void read_on() {
    const char c = scan_.next();
    if (c == '\0' && is_root_without_braces()) return tree_->close();
    if (c == '\0') fail(unfinished());
    if (!is_root_without_braces() && scan_.skip(tree_->closing())) {
      tree_->close();
      return after_value();
    }
    if (c == '}' || c == ']') wrong_bracket(c);
    if (!tree_->in_list()) member_key();
    value();
  }

  [[noreturn]] void wrong_bracket(char bracket) const {
    if (is_root_without_braces())
      fail(fmt::format("{} closes nothing that is open: remove it", bracket));
    fail(fmt::format("{} is closed with {}, not with {}", tree_->innermost(), tree_->closing(),
                     bracket));
  }

  void member_key() {
    const int line = scan_.line();
    std::string name = scan_.key();
    const std::string shown = is_short_word(name) ? " " + name : "";
    if (!tree_->key(std::move(name), line)) throw Stopped{};
    if (scan_.next() == '\0')
      fail(fmt::format("the file ends after the key{}: add ':' and a value", shown));
    if (!scan_.skip(':'))
      fail(
          fmt::format("expected ':' after the key{} but found {}; a key with spaces in it needs "
                      "double quotes",
                      shown, found()));
    if (scan_.next() == '\0')
      fail(fmt::format("the file ends before the value of the key{}: add it", shown));
  }

  void value() {
    switch (scan_.next()) {
      case '{':
        return open_with('{', Value::object());
      case '[':
        return open_with('[', Value::array());
      case '}':
      case ']':
      case ',':
      case ':':
        fail(fmt::format("expected a value but found {}; a text that begins so needs double quotes",
                         found()));
      default:
        break;
    }
    const int line = scan_.line();
    if (!tree_->add(scalar(), line)) throw Stopped{};
    after_value();
  }

  Value scalar() {
    if (scan_.at("'''")) return scan_.multiline();
    if (scan_.at("\"") || scan_.at("'")) return scan_.quoted();
    return scan_.unquoted();
  }

  void open_with(char bracket, Value&& empty) {
    open(std::move(empty));
    scan_.skip(bracket);
  }

  void open(Value&& empty) {
    if (!tree_->open(std::move(empty), scan_.line())) throw Stopped{};
  }

  void after_value() {
    if (tree_->depth() > 0 && scan_.next() == ',') scan_.skip(',');
  }

  [[nodiscard]] std::string unfinished() const {
    std::string message = tree_->unfinished();
    // The commonest mistake: {a: b} holds the text "b}".
    if (const auto line = scan_.line_of_text_ending_with(tree_->closing()))
      message += fmt::format("; the {} on line {} is part of a text without quotes",
                             tree_->closing(), *line);
    return message;
  }

  std::string_view text_;
  TreeBuilder* tree_;
  HjsonScanner scan_;
  bool has_no_braces_ = false;
};

}  // namespace

void read_hjson(std::string_view text, TreeBuilder& tree) {
  const TextPlaces& places = tree.places();
  try {
    HjsonReader(text, tree).read();
  } catch (const HjsonFault& fault) {
    const int line = places.line(fault.offset);
    if (fault.offset >= text.size())
      tree.refuse(line, fault.message);
    else
      tree.refuse(line, fmt::format("column {}: {}", places.column(fault.offset), fault.message));
  } catch (const HjsonOverflow& overflow) {
    tree.refuse_number(places.line(overflow.offset));
  } catch (const Stopped&) {
    return;  // the tree has the problem
  }
}

}  // namespace dstune::json
