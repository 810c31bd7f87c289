#include "reference/schema_words.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "dstune/core/settings.hpp"

namespace dstune::schema {

namespace {

using json::Value;

constexpr std::string_view blanks = R"([ \t\r\n]*)";

/// A JSON integer where it is one.
Value bound(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p62)
    return static_cast<std::int64_t>(value);
  return value;
}

Value in_range(const char* type, const Key& knob) {
  Value schema = {{"type", type}};
  if (!std::isinf(knob.low)) schema["minimum"] = bound(knob.low);
  if (const double high = std::min(knob.high, knob.largest_here); !std::isinf(high))
    schema["maximum"] = bound(high);
  return schema;
}

/// A number written as a text; that it is in range no schema can say.
Value numeric_text(const char* digits) {
  return {{"type", "string"}, {"pattern", fmt::format("^{}\\+?-?{}{}$", blanks, digits, blanks)}};
}

/// Values that pydantic takes for true, or for false.
std::vector<Value> lenient_boolean(bool value) {
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

Value number_of(const Key& knob, const char* type) {
  if (!every_knob().is_converted(knob)) return in_range(type, knob);
  std::vector<Value> forms = {in_range(type, knob), reference(fmt::format("{}_text", type))};
  if (knob.takes_flag) forms.push_back({{"type", "boolean"}});
  return any_of(std::move(forms));
}

Value list_value_of(const Key& knob) {
  Value list = {{"type", "array"}};
  if (!knob.of_texts) return list;
  const Value text = knob.choices.empty() ? Value{{"type", "string"}}
                                          : word(choices_of(knob.choices), knob.any_case);
  list["items"] = text;
  return every_knob().is_converted(knob) ? any_of({std::move(list), text}) : list;
}

/// The default alone, in every form of it.
Value only_default(const Key& knob) {
  const auto fallback = Value::parse(knob.fallback);
  std::vector<Value> forms = {{{"const", fallback}}};
  if (fallback.is_boolean() && every_knob().is_converted(knob))
    for (Value& form : lenient_boolean(fallback.get<bool>())) forms.push_back(std::move(form));
  return any_of(std::move(forms));
}

// Schemas that are there several times.

/// The schema without what a place says of it.
Value core_of(const Value& schema) {
  Value core = schema;
  core.erase("description");
  core.erase("default");
  return core;
}

/// Calls `visit` with each schema right inside one.
template <class Visit>
void for_each_inside(Value& schema, const Visit& visit) {
  for (auto member = schema.begin(); member != schema.end(); ++member) {
    const std::string& key = member.key();
    Value& value = member.value();
    if (key == "properties" || key == "dependentSchemas" || key == "$defs" || key == "anyOf" ||
        key == "allOf" || key == "prefixItems") {
      for (Value& each : value) visit(each);
    } else if ((key == "items" || key == "contains" || key == "additionalProperties" ||
                key == "if" || key == "then" || key == "else") &&
               value.is_object())
      visit(value);
  }
}

std::string plain_word(const Value& value) {
  std::string word = value.is_string() ? value.get<std::string>() : value.dump();
  std::erase_if(word, [](char c) { return c == '"'; });
  for (char& c : word)
    if (std::string_view("./\\ []{},~").find(c) != std::string_view::npos) c = '_';
  return word;
}

/// The first of many.
std::string names_of(const Value& words) {
  constexpr std::size_t most = 4;
  std::vector<std::string> names;
  for (const Value& word : words)
    if (names.size() < most) names.push_back(plain_word(word));
  if (words.size() > most) names.emplace_back("others");
  return fmt::format("{}", fmt::join(names, "_or_"));
}

std::string range_name(const Value& schema, std::string name) {
  if (schema.contains("minimum")) name += "_from_" + plain_word(schema["minimum"]);
  if (schema.contains("maximum")) name += "_to_" + plain_word(schema["maximum"]);
  return name;
}

/// In words, what a schema takes.
std::string name_of(const Value& schema) {
  if (schema.contains("$ref"))
    return schema["$ref"].get<std::string>().substr(std::string_view("#/$defs/").size());
  if (schema.contains("anyOf")) {
    std::vector<std::string> names;
    for (const Value& form : schema["anyOf"]) names.push_back(name_of(form));
    return fmt::format("{}", fmt::join(names, "_or_"));
  }
  if (schema.contains("const")) return "only_" + plain_word(schema["const"]);
  if (schema.contains("enum")) return names_of(schema["enum"]);
  if (schema.contains("examples")) return names_of(schema["examples"]);
  const std::string type = schema.value("type", "any");
  if (type == "array" && schema.contains("items") && schema.contains("minItems"))
    return "candidates";
  return type == "string" ? "text" : range_name(schema, type);
}

class Sharing {
 public:
  explicit Sharing(Value& whole) : whole_(&whole) {}

  void run() {
    for_each_inside(*whole_, [&](Value& schema) { count(schema); });
    for (Value& schema : (*whole_)["properties"]) share(schema);
    for (Value& schema : (*whole_)["$defs"]) share_inside(schema);
    (*whole_)["$defs"].update(shared_);
  }

 private:
  /// Parts of something repeated are there once.
  void count(Value& schema) {
    if (++counts_[core_of(schema).dump()] == 1)
      for_each_inside(schema, [&](Value& inside) { count(inside); });
  }

  /// A schema of three lines is no longer than a reference.
  [[nodiscard]] bool is_shared(const Value& core) const {
    const bool is_short = core.size() == 1 && !core.begin().value().is_structured();
    return !is_short && !core.contains("properties") && counts_.at(core.dump()) > 1;
  }

  void share_inside(Value& schema) {
    for_each_inside(schema, [&](Value& inside) { share(inside); });
  }

  void share(Value& schema) {
    const Value core = core_of(schema);
    if (!is_shared(core)) return share_inside(schema);
    const std::string text = core.dump();
    if (!names_.contains(text)) names_.emplace(text, add(core));
    Value place = reference(names_.at(text));
    for (const char* key : {"description", "default"})
      if (schema.contains(key)) place[key] = schema[key];
    schema = std::move(place);
  }

  std::string add(const Value& core) {
    const std::string wanted = name_of(core);
    Value definition = core;
    share_inside(definition);
    const auto is_taken = [&](const std::string& name) {
      return shared_.contains(name) || (*whole_)["$defs"].contains(name);
    };
    std::string name = wanted;
    for (int count = 2; is_taken(name); ++count) name = fmt::format("{}_{}", wanted, count);
    shared_[name] = std::move(definition);
    return name;
  }

  Value* whole_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::string> names_;  ///< a schema's text → its definition
  Value shared_ = Value::object();
};

}  // namespace

Value reference(std::string_view name) {
  return {{"$ref", fmt::format("#/$defs/{}", name)}};
}

Value any_of(std::vector<Value> schemas) {
  if (schemas.size() == 1) return std::move(schemas.front());
  Value list = Value::array();
  for (Value& schema : schemas) list.push_back(std::move(schema));
  return {{"anyOf", std::move(list)}};
}

Value list_of(Value element) {
  return {{"type", "array"}, {"minItems", 1}, {"items", std::move(element)}};
}

Value word(const std::vector<std::string_view>& words, bool any_case) {
  Value listed = Value::array();
  for (const std::string_view one : words) listed.push_back(one);
  if (!any_case) return {{"enum", std::move(listed)}};
  std::string pattern;
  for (const std::string_view one : words)
    pattern += (pattern.empty() ? "" : "|") + letters_of_any_case(one);
  return {{"type", "string"}, {"pattern", "^(" + pattern + ")$"}, {"examples", std::move(listed)}};
}

Value shared_definitions() {
  std::vector<Value> flags = {{{"type", "boolean"}}};
  for (const bool value : {true, false})
    for (Value& form : lenient_boolean(value)) flags.push_back(std::move(form));
  const Value variable = {{"type", "string"}, {"pattern", R"(^\$[A-Za-z0-9_]+$)"}};
  Value named = variable;
  named["description"] = "Stands for the value of that name in dstune.variables.";
  const Value null = {{"type", "null"}};
  const Value automatic = {{"const", "auto"}};
  Value standing = any_of({null, automatic, variable});
  standing["description"] =
      "null takes DeepSpeed's default, \"auto\" what the training puts there; \"$NAME\" is a "
      "variable.";
  const Value members = {{"additionalProperties", reference("unknown")}};
  Value unknown = members;
  unknown["description"] = "A key that is passed on; a list is candidates, and has some.";
  unknown["minItems"] = 1;
  unknown["items"] = members;
  return {{"variable", std::move(named)},
          {"default", std::move(standing)},
          {"null_or_variable", any_of({null, variable})},
          {"auto_or_variable", any_of({automatic, variable})},
          {"unknown", std::move(unknown)},
          {"lenient_boolean", any_of(std::move(flags))},
          {"integer_text", numeric_text("[0-9][0-9_]*(\\.0*)?")},
          {"number_text", numeric_text("([0-9][0-9_]*\\.?[0-9_]*|\\.[0-9]+)([eE][+-]?[0-9]+)?")}};
}

void annotate(Value& schema, std::string description, std::string_view fallback) {
  schema["description"] = std::move(description);
  const auto value = Value::parse(fallback);
  if (!value.is_null()) schema["default"] = value;
}

std::optional<Value> built_value_of(const Key& knob) {
  if (knob.effect != KnobEffect::refused || knob.stages != 0b1111) return std::nullopt;
  return only_default(knob);
}

Value placeholder_schema(const Key& knob) {
  const bool takes_null = every_knob().takes_null(knob);
  const bool takes_auto = every_knob().takes_auto(knob);
  if (takes_null && takes_auto) return reference("default");
  if (takes_null) return reference("null_or_variable");
  return reference(takes_auto ? "auto_or_variable" : "variable");
}

Value value_of(const Key& knob) {
  switch (knob.type) {
    case KnobType::boolean:
      if (every_knob().is_converted(knob)) return reference("lenient_boolean");
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

std::string text_of(const Value& value, std::size_t indent) {
  constexpr std::size_t columns = 100;
  std::string line = value.dump();
  if (!value.is_structured() || value.empty() || indent + line.size() <= columns) return line;
  const std::string margin(indent + 2, ' ');
  std::vector<std::string> members;
  for (auto member = value.begin(); member != value.end(); ++member) {
    const std::string key = value.is_object() ? Value(member.key()).dump() + ": " : "";
    members.push_back(margin + key + text_of(*member, indent + 2));
  }
  const std::string inside = fmt::format("{}", fmt::join(members, ",\n"));
  const std::string end(indent, ' ');
  return value.is_object() ? fmt::format("{{\n{}\n{}}}", inside, end)
                           : fmt::format("[\n{}\n{}]", inside, end);
}

void share_repeated(Value& schema) {
  Sharing(schema).run();
}

}  // namespace dstune::schema
