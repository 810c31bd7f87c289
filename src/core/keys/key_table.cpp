#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/keys.hpp"

namespace dstune {

namespace {

KnobValue parse_default(const Key& key) {
  const json::Value value = json::Value::parse(key.fallback);
  if (value.is_null()) return {};
  switch (key.type) {
    case KnobType::boolean:
      return value.get<bool>();
    case KnobType::integer:
      return value.get<std::int64_t>();
    case KnobType::number:
      return value.get<double>();
    case KnobType::text:
      return value.get<std::string>();
    default:
      return {};
  }
}

const std::vector<std::size_t>& rows_in(
    const std::unordered_map<std::string_view, std::vector<std::size_t>>& rows,
    std::string_view pointer) {
  static const std::vector<std::size_t> none;
  const auto found = rows.find(pointer);
  return found == rows.end() ? none : found->second;
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

/// Pydantic's reading of numbers in texts: "7_000" and, for integers, "7.0" too.
std::string plain_number_text(std::string_view text, bool is_integer) {
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
  if (value.is_string()) word = value.get_ref<const std::string&>();
  if (value.is_number() && value == 0) word = "0";
  if (value.is_number() && value == 1) word = "1";
  if (find_choice("1|on|t|true|y|yes", word, true)) return true;
  if (find_choice("0|off|f|false|n|no", word, true)) return false;
  return std::nullopt;
}

/// A text as a value of the row's type; the text itself where it makes nothing of it.
json::Value from_text(const json::Value& value, const Key& key, bool takes_point) {
  const bool is_integer = key.type == KnobType::integer;
  const std::string text = plain_number_text(value.get_ref<const std::string&>(),
                                             is_integer && key.takes_flag && takes_point);
  if (key.type == KnobType::integer) {
    if (const auto number = parse_all<std::int64_t>(text)) return *number;
  }
  if (key.type == KnobType::number) {
    const auto number = parse_all<double>(text);
    if (number && std::isfinite(*number)) return *number;
  }
  if (key.takes_lone_text) return json::Value::array({value});
  return value;
}

/// A value that a row of a model does not take as it is, as the row converts it; the value itself
/// where it makes nothing of it.
json::Value converted(const json::Value& value, const Key& key, bool takes_point = true) {
  const bool is_numeric = key.type == KnobType::integer || key.type == KnobType::number;
  if (key.type == KnobType::boolean) {
    if (const std::optional<bool> flag = lenient_boolean(value)) return *flag;
  }
  if (value.is_boolean() && is_numeric && key.takes_flag) return value.get<bool>() ? 1 : 0;
  return value.is_string() && key.takes_texts ? from_text(value, key, takes_point) : value;
}

/// A number without its fraction; the number itself where no integer here holds it.
json::Value cut(const json::Value& value) {
  constexpr double largest = 9.0e18;
  if (std::abs(value.get<double>()) >= largest) return value;
  return static_cast<std::int64_t>(value.get<double>());
}

/// The same by pydantic's first major release, which cuts fractions and spells numbers out.
json::Value converted_as_by_pydantic_1(const json::Value& value, const Key& key) {
  // A member of an enumeration is compared.
  if (key.is_name) return value.is_string() ? value : converted(value, key);
  if (key.type == KnobType::integer && value.is_number_float()) return cut(value);
  const bool is_spelled = value.is_number() || value.is_boolean();
  if (key.type == KnobType::text && key.choices.empty() && key.takes_flag && is_spelled)
    return value.dump();
  return converted(value, key, false);
}

/// A value that DeepSpeed's own code looks at, as it takes it; the value itself where it does not.
json::Value looked_at(const json::Value& value, const Key& key) {
  if (key.look == KnobLook::flag && value.is_number_integer()) return value != 0;
  if (key.look == KnobLook::truth && value.is_number() && (value == 0 || value == 1))
    return value == 1;
  if (key.takes_lone_text && value.is_string()) return json::Value::array({value});
  if (key.takes_lone_text && value == json::Value::object()) return json::Value::array();
  if (key.look == KnobLook::divided && !is_true(value)) return 0;
  const bool is_number = key.look >= KnobLook::number;
  if (is_number && value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (key.look != KnobLook::whole) return value;
  if (value.is_number_float()) return cut(value);
  if (!value.is_string()) return value;
  const auto number =
      parse_all<std::int64_t>(plain_number_text(value.get_ref<const std::string&>(), false));
  return number ? json::Value(*number) : value;
}

std::optional<KnobValue> read_integer(const json::Node& node, const Key& key,
                                      json::Problems& problems) {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto bound = [](double value, std::int64_t otherwise) {
    return std::isinf(value) ? otherwise : static_cast<std::int64_t>(value);
  };
  if (!key.takes_float && node.value().is_number_float()) {
    problems.add(node.problem("expected an integer without a point, got " + node.value().dump()));
    return std::nullopt;
  }
  return node.integer(problems, bound(key.low, Limits::min()),
                      bound(std::min(key.high, key.largest_here), Limits::max()));
}

std::optional<KnobValue> read_text(const json::Node& node, const Key& key,
                                   json::Problems& problems) {
  const std::optional<std::string> text = node.string(problems);
  if (!text) return std::nullopt;
  if (text->empty() && !key.takes_empty)
    problems.add(node.problem("expected a text that is not empty"));
  if (key.choices.empty()) return *text;
  if (const auto word = find_choice(key.choices, *text, key.any_case)) return std::string(*word);
  const std::vector<std::string_view> known = choices_of(key.choices);
  problems.add(node.problem(fmt::format("expected one of {}, got \"{}\"{}", fmt::join(known, ", "),
                                        *text, json::suggestion(*text, known))));
  return std::nullopt;
}

std::optional<KnobValue> read_list(const json::Node& node, const Key& key,
                                   json::Problems& problems) {
  if (!node.is_array()) {
    problems.add(node.problem("expected a list, got " + json::type_words(node.value())));
    return std::nullopt;
  }
  if (!key.of_texts) return std::monostate();
  std::string lines;
  for (const json::Node& element : node.elements()) {
    const std::optional<KnobValue> line = read_text(element, key, problems);
    if (!line) return std::nullopt;
    lines += std::get<std::string>(*line) + '\n';
  }
  return lines;
}

std::optional<KnobValue> read_strictly(const json::Node& node, const Key& key,
                                       json::Problems& problems) {
  switch (key.type) {
    case KnobType::boolean:
      return node.boolean(problems);
    case KnobType::integer:
      return read_integer(node, key, problems);
    case KnobType::number:
      return node.number(problems, key.low, key.high);
    case KnobType::text:
      return read_text(node, key, problems);
    case KnobType::object:
      if (node.expect_object(problems)) return std::monostate();
      return std::nullopt;
    case KnobType::list:
      return read_list(node, key, problems);
  }
  return std::nullopt;
}

}  // namespace

bool is_true(const json::Value& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

std::vector<std::string_view> choices_of(std::string_view choices) {
  std::vector<std::string_view> words;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    words.push_back(choices.substr(0, end));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return words;
}

std::vector<std::string_view> choices_of(const std::string& table, std::string_view pointer) {
  for (const Key& key : key_rows(table))
    if (key.pointer == pointer && !key.choices.empty()) return choices_of(key.choices);
  throw LogicError("a key with choices");
}

std::optional<std::string_view> find_choice(std::string_view choices, std::string_view word,
                                            bool any_case) {
  for (const std::string_view choice : choices_of(choices))
    if (choice == word || (any_case && lower_case(choice) == lower_case(word))) return choice;
  return std::nullopt;
}

std::optional<KnobValue> KeyTable::read_value(const json::Node& node, const Key& key,
                                              json::Problems& problems) const {
  // A model inside another takes what Python's dict() takes; some sections of the root are inside.
  const bool is_member_model =
      key.type == KnobType::object && (is_converted(key) || key.takes_auto);
  if (is_member_model && is_read_by_pydantic_1() && node.value() == "") return std::monostate();
  if (!is_converted(key))
    return read_strictly({node.document(), looked_at(node.value(), key), node.pointer()}, key,
                         problems);
  const json::Value value = is_read_by_pydantic_1() ? converted_as_by_pydantic_1(node.value(), key)
                                                    : converted(node.value(), key);
  return read_strictly({node.document(), value, node.pointer()}, key, problems);
}

std::string_view last_key(std::string_view pointer) {
  return pointer.substr(pointer.rfind('/') + 1);
}

std::string_view parent_of(std::string_view pointer) {
  return pointer.substr(0, pointer.rfind('/'));
}

std::string dotted(std::string_view pointer) {
  std::string name(pointer.substr(1));
  for (char& c : name)
    if (c == '/') c = '.';
  return name;
}

Prerequisite prerequisite_in(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos) return {};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

KeyTable::KeyTable(std::vector<Key> keys, Order order, const std::vector<Key>& others,
                   Version release)
    : keys_(std::move(keys)), order_(order), release_(release), aliases_(keys_.size()) {
  for (const Key& key : others) others_.try_emplace(key.pointer, key);
  for (std::size_t row = 0; row < keys_.size(); ++row) {
    const Key& key = keys_[row];
    auto& forms = forms_[key.pointer];
    if (forms.empty()) below_[parent_of(key.pointer)].push_back(row);
    forms.push_back(row);
    if (!key.alias_of.empty()) aliases_[find(key.alias_of).value()].push_back(row);
    defaults_.push_back(parse_default(key));
  }
}

std::optional<std::size_t> KeyTable::find(std::string_view pointer) const {
  const auto& rows = forms(pointer);
  return rows.empty() ? std::nullopt : std::optional(rows.front());
}

const std::vector<std::size_t>& KeyTable::below(std::string_view pointer) const {
  return rows_in(below_, pointer);
}

const std::vector<std::size_t>& KeyTable::forms(std::string_view pointer) const {
  return rows_in(forms_, pointer);
}

bool KeyTable::is_idle_name(const json::Node& root, const Key& key) const {
  if (key.alias_of.empty() || !parent_of(key.alias_of).empty()) return false;
  const auto first = root.find(std::string(last_key(key.alias_of)));
  return first && !first->is_null();
}

bool KeyTable::was_removed(std::string_view pointer) const {
  const auto other = others_.find(pointer);
  return other != others_.end() && other->second.until != Version{} &&
         other->second.until <= release_;
}

std::string KeyTable::words_of_other_release(std::string_view pointer) const {
  const auto other = others_.find(pointer);
  if (other == others_.end()) return "";
  if (was_removed(pointer))
    return fmt::format("removed in DeepSpeed {}: remove it", to_text(other->second.until));
  return fmt::format(
      "known from DeepSpeed {} on: remove it, or name the version that trains with "
      "--deepspeed-version",
      to_text(other->second.since));
}

bool KeyTable::is_read_by_pydantic_1() const {
  constexpr Version with_pydantic_2{0, 15, 0};
  return release_ != Version{} && release_ < with_pydantic_2;
}

bool KeyTable::is_converted(const Key& key) const {
  const auto section = find(parent_of(key.pointer));
  return section && keys_[*section].model;
}

bool KeyTable::is_passed_on(const Key& key) const {
  return release_ != Version{} && key.look == KnobLook::none &&
         (key.type == KnobType::object || !is_converted(key));
}

bool KeyTable::is_unchecked(const Key& key) const {
  // DeepSpeed's engine knows some words and no others.
  if (!is_passed_on(key) || !key.choices.empty()) return false;
  // DeepSpeed takes the truth of it, and so does our step.
  if (key.type == KnobType::boolean) return true;
  // Releases that read a precision's section by hand take its numbers as they are.
  const std::string_view section = parent_of(key.pointer);
  const bool is_of_precision = section == "/fp16" || section == "/bf16" || section == "/bfloat16";
  if (is_of_precision) return true;
  return key.effect == KnobEffect::inert || key.effect == KnobEffect::not_built;
}

bool KeyTable::takes_null(const Key& key) const {
  return is_converted(key) ? key.fallback == "null" : key.takes_null;
}

bool KeyTable::takes_auto(const Key& key) const {
  const auto section = find(parent_of(key.pointer));
  if (section && keys_[*section].keeps_auto) return false;
  return key.takes_auto || is_converted(key);
}

bool KeyTable::stands_for_default(const json::Node& node, const Key& key) const {
  return node.is_null() ? takes_null(key) : node.value() == "auto" && takes_auto(key);
}

}  // namespace dstune
