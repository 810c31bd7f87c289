#pragma once
/// The meaning of a word of YAML. Local.

#include <optional>
#include <string>

#include "dstune/base/json.hpp"

namespace dstune::yaml {

/// A word without quotes and tag: null, a boolean, a number or a text.
json::Value plain_value(const std::string& word);
/// A word with a tag as yaml-cpp gives it: "?" (none), "!" (in quotes) or one of the core schema.
/// Nothing where the tag is another, or the word is no value of it.
std::optional<json::Value> tagged_value(const std::string& tag, const std::string& word);

}  // namespace dstune::yaml
