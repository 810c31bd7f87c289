#pragma once
/// Values of a file of `accelerate config`, as `accelerate launch` takes them. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune {

/// A value of the file, also of its `deepspeed_config`, as accelerate's options have it; nothing
/// for null and what is not there.
std::optional<std::string> accelerate_value(const json::Value& values, const std::string& key);
/// The values that accelerate refuses in its file beside a DeepSpeed configuration, by their keys.
std::vector<std::string> inline_keys(const json::Value& values);

}  // namespace dstune
