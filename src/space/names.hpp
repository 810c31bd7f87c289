#pragma once
/// Names of experiments: their parts, and as folders have them. Local.

#include <string>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune {

/// What one key of a config adds to its canonical name, with a closing "_" where it adds something.
std::string canonical_part(const std::string& key, const json::Value& value,
                           const std::vector<std::string>& keys, bool omit_values);

/// Letters, digits and . + - _ = stay, other characters become '-'; longer than 160 characters:
/// cut, with a hash of the whole.
std::string folder_safe(const std::string& name);

}  // namespace dstune
