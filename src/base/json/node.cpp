#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dstune/base/json.hpp"
#include "dstune/base/units.hpp"

namespace dstune::json {

namespace {

/// " of at least 0", " from 0 to 3", or nothing where the bounds are those of the type.
template <class Number>
std::string range_words(Number low, Number high, Number lowest, Number highest) {
  if (low == lowest && high == highest) return "";
  const auto text = [](Number number) {
    if constexpr (std::is_same_v<Number, double>)
      return format_number(number);
    else
      return std::to_string(number);
  };
  if (high == highest) return " of at least " + text(low);
  if (low == lowest) return " of at most " + text(high);
  return " from " + text(low) + " to " + text(high);
}

/// A value as a message shows it.
std::string shown(const Value& value) {
  if (value.is_string()) {
    constexpr std::size_t longest = 60;
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > longest) return "a long text";
    return value.dump();
  }
  return value.is_primitive() ? value.dump() : type_words(value);
}

std::size_t edits(std::string_view from, std::string_view to) {
  // Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
  std::vector<std::vector<std::size_t>> cost(from.size() + 1,
                                             std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = from[i - 1] == to[j - 1] ? 0 : 1;
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + replaced});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[from.size()][to.size()];
}

/// The value as an integer where it is one: 5e8 is, 4.7 and what 64 bits do not hold are not. (The
/// document's reader makes floats of integers that are too long.)
std::optional<std::int64_t> exact_integer(const Value& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::trunc(number) != number || number <= -0x1p63 || number >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

Problem Node::problem(std::string message) const {
  return {document_->file(), pointer_, line(), std::move(message)};
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> names;
  if (!is_object()) return names;
  for (const auto& member : value_->items()) names.push_back(member.key());
  return names;
}

std::optional<Node> Node::find(const std::string& key) const {
  if (!is_object()) return std::nullopt;
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return Node(*document_, *found, append_pointer(pointer_, key));
}

std::vector<Node> Node::elements() const {
  std::vector<Node> nodes;
  if (!is_array()) return nodes;
  for (const Value& element : *value_)
    nodes.emplace_back(*document_, element, append_pointer(pointer_, std::to_string(nodes.size())));
  return nodes;
}

std::optional<bool> Node::boolean(Problems& problems) const {
  if (value_->is_boolean()) return value_->get<bool>();
  problems.add(problem("expected true or false, got " + shown(*value_)));
  return std::nullopt;
}

std::optional<std::int64_t> Node::integer(Problems& problems, std::int64_t low,
                                          std::int64_t high) const {
  const std::optional<std::int64_t> number = exact_integer(*value_);
  if (number && *number >= low && *number <= high) return number;
  using Limits = std::numeric_limits<std::int64_t>;
  problems.add(
      problem(fmt::format("expected an integer{}, got {}",
                          range_words(low, high, Limits::min(), Limits::max()), shown(*value_))));
  return std::nullopt;
}

std::optional<double> Node::number(Problems& problems, double low, double high) const {
  if (value_->is_number()) {
    const auto number = value_->get<double>();
    if (number >= low && number <= high) return number;
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  problems.add(problem(fmt::format("expected a number{}, got {}",
                                   range_words(low, high, -infinity, infinity), shown(*value_))));
  return std::nullopt;
}

std::optional<std::string> Node::string(Problems& problems) const {
  if (value_->is_string()) return value_->get<std::string>();
  problems.add(problem("expected a text in double quotes, got " + shown(*value_)));
  return std::nullopt;
}

bool Node::expect_object(Problems& problems) const {
  if (is_object()) return true;
  problems.add(problem("expected an object, got " + shown(*value_)));
  return false;
}

void Node::refuse_unknown_keys(Problems& problems,
                               const std::vector<std::string_view>& known) const {
  for (const std::string& key : keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::optional<std::string> meant = nearest(key, known);
    const Problem place =
        find(key)->problem(meant ? fmt::format("unknown key: did you mean \"{}\"?", *meant)
                                 : std::string("unknown key: remove it"));
    problems.add(place);
  }
}

std::string append_pointer(const std::string& pointer, std::string_view key) {
  std::string out = pointer + '/';
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

std::string type_words(const Value& value) {
  switch (value.type()) {
    case Value::value_t::null:
      return "null";
    case Value::value_t::boolean:
      return "true or false";
    case Value::value_t::number_integer:
    case Value::value_t::number_unsigned:
      return "an integer";
    case Value::value_t::number_float:
      return "a number";
    case Value::value_t::string:
      return "a text";
    case Value::value_t::array:
      return "a list";
    case Value::value_t::object:
      return "an object";
    default:
      return "no JSON value";
  }
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string_view>& known) {
  std::optional<std::string> best;
  // A short word is within two edits of anything.
  std::size_t best_edits = std::min<std::size_t>(3, (word.size() + 2) / 2);
  for (std::string_view candidate : known) {
    if (candidate.size() > word.size() + 2 || word.size() > candidate.size() + 2) continue;
    const std::size_t distance = edits(word, candidate);
    if (distance >= best_edits) continue;
    best_edits = distance;
    best = std::string(candidate);
  }
  return best;
}

}  // namespace dstune::json
