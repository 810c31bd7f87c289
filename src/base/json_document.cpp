#include <iterator>
#include <unordered_map>

#include <fmt/format.h>

#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "json_text.hpp"

namespace dstune::json {

namespace {

/// Deeper documents are no configuration, and would exhaust the stack of whoever walks them.
constexpr std::size_t deepest_nesting = 200;

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
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Builds the values from the library's events, with the line of each and all repeated keys.
class Builder : public nlohmann::json_sax<Value> {
 public:
  Builder(std::string_view text, std::string file)
      : text_(text), places_(text), file_(std::move(file)), reached_(text.data()) {}

  void run() {
    const CountingIterator begin(text_.data(), &reached_);
    const CountingIterator end(text_.data() + text_.size(), &reached_);
    Value::sax_parse(begin, end, this, nlohmann::detail::input_format_t::json, true, true);
  }
  Value root;
  std::map<std::string, int> lines;
  Problems problems;

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

  bool key(std::string& name) override {
    Container& top = open_.back();
    top.key = name;
    const int here = line();
    const auto [first, is_new] = top.seen.emplace(name, here);
    if (!is_new)
      problems.add({file_, append_pointer(top.pointer, name), here,
                    fmt::format("the key is given twice (first on line {}): keep one of them",
                                first->second)});
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& cause) override {
    constexpr int number_overflow = 406;
    if (cause.id == number_overflow) {
      problems.add({file_, next_pointer(), line(),
                    "the number is larger than any that can be represented: write a smaller one"});
      return false;
    }
    const std::size_t offset = position == 0 ? 0 : position - 1;
    if (offset >= text_.size()) {
      problems.add({file_, "", places_.line(text_.size()), early_end(cause.what())});
      return false;
    }
    problems.add({file_, "", places_.line(offset),
                  fmt::format("column {}: {}", places_.column(offset),
                              explain_syntax(text_, offset, cause.what()))});
    return false;
  }

 private:
  struct Container {
    Value* value;
    std::string pointer;
    int line;
    std::string key;  ///< of the member being read
    std::unordered_map<std::string, int> seen = {};
  };

  /// The line of the token that was read last. The reader has seen one character more where that
  /// was a number; only a line break there matters.
  [[nodiscard]] int line() const {
    auto offset = static_cast<std::size_t>(reached_ - text_.data());
    if (offset > 0) --offset;
    if (offset > 0 && text_[offset] == '\n') --offset;
    return places_.line(offset);
  }

  [[nodiscard]] std::string next_pointer() const {
    if (open_.empty()) return "";
    const Container& top = open_.back();
    return append_pointer(top.pointer,
                          top.value->is_array() ? std::to_string(top.value->size()) : top.key);
  }

  Value* place(Value&& value) {
    lines.emplace(next_pointer(), line());
    if (open_.empty()) return &(root = std::move(value));
    Value& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& elements = parent.get_ref<Value::array_t&>();
      return &elements.emplace_back(std::move(value));
    }
    // Straight to the end: a look-up in an ordered object is linear, and repeats are known already.
    auto& members = static_cast<std::vector<std::pair<const std::string, Value>>&>(
        parent.get_ref<Value::object_t&>());
    return &members.emplace_back(open_.back().key, std::move(value)).second;
  }

  bool add(Value&& value) {
    place(std::move(value));
    return true;
  }

  bool open(Value&& empty) {
    if (open_.size() == deepest_nesting) {
      problems.add({file_, "", line(),
                    fmt::format("lists and objects are nested more than {} deep: flatten them",
                                deepest_nesting)});
      return false;
    }
    std::string pointer = next_pointer();
    Value* const placed = place(std::move(empty));
    open_.push_back({placed, std::move(pointer), line(), ""});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  [[nodiscard]] std::string early_end(std::string_view complaint) const {
    if (open_.empty() && root.is_null() && text_.find_first_not_of(" \t\r\n") == text_.npos)
      return "the file is empty: it must hold a JSON document";
    if (complaint.find("missing closing quote") != complaint.npos ||
        complaint.find("invalid comment") != complaint.npos || open_.empty())
      return explain_at_end(complaint);
    return fmt::format("the file ends inside the {} that begins on line {}: close it with {}",
                       open_.back().value->is_array() ? "list" : "object", open_.back().line,
                       open_.back().value->is_array() ? ']' : '}');
  }

  static std::string explain_at_end(std::string_view complaint) {
    if (complaint.find("missing closing quote") != complaint.npos)
      return "the file ends inside a text: add the closing double quote";
    if (complaint.find("invalid comment") != complaint.npos)
      return "the file ends inside a comment: close it with */";
    return "the file ends before its value is complete";
  }

  std::string_view text_;
  TextPlaces places_;
  std::string file_;
  const char* reached_;
  std::vector<Container> open_;
};

}  // namespace

void Problems::check() const {
  if (!problems_.empty()) throw InputError(problems_);
}

Document Document::parse(std::string_view text, std::string file) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  if (const std::optional<std::size_t> bad = find_bad_byte(text)) {
    const TextPlaces places(text);
    throw InputError(
        {{std::move(file), "", places.line(*bad),
          fmt::format("column {}: byte 0x{:02X} is not UTF-8 text: save the file as UTF-8",
                      places.column(*bad), static_cast<unsigned char>(text[*bad]))}});
  }
  Builder builder(text, file);
  builder.run();
  builder.problems.check();
  Document document;
  document.file_ = std::move(file);
  document.root_ = std::move(builder.root);
  document.lines_ = std::move(builder.lines);
  return document;
}

Document Document::read(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const IoError& error) {
    throw InputError({{path, "", 0, error.what()}});
  }
  return parse(text, path);
}

int Document::line(const std::string& pointer) const {
  std::string at = pointer;
  while (true) {
    const auto found = lines_.find(at);
    if (found != lines_.end()) return found->second;
    if (at.empty()) return 0;
    at.resize(at.rfind('/') == at.npos ? 0 : at.rfind('/'));
  }
}

Node Document::node() const {
  return {*this, root_, ""};
}

}  // namespace dstune::json
