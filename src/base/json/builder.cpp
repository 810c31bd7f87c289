#include "json/builder.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/text.hpp"

namespace dstune::json {

namespace {

/// The word that touches `offset`, or the character there.
std::string_view word_at(std::string_view text, std::size_t offset) {
  std::size_t begin = offset;
  std::size_t end = offset;
  while (end < text.size() && is_word_char(text[end])) ++end;
  if (end == offset) {
    end = offset + std::max<std::size_t>(1, utf8_length(text.substr(offset)));
    return text.substr(begin, end - begin);
  }
  while (begin > 0 && is_word_char(text[begin - 1])) --begin;
  return text.substr(begin, std::min<std::size_t>(end - begin, 40));
}

/// Deeper documents are no configuration, and would exhaust the stack of whoever walks them.
constexpr std::size_t deepest_nesting = 200;
/// Nobody reads more, and each holds a pointer that may be long.
constexpr std::size_t max_problems = 100;

}  // namespace

TextPlaces::TextPlaces(std::string_view text) : text_(text), line_starts_{0} {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') line_starts_.push_back(i + 1);
}

int TextPlaces::line(std::size_t offset) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  return static_cast<int>(after - line_starts_.begin());
}

int TextPlaces::column(std::size_t offset) const {
  const std::size_t start = line_start(offset);
  const std::string_view before = text_.substr(start, offset - start);
  return 1 + static_cast<int>(std::count_if(before.begin(), before.end(),
                                            [](char c) { return !is_continuation(c); }));
}

std::size_t TextPlaces::line_start(std::size_t offset) const {
  return line_starts_[static_cast<std::size_t>(line(offset) - 1)];
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_+-.$").find(c) != std::string_view::npos;
}

std::string found_at(std::string_view text, std::size_t offset) {
  const std::string_view word = word_at(text, offset);
  const auto first = static_cast<unsigned char>(word.front());
  if (first < 0x20 || first == 0x7F) return fmt::format("the control character 0x{:02X}", first);
  return std::string(word);
}

std::optional<std::size_t> find_bad_byte(std::string_view text) {
  std::size_t offset = 0;
  while (offset < text.size()) {
    const std::size_t length = utf8_length(text.substr(offset));
    if (length == 0) return offset;
    offset += length;
  }
  return std::nullopt;
}

bool TreeBuilder::open(Value&& empty, int line) {
  if (open_.size() == deepest_nesting) {
    refuse(line, fmt::format("lists and objects are nested more than {} deep: flatten them",
                             deepest_nesting));
    return false;
  }
  if (!has_room(line)) return false;
  open_.push_back(place(std::move(empty), line));
  return true;
}

bool TreeBuilder::add(Value&& value, int line) {
  if (!has_room(line)) return false;
  place(std::move(value), line);
  return true;
}

bool TreeBuilder::key(std::string name, int line) {
  Container& top = open_.back();
  top.key = std::move(name);
  const auto [first, is_new] = top.seen.emplace(top.key, line);
  if (is_new) return true;
  problems_.add(
      {file_, next_pointer(), line,
       fmt::format("the key is given twice (first on line {}): keep one of them", first->second)});
  return problems_.all().size() < max_problems;
}

void TreeBuilder::refuse_number(int line) {
  problems_.add({file_, next_pointer(), line,
                 "the number is larger than any that can be represented: write a smaller one"});
}

std::string TreeBuilder::innermost() const {
  return fmt::format("the {} that begins on line {}", in_list() ? "list" : "object",
                     open_.back().lines->line);
}

std::string TreeBuilder::unfinished() const {
  return fmt::format("the file ends inside {}: close it with {}", innermost(), closing());
}

void TreeBuilder::finish(Value& root, LineTree& lines) {
  problems_.check();
  root = std::move(root_);
  lines = std::move(lines_);
}

bool TreeBuilder::has_room(int line) {
  if (open_.empty() || ++num_values_ <= max_values_) return true;
  refuse(line,
         fmt::format("there are more than {} keys and elements: shorten the lists", max_values_));
  return false;
}

TreeBuilder::Container TreeBuilder::place(Value&& value, int line) {
  if (open_.empty()) {
    root_ = std::move(value);
    lines_.line = line;
    return {&root_, &lines_};
  }
  Container& top = open_.back();
  LineTree& lines = top.lines->inside.emplace_back(LineTree{line, {}});
  if (top.value->is_array())
    return {&top.value->get_ref<Value::array_t&>().emplace_back(std::move(value)), &lines};
  // Straight to the end: a look-up in an ordered object is linear, and repeats are known already.
  auto& members = static_cast<std::vector<std::pair<const std::string, Value>>&>(
      top.value->get_ref<Value::object_t&>());
  return {&members.emplace_back(top.key, std::move(value)).second, &lines};
}

std::string TreeBuilder::next_pointer() const {
  std::string pointer;
  for (const Container& container : open_) {
    if (!container.value->is_array()) {
      pointer = append_pointer(pointer, container.key);
      continue;
    }
    // If another list is open inside a list, it is the last element of that list.
    const std::size_t size = container.value->size();
    pointer =
        append_pointer(pointer, std::to_string(&container == &open_.back() ? size : size - 1));
  }
  return pointer;
}

}  // namespace dstune::json
