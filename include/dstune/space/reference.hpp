#pragma once
/// Describes the tables of keys, for people and for editors: docs/keys.md, docs/space.schema.json,
/// a manual page and the help of a key are written from here. Local.

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

/// A key in words. Quotes like these, `1`, mark what is typed. All forms of a key are one.
struct KeyWords {
  std::string path;  ///< "zero_optimization.stage"
  std::string type;  ///< "integer, 0 to 3"
  std::string fallback, stages, releases, effect;
  std::string hint;     ///< refused: what to write instead, where that is not the default
  std::string others;   ///< what becomes of further keys inside; empty: they are refused
  std::string help;     ///< without a full stop
  std::string example;  ///< a document that the program takes; empty: no value is taken
};

/// The keys of a section of the document, its own first.
struct KeyGroup {
  std::string part;   ///< whose keys: "dstune", "autotuning" or "DeepSpeed"
  std::string title;  ///< "zero_optimization", or "Top level"
  std::vector<KeyWords> keys;
};

/// All keys. Those of our sections have no stages, releases and effects.
[[nodiscard]] std::vector<KeyGroup> key_groups();
/// The sentences that explain stages, releases, effects and candidates.
[[nodiscard]] std::vector<std::string> key_legend();

/// A key as its help and the page have it: its path, a blank line, and what there is to know.
[[nodiscard]] std::string key_text(const KeyWords& key);
/// The help of the key that a word names: by path or JSON pointer, or by its last part. Several
/// keys are listed by name. Empty where there is none.
[[nodiscard]] std::string help_of_key(std::string_view word);
/// ", did you mean ...", or nothing.
[[nodiscard]] std::string suggested_key(std::string_view word);

/// docs/keys.md
[[nodiscard]] std::string keys_page();

}  // namespace dstune
