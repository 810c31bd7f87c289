#include "schema_words.hpp"

#include <cmath>

#include <fmt/format.h>

namespace dstune::schema {

namespace {

constexpr std::string_view blanks = R"([ \t\r\n]*)";

/// As a JSON integer where it is one.
json::Value bound(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p62)
    return static_cast<std::int64_t>(value);
  return value;
}

json::Value in_range(const char* type, const Knob& knob) {
  json::Value schema = {{"type", type}};
  if (!std::isinf(knob.low)) schema["minimum"] = bound(knob.low);
  if (!std::isinf(knob.high)) schema["maximum"] = bound(knob.high);
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
  return {{{"const", value ? 1 : 0}}, word(words)};
}

std::string any_case(std::string_view text) {
  std::string pattern;
  for (const char letter : text) {
    const std::string lower = lower_case({&letter, 1});
    const bool is_letter = lower[0] >= 'a' && lower[0] <= 'z';
    pattern += is_letter ? fmt::format("[{}{}]", lower, static_cast<char>(lower[0] - 'a' + 'A'))
                         : std::string(1, letter);
  }
  return pattern;
}

/// The default alone, in every form of it.
json::Value only_default(const Knob& knob) {
  const auto fallback = json::Value::parse(knob.fallback);
  std::vector<json::Value> forms = {{{"const", fallback}}};
  if (fallback.is_boolean() && is_read_leniently(knob))
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

json::Value word(const std::vector<std::string_view>& words) {
  std::string pattern;
  for (const std::string_view one : words) pattern += (pattern.empty() ? "" : "|") + any_case(one);
  json::Value schema = {{"type", "string"}, {"pattern", "^(" + pattern + ")$"}};
  json::Value& examples = schema["examples"] = json::Value::array();
  for (const std::string_view one : words) examples.push_back(one);
  return schema;
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
  json::Value standing =
      any_of({json::Value{{"type", "null"}}, json::Value{{"const", "auto"}}, variable()});
  standing["description"] = "null and \"auto\" take DeepSpeed's default; \"$NAME\" is a variable.";
  const json::Value members = {{"additionalProperties", reference("unknown")}};
  json::Value unknown = members;
  unknown["description"] = "A key that is passed on; a list is candidates, and has some.";
  unknown["minItems"] = 1;
  unknown["items"] = members;
  return {{"variable", std::move(named)},
          {"default", std::move(standing)},
          {"unknown", std::move(unknown)},
          {"lenient_boolean", any_of(std::move(flags))},
          {"integer_text", numeric_text("[0-9]+")},
          {"number_text", numeric_text("([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?")}};
}

void annotate(json::Value& schema, std::string description, std::string_view fallback) {
  schema["description"] = std::move(description);
  const auto value = json::Value::parse(fallback);
  if (!value.is_null()) schema["default"] = value;
}

std::optional<json::Value> built_value_of(const Knob& knob) {
  if (knob.effect != KnobEffect::refused || knob.stages != 0b1111) return std::nullopt;
  return only_default(knob);
}

json::Value value_of(const Knob& knob) {
  switch (knob.type) {
    case KnobType::boolean:
      if (is_read_leniently(knob)) return reference("lenient_boolean");
      return {{"type", "boolean"}};
    case KnobType::integer:
      if (!is_read_leniently(knob)) return in_range("integer", knob);
      return any_of({in_range("integer", knob), reference("integer_text")});
    case KnobType::number:
      if (!is_read_leniently(knob)) return in_range("number", knob);
      return any_of({in_range("number", knob), reference("number_text")});
    case KnobType::text:
      if (!knob.choices.empty()) return word(choices_of(knob.choices));
      return {{"type", "string"}};
    case KnobType::object:
      return {{"type", "object"}};
    case KnobType::list:
      return {{"type", "array"}};
  }
  return true;
}

}  // namespace dstune::schema
