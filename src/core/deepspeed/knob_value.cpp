#include "dstune/core/knob_value.hpp"

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

/// As pydantic reads numbers in texts: "7_000" and, for integers, "7.0" too.
std::string without_ornaments(std::string_view text, bool is_integer) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto is_digit = [&](std::size_t place) {
      return place < text.size() && text[place] >= '0' && text[place] <= '9';
    };
    const bool joins = text[at] == '_' && at > 0 && is_digit(at - 1) && is_digit(at + 1);
    if (!joins) plain += text[at];
  }
  const std::size_t point = plain.find('.');
  if (is_integer && point != plain.npos && plain.find_first_not_of("0 ", point + 1) == plain.npos)
    plain.resize(point);
  return plain;
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

/// What the row's type makes of a text; the text itself where it makes nothing of it.
json::Value from_text(const json::Value& value, const Knob& knob) {
  const std::string text = without_ornaments(value.get_ref<const std::string&>(),
                                             knob.type == KnobType::integer && knob.takes_flag);
  if (knob.type == KnobType::integer) {
    if (const auto number = parse_all<std::int64_t>(text)) return *number;
  }
  if (knob.type == KnobType::number) {
    const auto number = parse_all<double>(text);
    if (number && std::isfinite(*number)) return *number;
  }
  if (knob.pointer.starts_with("/zero_optimization/leaf_module/"))
    return json::Value::array({value});
  return value;
}

/// What a row of a model makes of a value that it does not take as it is; the value itself where it
/// makes nothing of it.
json::Value converted(const json::Value& value, const Knob& knob) {
  const bool is_numeric = knob.type == KnobType::integer || knob.type == KnobType::number;
  if (knob.type == KnobType::boolean) {
    if (const std::optional<bool> flag = lenient_boolean(value)) return *flag;
  }
  if (value.is_boolean() && is_numeric && knob.takes_flag) return value.get<bool>() ? 1 : 0;
  return value.is_string() ? from_text(value, knob) : value;
}

std::optional<KnobValue> read_integer(const json::Node& node, const Knob& knob,
                                      json::Problems& problems) {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto bound = [](double value, std::int64_t otherwise) {
    return std::isinf(value) ? otherwise : static_cast<std::int64_t>(value);
  };
  if (!knob.takes_float && node.value().is_number_float()) {
    problems.add(node.problem("expected an integer without a point, got " + node.value().dump()));
    return std::nullopt;
  }
  const auto number =
      node.integer(problems, bound(knob.low, Limits::min()), bound(knob.high, Limits::max()));
  if (!number) return std::nullopt;
  return *number;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

std::optional<KnobValue> read_text(const json::Node& node, const Knob& knob,
                                   json::Problems& problems) {
  const std::optional<std::string> text = node.string(problems);
  if (!text) return std::nullopt;
  if (knob.choices.empty() || find_choice(knob.choices, *text, knob.any_case)) return *text;
  problems.add(node.problem(
      fmt::format("expected one of {}, got \"{}\"", joined(choices_of(knob.choices)), *text)));
  return std::nullopt;
}

std::optional<KnobValue> read_list(const json::Node& node, const Knob& knob,
                                   json::Problems& problems) {
  if (!node.is_array()) {
    problems.add(node.problem("expected a list, got " + json::type_words(node.value())));
    return std::nullopt;
  }
  if (!knob.of_texts) return std::monostate();
  std::string lines;
  for (const json::Node& element : node.elements()) {
    Knob each = knob;
    each.type = KnobType::text;
    const std::optional<KnobValue> line = read_text(element, each, problems);
    if (!line) return std::nullopt;
    lines += std::get<std::string>(*line) + '\n';
  }
  return lines;
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
      return read_list(node, knob, problems);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string_view> choices_of(std::string_view choices) {
  std::vector<std::string_view> words;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    words.push_back(choices.substr(0, end));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return words;
}

std::optional<std::string_view> find_choice(std::string_view choices, std::string_view word,
                                            bool any_case) {
  for (const std::string_view choice : choices_of(choices))
    if (choice == word || (any_case && lower_case(choice) == lower_case(word))) return choice;
  return std::nullopt;
}

bool stands_for_default(const json::Node& node, const Knob& knob) {
  if (node.is_null()) return is_converted(knob) ? knob.fallback == "null" : knob.takes_null;
  return node.value() == "auto" && (is_converted(knob) || knob.takes_auto);
}

std::optional<KnobValue> read_knob(const json::Node& node, const Knob& knob,
                                   json::Problems& problems) {
  if (!is_converted(knob)) return read_strictly(node, knob, problems);
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
