#pragma once
/// Pieces of a JSON Schema that a row of either table becomes. Local.

#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/keys.hpp"

namespace dstune::schema {

/// {"$ref": "#/$defs/<name>"}
[[nodiscard]] json::Value reference(std::string_view name);
/// {"anyOf": [...]}, or the one schema that there is.
[[nodiscard]] json::Value any_of(std::vector<json::Value> schemas);
/// A non-empty list of such values.
[[nodiscard]] json::Value list_of(json::Value element);
/// A text that is one of these words, in any case of letters where that is said.
[[nodiscard]] json::Value word(const std::vector<std::string_view>& words, bool any_case);
/// The definitions that schemas of keys refer to, by name.
[[nodiscard]] json::Value shared_definitions();
/// Fields of an annotated schema: description and, unless it is null, default.
void annotate(json::Value& schema, std::string description, std::string_view fallback);

/// Definitions ("$defs") for what is there several times, named by what they take; each place keeps
/// its own description and default.
void share_repeated(json::Value& schema);

/// Values that fit into a line of 100 columns stand in one. `indent`: where the value begins.
[[nodiscard]] std::string text_of(const json::Value& value, std::size_t indent);

/// Values that stand for the default of a row, and a variable.
[[nodiscard]] json::Value placeholder_schema(const Key& knob);
/// The only value that runs of a key which is refused at every stage: its default.
[[nodiscard]] std::optional<json::Value> built_value_of(const Key& knob);
/// The values of the row: no null, no "auto", no candidates. May refer to shared definitions.
/// Objects: any; the caller knows the rest.
[[nodiscard]] json::Value value_of(const Key& knob);

}  // namespace dstune::schema
