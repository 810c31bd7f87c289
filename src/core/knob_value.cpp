#include "knob_value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace dstune {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// All of `text` as a number, with a leading '+' too.
template <class Number>
std::optional<Number> parse_all(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || text.front() == '+' || error != std::errc() ||
      end != text.data() + text.size())
    return std::nullopt;
  return number;
}

std::optional<bool> lenient_boolean(const json::Value& value) {
  std::string word;
  if (value.is_string()) word = lower_case(value.get_ref<const std::string&>());
  if (value.is_number() && value == 0) word = "0";
  if (value.is_number() && value == 1) word = "1";
  const auto any_of = [&word](auto words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  using Words = std::array<std::string_view, 6>;
  if (any_of(Words{"1", "on", "t", "true", "y", "yes"})) return true;
  if (any_of(Words{"0", "off", "f", "false", "n", "no"})) return false;
  return std::nullopt;
}

/// What the row's type makes of a value that it does not take as it is; the value itself where it
/// makes nothing of it.
json::Value converted(const json::Value& value, const Knob& knob) {
  if (knob.type == KnobType::boolean) {
    if (const std::optional<bool> flag = lenient_boolean(value)) return *flag;
  }
  // DeepSpeed's stages are an enumeration, which takes true for 1.
  if (knob.pointer == "/zero_optimization/stage" && value.is_boolean())
    return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  if (knob.type == KnobType::integer) {
    if (const auto number = parse_all<std::int64_t>(text)) return *number;
  }
  if (knob.type == KnobType::number) {
    const auto number = parse_all<double>(text);
    if (number && std::isfinite(*number)) return *number;
  }
  return value;
}

std::optional<KnobValue> read_integer(const json::Node& node, const Knob& knob,
                                      json::Problems& problems) {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto bound = [](double value, std::int64_t otherwise) {
    return std::isinf(value) ? otherwise : static_cast<std::int64_t>(value);
  };
  const auto number =
      node.integer(problems, bound(knob.low, Limits::min()), bound(knob.high, Limits::max()));
  if (!number) return std::nullopt;
  return *number;
}

bool is_choice(std::string_view choices, std::string_view word) {
  const std::string wanted = lower_case(word);
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    if (lower_case(choices.substr(0, end)) == wanted) return true;
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return false;
}

std::string choice_words(std::string_view choices) {
  std::string words(choices);
  for (std::size_t at = words.find('|'); at != words.npos; at = words.find('|', at))
    words.replace(at, 1, ", ");
  return words;
}

std::optional<KnobValue> read_text(const json::Node& node, const Knob& knob,
                                   json::Problems& problems) {
  const std::optional<std::string> text = node.string(problems);
  if (!text) return std::nullopt;
  if (knob.choices.empty() || is_choice(knob.choices, *text)) return *text;
  problems.add(node.problem(
      fmt::format("expected one of {}, got \"{}\"", choice_words(knob.choices), *text)));
  return std::nullopt;
}

std::optional<KnobValue> read_strictly(const json::Node& node, const Knob& knob,
                                       json::Problems& problems) {
  switch (knob.type) {
    case KnobType::boolean:
      if (const auto flag = node.boolean(problems)) return *flag;
      return std::nullopt;
    case KnobType::integer:
      return read_integer(node, knob, problems);
    case KnobType::number:
      if (const auto number = node.number(problems, knob.low, knob.high)) return *number;
      return std::nullopt;
    case KnobType::text:
      return read_text(node, knob, problems);
    case KnobType::object:
      if (node.expect_object(problems)) return std::monostate();
      return std::nullopt;
    case KnobType::list:
      if (node.is_array()) return std::monostate();
      problems.add(node.problem("expected a list, got " + json::type_words(node.value())));
      return std::nullopt;
  }
  return std::nullopt;
}

/// A scalar of a section that DeepSpeed reads by pydantic.
bool is_pydantic(const Knob& knob) {
  if (knob.type == KnobType::object || knob.type == KnobType::list) return false;
  const std::string_view path = knob.pointer;
  return path.starts_with("/zero_optimization/") || path.starts_with("/bf16/") ||
         path.starts_with("/bfloat16/") || path.starts_with("/fp16/");
}

}  // namespace

bool stands_for_default(const json::Node& node) {
  return node.is_null() || node.value() == "auto";
}

std::optional<KnobValue> read_knob(const json::Node& node, const Knob& knob,
                                   json::Problems& problems) {
  if (!is_pydantic(knob)) return read_strictly(node, knob, problems);
  const json::Value value = converted(node.value(), knob);
  return read_strictly({node.document(), value, node.pointer()}, knob, problems);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace dstune
