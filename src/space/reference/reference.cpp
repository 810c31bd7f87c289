#include "dstune/space/reference.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/core/settings.hpp"
#include "reference/key_words.hpp"
#include "reference/schema_words.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

// The JSON Schema.

using json::Value;
using schema::any_of;
using schema::list_of;
using schema::reference;

/// In the order of the enumerators.
constexpr std::array effect_sentences = {
    " Measured.", " No effect on the search.", " Not part of the measured step yet.",
    " Not built: members with another value than the default are not run."};

/// DeepSpeed's part: every value may be null, "auto", a variable or a list of candidates.
class ConfigSchema {
 public:
  explicit ConfigSchema(Value& definitions) : definitions_(&definitions) {}

  void add_properties(std::string_view section, Value& properties) {
    for (const std::size_t row : every_knob().below(section)) {
      const Knob& knob = every_knob().knobs()[row];
      properties[std::string(last_key(knob.pointer))] = property(knob);
    }
  }

 private:
  Value property(const Knob& knob) {
    const Value standing = schema::placeholder_schema(knob);
    std::vector<Value> forms = {one(knob), standing};
    Value element = any_of(forms);
    if (knob.candidates_are_given) {
      element = any_of({one(knob), reference("variable")});
    } else if (!knob.flag_member.empty()) {
      forms.insert(forms.begin(), Value{{"type", "boolean"}});
      element = any_of(forms);
    } else if (knob.pointer == "/zero_optimization/stage") {
      forms.push_back({{"const", "all"}});
    }
    Value list = list_of(std::move(element));
    if (const auto built = schema::built_value_of(knob)) {
      // Among candidates what is not built is left out; something has to remain.
      forms.front() = *built;
      list["contains"] = any_of({*built, standing});
    }
    forms.push_back(std::move(list));
    Value made = any_of(std::move(forms));
    const std::string stages = stages_of(knob);
    const std::string releases = releases_of(knob);
    schema::annotate(
        made,
        fmt::format("{}.{}{}{}", knob.help,
                    stages.empty() ? "" : fmt::format(" Acts at ZeRO stage {}.", stages),
                    releases.empty() ? "" : fmt::format(" DeepSpeed: {}.", releases),
                    effect_sentences.at(static_cast<std::size_t>(knob.effect))),
        knob.fallback);
    return made;
  }

  Value one(const Knob& knob) {
    if (knob.type == KnobType::list) return elements_of(knob);
    return knob.type == KnobType::object ? section(knob) : schema::value_of(knob);
  }

  Value section(const Knob& knob) {
    const std::string name = dotted(knob.pointer);
    if (!definitions_->contains(name)) {
      (*definitions_)[name] = nullptr;
      Value made = {{"type", "object"}, {"properties", Value::object()}};
      add_properties(knob.pointer, made["properties"]);
      if (knob.closed)
        made["additionalProperties"] = false;
      else if (knob.of_sections)
        made["additionalProperties"] = {{"type", "object"}};
      else if (!knob.pointer.starts_with("/optimizer"))
        made["additionalProperties"] = reference("unknown");
      (*definitions_)[name] = std::move(made);
    }
    return reference(name);
  }

  /// A list of fixed length has a row for each element.
  Value elements_of(const Knob& list) {
    Value elements = Value::array();
    for (const std::size_t row : every_knob().below(list.pointer))
      elements.push_back(any_of(
          {one(every_knob().knobs()[row]), schema::placeholder_schema(every_knob().knobs()[row])}));
    if (elements.empty()) return schema::value_of(list);
    const std::size_t count = elements.size();
    return {{"type", "array"},
            {"prefixItems", std::move(elements)},
            {"minItems", count},
            {"items", false}};
  }

  Value* definitions_;
};

/// The sections `autotuning` and `dstune`.
class SectionSchema {
 public:
  explicit SectionSchema(std::span<const SectionRow> rows) : rows_(rows) {}

  /// All forms of a key, which follow each other.
  [[nodiscard]] Value property(std::string_view pointer) const {
    std::vector<Value> forms;
    const SectionRow* first = nullptr;
    std::string description;
    for (const SectionRow& row : rows_) {
      if (row.pointer != pointer) continue;
      if (first == nullptr) first = &row;
      description += (description.empty() ? "" : "; ") + std::string(row.help);
      forms.push_back(form(row));
      if (row.is_listable) forms.push_back(list_of(any_of({form(row), reference("variable")})));
    }
    const bool takes_any_text = first->type == KnobType::text && first->choices.empty();
    if (!first->is_required && !first->is_alone) forms.push_back({{"type", "null"}});
    if (!takes_any_text) forms.push_back(reference("variable"));
    Value made = any_of(std::move(forms));
    schema::annotate(made, description + ".", first->fallback);
    return made;
  }

 private:
  [[nodiscard]] Value form(const SectionRow& row) const {
    if (row.type == KnobType::object) return object(row);
    Value made = schema::built_value_of(row).value_or(schema::value_of(row));
    if (row.type == KnobType::text && row.choices.empty()) {
      made["minLength"] = 1;
      if (!row.pattern.empty()) made["pattern"] = row.pattern;
    }
    return made;
  }

  [[nodiscard]] Value object(const SectionRow& row) const {
    Value made = {{"type", "object"}, {"properties", Value::object()}};
    for (const SectionRow& below : rows_) {
      if (parent_of(below.pointer) != row.pointer) continue;
      const std::string key(last_key(below.pointer));
      if (key == "*") {
        made["additionalProperties"] = property(below.pointer);
      } else if (!made["properties"].contains(key)) {
        made["properties"][key] = property(below.pointer);
      }
    }
    if (made["properties"].empty()) made.erase("properties");
    if (row.closed) made["additionalProperties"] = false;
    if (!row.closed && !row.pattern.empty()) made["propertyNames"] = {{"pattern", row.pattern}};
    add_conditions(row, made);
    return row.open_with.empty() ? made : opened(row, std::move(made));
  }

  /// A section that is open by a word has the keys of that word, and any others.
  [[nodiscard]] Value opened(const SectionRow& section, Value closed) const {
    const Prerequisite opener = prerequisite_in(section.open_with);
    Value properties = Value::object();
    Value required = Value::array();
    for (const SectionRow& row : rows_) {
      if (parent_of(row.pointer) != section.pointer) continue;
      const Prerequisite prerequisite = prerequisite_in(row.only_with);
      if (!prerequisite.key.empty() && prerequisite.words != opener.words) continue;
      properties[std::string(last_key(row.pointer))] = property(row.pointer);
      if (row.is_required) required.push_back(last_key(row.pointer));
    }
    return {{"type", "object"},
            {"if", has_word(opener, false)},
            {"then", {{"properties", std::move(properties)}, {"required", std::move(required)}}},
            {"else", std::move(closed)}};
  }

  /// {"properties": {key: word}, "required": [key]}: the section has this word.
  static Value has_word(const Prerequisite& prerequisite, bool or_variable) {
    Value is_word = schema::word({prerequisite.words}, true);
    if (or_variable) is_word = any_of({std::move(is_word), reference("variable")});
    return {{"properties", {{std::string(prerequisite.key), std::move(is_word)}}},
            {"required", {std::string(prerequisite.key)}}};
  }

  /// Keys that a section can not do without, and those that belong to a word of another key.
  void add_conditions(const SectionRow& section, Value& made) const {
    Value required = Value::array();
    Value conditions = Value::array();
    Value dependent = Value::object();
    std::string lone;
    for (const SectionRow& row : rows_) {
      if (parent_of(row.pointer) != section.pointer) continue;
      const std::string key(last_key(row.pointer));
      const Prerequisite prerequisite = prerequisite_in(row.only_with);
      if (row.is_alone) lone = key;
      if (!prerequisite.key.empty()) dependent[key] = has_word(prerequisite, true);
      if (!row.is_required) continue;
      if (prerequisite.key.empty())
        required.push_back(key);
      else
        conditions.push_back(
            {{"if", has_word(prerequisite, false)}, {"then", {{"required", {key}}}}});
    }
    if (!dependent.empty()) made["dependentSchemas"] = std::move(dependent);
    if (!lone.empty())
      conditions.push_back({{"if", {{"required", {lone}}}},
                            {"then", {{"maxProperties", 1}}},
                            {"else", {{"required", std::move(required)}}}});
    else if (!required.empty())
      made["required"] = std::move(required);
    if (!conditions.empty()) made["allOf"] = std::move(conditions);
  }

  std::span<const SectionRow> rows_;
};

}  // namespace

json::Value space_schema() {
  Value definitions = schema::shared_definitions();
  Value properties = Value::object();
  ConfigSchema(definitions).add_properties("", properties);
  properties["autotuning"] = SectionSchema(autotuning_rows()).property("/autotuning");
  properties["dstune"] = SectionSchema(dstune_rows()).property("/dstune");
  Value whole = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "space.json of dstune-mpi"},
      {"description",
       "A DeepSpeed config in which any value may be a list of candidates, DeepSpeed's section "
       "autotuning, and the section dstune. Other top-level keys are passed on."},
      {"type", "object"},
      {"properties", std::move(properties)},
      {"$defs", std::move(definitions)}};
  schema::share_repeated(whole);
  return whole;
}

std::string space_schema_text() {
  return schema::text_of(space_schema(), 0) + "\n";
}

}  // namespace dstune
