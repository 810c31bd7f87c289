#pragma once
/// YAML as people write it for Python programs. Local.

#include <string>
#include <string_view>

#include "dstune/base/json.hpp"

namespace dstune {

/// A YAML file with one document; an empty one is null. Keys are texts as written. A member has the
/// line of its key; what `<<` takes over has the line of `<<`, what an alias stands for its own.
/// Plain words mean what they mean to PyYAML's safe_load, on which Hugging Face's tools are built:
/// - yes, no, on, off, true, false in small, capital or first-capital letters are booleans. ~, null
///   and nothing are null.
/// - 1_000, 0x10, 0b11 and 010 (octal) are integers. A key `<<` takes over members that its mapping
///   does not have itself.
/// The file means what its writer means where PyYAML takes a number for text, or text for a number:
/// - 1e-4 is a number, as in YAML 1.2.
/// - 12:30 and 2026-01-31 are texts. So are .inf and .nan, which JSON can not say.
/// Anchors and aliases are values like others. Throws InputError with file and line: no file,
/// larger than max_input_bytes, no YAML, a key given twice, nested or repeated too much. So it does
/// for several documents, and for a tag that is not one of YAML's core (`!!python/…`).
json::Document read_yaml(const std::string& path);
/// The same of a text; `file` is named in errors.
json::Document parse_yaml(std::string_view text, const std::string& file);

}  // namespace dstune
