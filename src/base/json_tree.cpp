#include "json_tree.hpp"

#include <fmt/format.h>

namespace dstune::json {

namespace {

/// Deeper documents are no configuration, and would exhaust the stack of whoever walks them.
constexpr std::size_t deepest_nesting = 200;
/// Nobody reads more, and each holds a pointer that may be long.
constexpr std::size_t most_problems = 100;

}  // namespace

bool TreeBuilder::open(Value&& empty, int line) {
  if (open_.size() == deepest_nesting) {
    refuse(line, fmt::format("lists and objects are nested more than {} deep: flatten them",
                             deepest_nesting));
    return false;
  }
  const Placed placed = place(std::move(empty), line);
  open_.push_back({placed.value, placed.lines});
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
  return problems_.all().size() < most_problems;
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

TreeBuilder::Placed TreeBuilder::place(Value&& value, int line) {
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
    // Of a list inside which another is open, the last element is that one.
    const std::size_t size = container.value->size();
    pointer =
        append_pointer(pointer, std::to_string(&container == &open_.back() ? size : size - 1));
  }
  return pointer;
}

}  // namespace dstune::json
