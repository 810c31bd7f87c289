#include <fmt/format.h>

#include "batch_dimensions.hpp"
#include "dstune/core/knobs.hpp"
#include "dstune/space/reference.hpp"
#include "reference/schema_words.hpp"
#include "sections/section_table.hpp"

namespace dstune {

namespace {

using json::Value;
using schema::any_of;
using schema::list_of;
using schema::reference;

/// "zero_optimization.offload_param"
std::string dotted_name(std::string_view pointer) {
  std::string name(pointer.substr(1));
  for (char& c : name)
    if (c == '/') c = '.';
  return name;
}

std::string stages_text(unsigned stages) {
  if (stages == 0b1111) return "";
  std::string text;
  for (unsigned stage = 0; stage < 4; ++stage)
    if ((stages >> stage & 1U) != 0) text += (text.empty() ? "" : ", ") + std::to_string(stage);
  return fmt::format(" Acts at ZeRO stage {}.", text);
}

std::string_view effect_sentence(KnobEffect effect) {
  switch (effect) {
    case KnobEffect::measured:
      return " Measured.";
    case KnobEffect::inert:
      return " No effect on the search.";
    case KnobEffect::not_built:
      return " Not part of the measured step yet.";
    case KnobEffect::refused:
      return " Not built: members with another value than the default are not run.";
  }
  return "";
}

/// DeepSpeed's part: every value may be null, "auto", a variable or a list of candidates.
class ConfigSchema {
 public:
  explicit ConfigSchema(Value& definitions) : definitions_(&definitions) {}

  void add_properties(std::string_view section, Value& properties) {
    for (const Knob& knob : knobs()) {
      if (knob.pointer.substr(0, knob.pointer.rfind('/')) != section) continue;
      properties[std::string(knob.pointer.substr(section.size() + 1))] = property(knob);
    }
  }

 private:
  Value property(const Knob& knob) {
    const Value standing = schema::standing_of(knob);
    std::vector<Value> forms = {one(knob), standing};
    Value element = any_of(forms);
    if (is_batch_key(std::string(knob.pointer.substr(1)))) {
      // A micro-batch that is a candidate is a size.
      if (knob.pointer == "/train_micro_batch_size_per_gpu")
        element = any_of({one(knob), reference("variable")});
    } else if (knob.pointer == "/zero_optimization") {
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
    const std::string stages = stages_text(knob.stages);
    schema::annotate(made, fmt::format("{}.{}{}", knob.help, stages, effect_sentence(knob.effect)),
                     knob.fallback);
    return made;
  }

  Value one(const Knob& knob) {
    if (is_batch_key(std::string(knob.pointer.substr(1))))
      return {{"type", "integer"}, {"minimum", 1}, {"maximum", largest_batch_size}};
    if (knob.type == KnobType::list) return elements_of(knob);
    return knob.type == KnobType::object ? section(knob) : schema::value_of(knob);
  }

  Value section(const Knob& knob) {
    const std::string name = dotted_name(knob.pointer);
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
    for (const Knob& knob : knobs())
      if (knob.pointer.substr(0, knob.pointer.rfind('/')) == list.pointer)
        elements.push_back(any_of({one(knob), schema::standing_of(knob)}));
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
      if (row.key.pointer != pointer) continue;
      if (first == nullptr) first = &row;
      description += (description.empty() ? "" : "; ") + std::string(row.key.help);
      forms.push_back(form(row));
      if (row.is_listable) forms.push_back(list_of(any_of({form(row), reference("variable")})));
    }
    const bool takes_any_text = first->key.type == KnobType::text && first->key.choices.empty();
    if (!first->is_required && !first->is_alone) forms.push_back({{"type", "null"}});
    if (!takes_any_text) forms.push_back(reference("variable"));
    Value made = any_of(std::move(forms));
    schema::annotate(made, description + ".", first->key.fallback);
    return made;
  }

 private:
  [[nodiscard]] Value form(const SectionRow& row) const {
    if (row.key.type == KnobType::object) return object(row);
    Value made = schema::built_value_of(row.key).value_or(schema::value_of(row.key));
    if (row.key.type == KnobType::text && row.key.choices.empty()) {
      made["minLength"] = 1;
      if (!row.pattern.empty()) made["pattern"] = row.pattern;
    }
    return made;
  }

  [[nodiscard]] Value object(const SectionRow& row) const {
    Value made = {{"type", "object"}, {"properties", Value::object()}};
    for (const SectionRow& below : rows_) {
      if (!is_below(below, row.key.pointer)) continue;
      const std::string key(last_key(below));
      if (key == "*") {
        made["additionalProperties"] = property(below.key.pointer);
      } else if (!made["properties"].contains(key)) {
        made["properties"][key] = property(below.key.pointer);
      }
    }
    if (made["properties"].empty()) made.erase("properties");
    if (row.key.closed) made["additionalProperties"] = false;
    if (!row.key.closed && !row.pattern.empty()) made["propertyNames"] = {{"pattern", row.pattern}};
    add_conditions(row, made);
    return row.open_with.empty() ? made : opened(row, std::move(made));
  }

  /// With the word that opens a section its own keys are those of that word, and any others.
  [[nodiscard]] Value opened(const SectionRow& section, Value closed) const {
    const Companion opener = companion_in(section.open_with);
    Value properties = Value::object();
    Value required = Value::array();
    for (const SectionRow& row : rows_) {
      if (!is_below(row, section.key.pointer)) continue;
      const Companion companion = companion_in(row.only_with);
      if (!companion.key.empty() && companion.word != opener.word) continue;
      properties[std::string(last_key(row))] = property(row.key.pointer);
      if (row.is_required) required.push_back(last_key(row));
    }
    return {{"type", "object"},
            {"if", has_word(opener, false)},
            {"then", {{"properties", std::move(properties)}, {"required", std::move(required)}}},
            {"else", std::move(closed)}};
  }

  /// {"properties": {key: word}, "required": [key]}: the section has this word.
  static Value has_word(const Companion& companion, bool or_variable) {
    Value is_word = schema::word({companion.word}, true);
    if (or_variable) is_word = any_of({std::move(is_word), reference("variable")});
    return {{"properties", {{std::string(companion.key), std::move(is_word)}}},
            {"required", {std::string(companion.key)}}};
  }

  /// What a section can not do without, and what belongs to a word of another key.
  void add_conditions(const SectionRow& section, Value& made) const {
    Value required = Value::array();
    Value conditions = Value::array();
    Value dependent = Value::object();
    std::string lone;
    for (const SectionRow& row : rows_) {
      if (!is_below(row, section.key.pointer)) continue;
      const std::string key(last_key(row));
      const Companion companion = companion_in(row.only_with);
      if (row.is_alone) lone = key;
      if (!companion.key.empty()) dependent[key] = has_word(companion, true);
      if (!row.is_required) continue;
      if (companion.key.empty())
        required.push_back(key);
      else
        conditions.push_back({{"if", has_word(companion, false)}, {"then", {{"required", {key}}}}});
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
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "space.json of dstune-mpi"},
          {"description",
           "A DeepSpeed config in which any value may be a list of candidates, DeepSpeed's section "
           "autotuning, and the section dstune. Other top-level keys are passed on."},
          {"type", "object"},
          {"properties", std::move(properties)},
          {"$defs", std::move(definitions)}};
}

}  // namespace dstune
