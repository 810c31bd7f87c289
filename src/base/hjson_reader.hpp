#pragma once
/// Reads Hjson (hjson.github.io/syntax.html) as the Python package that DeepSpeed reads its configs
/// with does, so that what works there means the same here. Stricter than it, because the other
/// reading is a mistake of the writer: repeated keys, numbers too large for a double, halves of
/// surrogate pairs, control characters, an empty document and one that is a single text without
/// quotes are refused.

#include <string_view>

#include "json_tree.hpp"

namespace dstune::json {

/// `text` is UTF-8 and begins with no byte order mark. What is wrong becomes a problem of the
/// tree's.
void read_hjson(std::string_view text, TreeBuilder& tree);

}  // namespace dstune::json
