#pragma once
/// Describes the tables of keys, for people and for editors: docs/space.schema.json and the last
/// part of docs/space.md are written from here. Local.

#include <string>
#include <string_view>

#include "dstune/base/json.hpp"

namespace dstune {

/// A JSON Schema (2020-12) of space.json: the DeepSpeed config with its lists of candidates, and
/// the sections `autotuning` and `dstune`. It takes what the program takes but for what no schema
/// can say: rules between keys, files that must exist, sizes of groups.
[[nodiscard]] json::Value space_schema();
/// Its file: what fits into a line of the page stands in one.
[[nodiscard]] std::string space_schema_text();

/// Tables of every key. Starts with the line that marks the rest of a page as generated.
[[nodiscard]] std::string space_reference();

/// The page with everything from that line on written anew.
[[nodiscard]] std::string with_reference(std::string_view page);

}  // namespace dstune
