#pragma once
/// The DeepSpeed config in a file of `accelerate config`. Local.

#include "dstune/space/config_document.hpp"

namespace dstune {

/// Tells whether a document has keys that only a file of accelerate's has.
[[nodiscard]] bool is_accelerate_file(const json::Value& root);

/// Fills the file's `deepspeed_config` in as accelerate does (DeepSpeedPlugin in
/// utils/dataclasses.py). Throws InputError for what accelerate would refuse.
[[nodiscard]] ConfigFile read_accelerate_config(const json::Document& written);

}  // namespace dstune
