#include "reference/key_examples.hpp"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

using json::Value;

/// A key whose name is the user's, and an element of a list, stand in the example of what they are
/// in.
bool is_part_of_value(std::string_view name) {
  return name == "*" || (name.size() == 1 && name.front() >= '0' && name.front() <= '9');
}

Value number_example(const Key& key, const Value& fallback) {
  if (!fallback.is_null()) return fallback;
  const double low = std::isinf(key.low) ? 1 : key.low;
  return key.type == KnobType::integer ? Value(static_cast<std::int64_t>(low)) : Value(low);
}

/// A value that differs from the default is what somebody writes. Measured ones are searched.
Value flag_example(const Key& key, const Value& fallback) {
  if (fallback.is_null()) return true;
  const bool usual = fallback.get<bool>();
  return key.effect == KnobEffect::measured ? Value{usual, !usual} : Value(!usual);
}

Value text_example(const Key& key, const Value& fallback) {
  if (!fallback.is_null()) return fallback;
  if (key.choices.empty()) throw LogicError(fmt::format("{} has no example", key.pointer));
  return choices_of(key.choices).front();
}

Value value_example(const Key& key, const RowsBelow& rows);

std::string example_name(std::string_view name) {
  return name == "*" ? "group1" : std::string(name);
}

const Key* row_at(std::string_view pointer, const RowsBelow& rows) {
  for (const Key* row : rows(parent_of(pointer)))
    if (row->pointer == pointer) return row;
  return nullptr;
}

/// A section can not do without this key.
bool is_needed(const Key& row, const Key& section, const Value& object) {
  const auto [other, word] = prerequisite_in(row.only_with);
  if (row.is_required) return other.empty() || object.value(std::string(other), Value()) == word;
  return find_choice(section.needs, last_key(row.pointer), false).has_value();
}

/// Adds the keys that a section needs.
void complete(const Key& section, const RowsBelow& rows, Value& object) {
  const std::vector<const Key*> below = rows(section.pointer);
  for (const Key* row : below)
    if (row->is_alone && object.contains(last_key(row->pointer))) return;
  for (const Key* row : below) {
    const std::string name(last_key(row->pointer));
    if (object.contains(name) || !is_needed(*row, section, object)) continue;
    object[name] = row->type == KnobType::object ? Value::object() : value_example(*row, rows);
  }
}

/// The first key inside.
Value object_example(const Key& key, const RowsBelow& rows) {
  Value object = Value::object();
  const std::vector<const Key*> below = rows(key.pointer);
  if (!below.empty())
    object[example_name(last_key(below.front()->pointer))] = value_example(*below.front(), rows);
  complete(key, rows, object);
  return object;
}

Value value_example(const Key& key, const RowsBelow& rows) {
  const std::string_view named = key.alias_of.empty() ? key.pointer : key.alias_of;
  if (Value value = example_of(named).value; !value.is_null()) return value;
  const Value fallback = Value::parse(key.fallback);
  if (key.effect == KnobEffect::refused && !fallback.is_null()) return fallback;
  switch (key.type) {
    case KnobType::boolean:
      return flag_example(key, fallback);
    case KnobType::integer:
    case KnobType::number:
      return number_example(key, fallback);
    case KnobType::text:
      return text_example(key, fallback);
    case KnobType::object:
      return object_example(key, rows);
    case KnobType::list:
      return fallback.is_null() ? Value::array() : fallback;
  }
  return nullptr;
}

/// The rest of the document of an example. A section with another name has the same.
Value example_rest(const Key& key) {
  Value rest = example_of(key.alias_of.empty() ? key.pointer : key.alias_of).with;
  const auto section_of = [](std::string_view pointer) {
    return std::string(pointer.substr(1, pointer.find('/', 1) - 1));
  };
  if (rest.is_null() || key.alias_of.empty()) return rest;
  const std::string first = section_of(key.alias_of), here = section_of(key.pointer);
  if (first == here || !rest.contains(first)) return rest;
  Value section = std::move(rest[first]);
  rest.erase(first);
  rest[here] = std::move(section);
  return rest;
}

}  // namespace

Value example_document(const Key& key, const RowsBelow& rows) {
  std::string_view pointer = key.pointer;
  if (is_part_of_value(last_key(pointer)))
    if (const Key* above = row_at(parent_of(pointer), rows)) return example_document(*above, rows);
  Value document = value_example(key, rows);
  for (bool is_first = true; !pointer.empty(); is_first = false) {
    Value section = Value::object();
    section[example_name(last_key(pointer))] = std::move(document);
    if (const auto [name, word] = prerequisite_in(key.only_with); is_first && !name.empty())
      section[std::string(name)] = word;
    pointer = parent_of(pointer);
    if (const Key* above = pointer.empty() ? nullptr : row_at(pointer, rows))
      complete(*above, rows, section);
    document = std::move(section);
  }
  Value whole = example_rest(key);
  if (whole.is_null()) return document;
  whole.merge_patch(document);
  return whole;
}

std::string line_of(const Value& value) {
  if (!value.is_structured()) return value.dump();
  std::vector<std::string> members;
  for (auto member = value.begin(); member != value.end(); ++member)
    members.push_back((value.is_object() ? Value(member.key()).dump() + ": " : "") +
                      line_of(*member));
  const std::string inside = fmt::format("{}", fmt::join(members, ", "));
  return value.is_object() ? "{" + inside + "}" : "[" + inside + "]";
}

}  // namespace dstune
