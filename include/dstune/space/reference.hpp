#pragma once
/// Describes the tables of keys, for people and for editors: docs/space.schema.json, the last part
/// of docs/space.md and a manual page are written from here. Local.

#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune {

/// A JSON Schema (2020-12) of space.json: the DeepSpeed config with its lists of candidates, and
/// the sections `autotuning` and `dstune`. It takes what the program takes. Left out are rules that
/// no schema can express: rules between keys, files that must exist, sizes of groups.
[[nodiscard]] json::Value space_schema();
/// Its file: what fits into a line of the page stands in one.
[[nodiscard]] std::string space_schema_text();

/// A key in words. Quotes like these, `1`, mark what is typed.
struct KeyWords {
  std::string path;  ///< "zero_optimization.stage"
  std::string name;  ///< within its group: "stage"
  std::string type, fallback, range, stages, releases, effect;
  std::string help;  ///< without a full stop
};

/// The keys of a section of the document.
struct KeyGroup {
  std::string part;   ///< whose keys: "dstune", "autotuning" or "DeepSpeed"
  std::string title;  ///< of DeepSpeed's: "zero_optimization, open"
  std::vector<KeyWords> keys;
};

/// All keys. Those of our sections have no stages, releases and effects.
[[nodiscard]] std::vector<KeyGroup> key_groups();
/// The paragraph that explains releases, effects and open sections.
[[nodiscard]] std::string key_legend();

/// Tables of every key. Starts with the line that marks the rest of a page as generated.
[[nodiscard]] std::string space_reference();

/// The page with everything from that line on written anew.
[[nodiscard]] std::string with_reference(std::string_view page);

}  // namespace dstune
