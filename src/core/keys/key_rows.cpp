/// The rows of keys.json, which is part of the program.

#include <deque>
#include <map>
#include <unordered_map>

#include "dstune/base/error.hpp"
#include "dstune/core/keys.hpp"
#include "embedded/keys.hpp"

namespace dstune {

namespace {

using json::Value;

/// A default as it stands in tables: 1e-8 for 1e-08, [0.9, 0.999] for [0.9,0.999].
std::string spelled(const Value& value) {
  std::string text = value.dump();
  if (const std::size_t zero = text.find("e-0"); zero != text.npos) text.erase(zero + 2, 1);
  if (!value.is_array() || value.empty() || !value.front().is_number()) return text;
  for (std::size_t at = text.find(','); at != text.npos; at = text.find(',', at + 1))
    text.insert(at + 1, " ");
  return text;
}

Version version_in(const Value& value) {
  return parse_version(value.get_ref<const std::string&>()).value();
}

double low_in(const Value& value) {
  return value.is_null() ? Key().low : value.get<double>();
}

template <auto column>
void set_text(Key& key, const Value& value) {
  key.*column = value.get_ref<const std::string&>();
}
template <auto column>
void set_flag(Key& key, const Value& value) {
  key.*column = value.get<bool>();
}
template <auto column>
void set_number(Key& key, const Value& value) {
  key.*column = value.get<double>();
}
template <auto column>
void set_version(Key& key, const Value& value) {
  key.*column = version_in(value);
}

/// A "section" is an object in which DeepSpeed looks for keys at once; "texts" is a list of them.
void set_type(Key& key, const Value& value) {
  static const std::map<std::string, KnobType, std::less<>> types = {
      {"boolean", KnobType::boolean}, {"integer", KnobType::integer}, {"number", KnobType::number},
      {"text", KnobType::text},       {"object", KnobType::object},   {"section", KnobType::object},
      {"list", KnobType::list},       {"texts", KnobType::list}};
  key.type = types.at(value);
  key.of_texts = value == "texts";
  key.takes_auto = key.type != KnobType::object;
  if (key.type == KnobType::object) key.look = KnobLook::at_type;
  if (value != "section") return;
  key.fallback = "{}";
  key.takes_null = false;
}

void set_effect(Key& key, const Value& value) {
  static const std::map<std::string, KnobEffect, std::less<>> effects = {
      {"measured", KnobEffect::measured},
      {"not built", KnobEffect::not_built},
      {"refused", KnobEffect::refused}};
  key.effect = effects.at(value);
}

void set_look(Key& key, const Value& value) {
  static const std::map<std::string, KnobLook, std::less<>> looks = {
      {"none", KnobLook::none},       {"at type", KnobLook::at_type},
      {"members", KnobLook::members}, {"flag", KnobLook::flag},
      {"truth", KnobLook::truth},     {"number", KnobLook::number},
      {"divided", KnobLook::divided}, {"whole", KnobLook::whole}};
  key.look = looks.at(value);
}

void set_stages(Key& key, const Value& stages) {
  key.stages = 0;
  for (const Value& stage : stages) key.stages |= 1U << stage.get<unsigned>();
}

void set_former(Key& key, const Value& releases) {
  for (std::size_t index = 0; index < releases.size(); ++index) {
    const Value& release = releases[index];
    FormerRow& former = key.former.at(index);
    former.before = version_in(release.at("before"));
    if (release.contains("default")) former.fallback = kept(spelled(release["default"]));
    if (release.contains("low")) former.low = low_in(release["low"]);
  }
}

/// A key that stands alone or can not be absent is not null either.
template <auto column>
void set_needed(Key& key, const Value& value) {
  key.*column = value.get<bool>();
  key.takes_null = false;
}

using Setter = void (*)(Key&, const Value&);
const std::unordered_map<std::string_view, Setter>& columns() {
  static const std::unordered_map<std::string_view, Setter> all = {
      {"pointer", set_text<&Key::pointer>},
      {"type", set_type},
      {"default", [](Key& key, const Value& value) { key.fallback = kept(spelled(value)); }},
      {"low", set_number<&Key::low>},
      {"high", set_number<&Key::high>},
      {"largest_here", set_number<&Key::largest_here>},
      {"stages", set_stages},
      {"effect", set_effect},
      {"look", set_look},
      {"beside", set_text<&Key::beside>},
      {"member", set_text<&Key::member>},
      {"acts_with", set_text<&Key::acts_with>},
      {"grows_memory", set_flag<&Key::grows_memory>},
      {"is_name", set_flag<&Key::is_name>},
      {"help", set_text<&Key::help>},
      {"example", nullptr},  // see example_of()
      {"example_with", nullptr},
      {"choices", set_text<&Key::choices>},
      {"pattern", set_text<&Key::pattern>},
      {"hint", set_text<&Key::hint>},
      {"aliases", set_text<&Key::aliases>},
      {"deprecated", set_text<&Key::deprecated>},
      {"takes_all_names", set_flag<&Key::takes_all_names>},
      {"since", set_version<&Key::since>},
      {"until", set_version<&Key::until>},
      {"former", set_former},
      {"any_case", set_flag<&Key::any_case>},
      {"partial", set_flag<&Key::is_partial>},
      {"of_sections", set_flag<&Key::of_sections>},
      {"closed", set_flag<&Key::closed>},
      {"model", [](Key& key, const Value& value) { key.model = key.closed = value.get<bool>(); }},
      {"takes_null", set_flag<&Key::takes_null>},
      {"takes_auto", set_flag<&Key::takes_auto>},
      {"takes_flag", set_flag<&Key::takes_flag>},
      {"takes_texts", set_flag<&Key::takes_texts>},
      {"keeps_auto", set_flag<&Key::keeps_auto>},
      {"beside_flag", set_text<&Key::beside_flag>},
      {"takes_float", set_flag<&Key::takes_float>},
      {"takes_lone_text", set_flag<&Key::takes_lone_text>},
      {"is_listable", set_flag<&Key::is_listable>},
      {"candidates_are_given", set_flag<&Key::candidates_are_given>},
      {"is_required", set_needed<&Key::is_required>},
      {"is_alone", set_needed<&Key::is_alone>},
      {"flag_member", set_text<&Key::flag_member>},
      {"only_with", set_text<&Key::only_with>},
      {"open_with", set_text<&Key::open_with>},
      {"needs", set_text<&Key::needs>},
      {"closed_beside", set_text<&Key::closed_beside>},
  };
  return all;
}

Key key_of(const Value& row) {
  Key key;
  for (const auto& [name, value] : row.items()) {
    const auto column = columns().find(name);
    if (column == columns().end()) throw LogicError("keys.json has no column " + name);
    if (column->second != nullptr) column->second(key, value);
  }
  return key;
}

/// The texts of the rows are its own.
const Value& key_tables() {
  static const Value tables = Value::parse(embedded::keys);
  return tables;
}

}  // namespace

std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

KeyExample example_of(std::string_view pointer) {
  static const auto examples = [] {
    std::map<std::string, KeyExample, std::less<>> all;
    for (const Value& rows : key_tables()) {
      if (!rows.is_array()) continue;
      for (const Value& row : rows) {
        KeyExample& example = all[row.at("pointer").get<std::string>()];
        if (row.contains("example")) example.value = row["example"];
        if (row.contains("example_with")) example.with = row["example_with"];
      }
    }
    return all;
  }();
  const auto found = examples.find(pointer);
  return found == examples.end() ? KeyExample() : found->second;
}

const std::vector<Key>& key_rows(const std::string& table) {
  static const auto rows = [] {
    std::map<std::string, std::vector<Key>, std::less<>> all;
    for (const auto& [name, keys] : key_tables().items())
      if (keys.is_array())
        for (const Value& row : keys) all[name].push_back(key_of(row));
    return all;
  }();
  return rows.at(table);
}

}  // namespace dstune
