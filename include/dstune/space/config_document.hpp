#pragma once
/// DeepSpeed configs as people have them, in files of any name. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"

namespace dstune {

/// A config, and what its file says beside it.
struct ConfigFile {
  /// A DeepSpeed config with the optional sections `autotuning` and `dstune`. Problems of its nodes
  /// are to be located: json::Document::located() names the file, key and line that have the value.
  json::Document document;
  std::optional<GroupShape> shape;  ///< the ranks that a file of accelerate's starts
  std::vector<Problem> notes;       ///< on keys without effect
};

/// Reads one of these, by its content:
/// - JSON or Hjson (json::Document::read), and the same config in YAML;
/// - a file of `accelerate config`, YAML or JSON. Its `deepspeed_config` is filled in as accelerate
///   does (DeepSpeedPlugin in utils/dataclasses.py); so is the file that `deepspeed_config_file`
///   names, seen from the working directory, else from this file's folder.
/// Throws InputError: the file is none of these, and says so; accelerate would refuse it.
ConfigFile read_config_file(const std::string& path);
/// Its document alone.
json::Document read_config_document(const std::string& path);

}  // namespace dstune
