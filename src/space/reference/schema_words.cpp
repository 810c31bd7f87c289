#include "reference/schema_words.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/knobs.hpp"

namespace dstune::schema {

namespace {

constexpr std::string_view blanks = R"([ \t\r\n]*)";

/// As a JSON integer where it is one.
json::Value bound(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p62)
    return static_cast<std::int64_t>(value);
  return value;
}

json::Value in_range(const char* type, const Key& knob) {
  json::Value schema = {{"type", type}};
  if (!std::isinf(knob.low)) schema["minimum"] = bound(knob.low);
  if (const double high = std::min(knob.high, knob.largest_here); !std::isinf(high))
    schema["maximum"] = bound(high);
  return schema;
}

/// A number written as a text; that it is in range no schema can say.
json::Value numeric_text(const char* digits) {
  return {{"type", "string"}, {"pattern", fmt::format("^{}\\+?-?{}{}$", blanks, digits, blanks)}};
}

/// What pydantic takes for true, or for false.
std::vector<json::Value> lenient_boolean(bool value) {
  const std::vector<std::string_view> words =
      value ? std::vector<std::string_view>{"1", "on", "t", "true", "y", "yes"}
            : std::vector<std::string_view>{"0", "off", "f", "false", "n", "no"};
  return {{{"const", value ? 1 : 0}}, word(words, true)};
}

std::string letters_of_any_case(std::string_view text) {
  std::string pattern;
  for (const char letter : text) {
    const std::string lower = lower_case({&letter, 1});
    const bool is_letter = lower[0] >= 'a' && lower[0] <= 'z';
    pattern += is_letter ? fmt::format("[{}{}]", lower, static_cast<char>(lower[0] - 'a' + 'A'))
                         : std::string(1, letter);
  }
  return pattern;
}

json::Value number_of(const Key& knob, const char* type) {
  if (!knob_table().is_converted(knob)) return in_range(type, knob);
  std::vector<json::Value> forms = {in_range(type, knob), reference(fmt::format("{}_text", type))};
  if (knob.takes_flag) forms.push_back({{"type", "boolean"}});
  return any_of(std::move(forms));
}

json::Value list_value_of(const Key& knob) {
  json::Value list = {{"type", "array"}};
  if (!knob.of_texts) return list;
  const json::Value text = knob.choices.empty() ? json::Value{{"type", "string"}}
                                                : word(choices_of(knob.choices), knob.any_case);
  list["items"] = text;
  return knob_table().is_converted(knob) ? any_of({std::move(list), text}) : list;
}

/// The default alone, in every form of it.
json::Value only_default(const Key& knob) {
  const auto fallback = json::Value::parse(knob.fallback);
  std::vector<json::Value> forms = {{{"const", fallback}}};
  if (fallback.is_boolean() && knob_table().is_converted(knob))
    for (json::Value& form : lenient_boolean(fallback.get<bool>()))
      forms.push_back(std::move(form));
  return any_of(std::move(forms));
}

}  // namespace

json::Value reference(std::string_view name) {
  return {{"$ref", fmt::format("#/$defs/{}", name)}};
}

json::Value any_of(std::vector<json::Value> schemas) {
  if (schemas.size() == 1) return std::move(schemas.front());
  json::Value list = json::Value::array();
  for (json::Value& schema : schemas) list.push_back(std::move(schema));
  return {{"anyOf", std::move(list)}};
}

json::Value list_of(json::Value element) {
  return {{"type", "array"}, {"minItems", 1}, {"items", std::move(element)}};
}

json::Value word(const std::vector<std::string_view>& words, bool any_case) {
  json::Value listed = json::Value::array();
  for (const std::string_view one : words) listed.push_back(one);
  if (!any_case) return {{"enum", std::move(listed)}};
  std::string pattern;
  for (const std::string_view one : words)
    pattern += (pattern.empty() ? "" : "|") + letters_of_any_case(one);
  return {{"type", "string"}, {"pattern", "^(" + pattern + ")$"}, {"examples", std::move(listed)}};
}

json::Value variable() {
  return {{"type", "string"}, {"pattern", R"(^\$[A-Za-z0-9_]+$)"}};
}

json::Value shared_definitions() {
  std::vector<json::Value> flags = {{{"type", "boolean"}}};
  for (const bool value : {true, false})
    for (json::Value& form : lenient_boolean(value)) flags.push_back(std::move(form));
  json::Value named = variable();
  named["description"] = "Stands for the value of that name in dstune.variables.";
  const json::Value null = {{"type", "null"}};
  const json::Value automatic = {{"const", "auto"}};
  json::Value standing = any_of({null, automatic, variable()});
  standing["description"] = "null and \"auto\" take DeepSpeed's default; \"$NAME\" is a variable.";
  const json::Value members = {{"additionalProperties", reference("unknown")}};
  json::Value unknown = members;
  unknown["description"] = "A key that is passed on; a list is candidates, and has some.";
  unknown["minItems"] = 1;
  unknown["items"] = members;
  return {{"variable", std::move(named)},
          {"default", std::move(standing)},
          {"null_or_variable", any_of({null, variable()})},
          {"auto_or_variable", any_of({automatic, variable()})},
          {"unknown", std::move(unknown)},
          {"lenient_boolean", any_of(std::move(flags))},
          {"integer_text", numeric_text("[0-9][0-9_]*(\\.0*)?")},
          {"number_text", numeric_text("([0-9][0-9_]*\\.?[0-9_]*|\\.[0-9]+)([eE][+-]?[0-9]+)?")}};
}

void annotate(json::Value& schema, std::string description, std::string_view fallback) {
  schema["description"] = std::move(description);
  const auto value = json::Value::parse(fallback);
  if (!value.is_null()) schema["default"] = value;
}

std::optional<json::Value> built_value_of(const Key& knob) {
  if (knob.effect != KnobEffect::refused || knob.stages != 0b1111) return std::nullopt;
  return only_default(knob);
}

json::Value placeholder_schema(const Key& knob) {
  const bool takes_null = knob_table().takes_null(knob);
  const bool takes_auto = knob_table().takes_auto(knob);
  if (takes_null && takes_auto) return reference("default");
  if (takes_null) return reference("null_or_variable");
  return reference(takes_auto ? "auto_or_variable" : "variable");
}

json::Value value_of(const Key& knob) {
  switch (knob.type) {
    case KnobType::boolean:
      if (knob_table().is_converted(knob)) return reference("lenient_boolean");
      return {{"type", "boolean"}};
    case KnobType::integer:
      return number_of(knob, "integer");
    case KnobType::number:
      return number_of(knob, "number");
    case KnobType::text:
      if (!knob.choices.empty()) return word(choices_of(knob.choices), knob.any_case);
      return {{"type", "string"}};
    case KnobType::object:
      return {{"type", "object"}};
    case KnobType::list:
      return list_value_of(knob);
  }
  return true;
}

}  // namespace dstune::schema
