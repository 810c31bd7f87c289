#include <charconv>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "json/builder.hpp"

namespace dstune::json {

namespace {

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

  bool add(Value&& value) {
    tree_->add(std::move(value), line());
    return true;
  }
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

/// Without byte order marks (the library would skip a second one). Throws InputError where it is
/// not UTF-8.
std::string_view checked(std::string_view text, const std::string& file) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  while (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  const std::optional<std::size_t> bad = find_bad_byte(text);
  if (!bad) return text;
  const TextPlaces places(text);
  throw InputError(
      {{file, "", places.line(*bad),
        fmt::format("column {}: byte 0x{:02X} is not UTF-8 text: save the file as UTF-8",
                    places.column(*bad), static_cast<unsigned char>(text[*bad]))}});
}

struct Found {
  const Value* value;
  std::size_t index;  ///< of the value among its neighbours
};

/// What a pointer's token names inside `value`, or nothing.
std::optional<Found> find(const Value& value, std::string_view token) {
  if (value.is_array()) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(token.begin(), token.end(), index);
    if (error != std::errc() || end != token.end() || index >= value.size()) return std::nullopt;
    return Found{&value[index], index};
  }
  if (!value.is_object()) return std::nullopt;
  std::string key;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool is_escaped = token[i] == '~' && i + 1 < token.size();
    key += is_escaped ? (token[++i] == '1' ? '/' : '~') : token[i];
  }
  const auto& members = value.get_ref<const Value::object_t&>();
  const auto found = members.find(key);
  if (found == members.end()) return std::nullopt;
  return Found{&found->second, static_cast<std::size_t>(found - members.begin())};
}

}  // namespace

void Problems::check() const {
  if (!problems_.empty()) throw InputError(problems_);
}

Document Document::parse(std::string_view text, std::string file) {
  text = checked(text, file);
  TreeBuilder tree(text, file);
  JsonReader(text, tree).run();
  Document document;
  document.file_ = std::move(file);
  tree.finish(document.root_, document.lines_);
  return document;
}

Document Document::parse_hjson(std::string_view text, std::string file) {
  text = checked(text, file);
  TreeBuilder tree(text, file);
  read_hjson(text, tree);
  Document document;
  document.file_ = std::move(file);
  tree.finish(document.root_, document.lines_);
  return document;
}

Document Document::parse_cbor(std::span<const std::byte> bytes, std::string file) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  Value root = Value::from_cbor(begin, begin + bytes.size(), true, false);
  if (root.is_discarded()) throw InputError({{std::move(file), "", 0, "the bytes are no CBOR"}});
  return of(std::move(root), std::move(file));
}

Document Document::of(Value root, std::string file) {
  Document document;
  document.file_ = std::move(file);
  document.root_ = std::move(root);
  return document;
}

Document Document::read(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const IoError& error) {
    throw InputError({{path, "", 0, error.what()}});
  }
  return path.ends_with(".hjson") ? parse_hjson(text, path) : parse(text, path);
}

int Document::line(const std::string& pointer) const {
  const Value* value = &root_;
  const LineTree* lines = &lines_;
  std::string_view rest = pointer;
  while (rest.starts_with('/')) {
    rest.remove_prefix(1);
    const std::string_view token = rest.substr(0, rest.find('/'));
    rest.remove_prefix(token.size());
    const std::optional<Found> found = find(*value, token);
    if (!found || found->index >= lines->inside.size()) break;
    value = found->value;
    lines = &lines->inside[found->index];
  }
  return lines->line;
}

Node Document::node() const {
  return {*this, root_, ""};
}

}  // namespace dstune::json
