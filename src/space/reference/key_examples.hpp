#pragma once
/// Examples of keys. Local.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/keys.hpp"

namespace dstune {

/// The rows of a table right below a pointer: the first form of each key.
using RowsBelow = std::function<std::vector<const Key*>(std::string_view pointer)>;

/// A document with this key that the program takes. `rows` has the table of the key.
[[nodiscard]] json::Value example_document(const Key& key, const RowsBelow& rows);
/// In one line, with blanks behind commas and colons.
[[nodiscard]] std::string line_of(const json::Value& value);

}  // namespace dstune
