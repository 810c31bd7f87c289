#pragma once
/// `dstune-mpi check FILE`: what a release of DeepSpeed says of a config, without a model. Local.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/deepspeed_version.hpp"
#include "dstune/core/user_python.hpp"
#include "dstune/space/config_findings.hpp"

namespace dstune {

namespace json {
class Document;
}

/// The training beside the file.
struct ConfigCheck {
  /// The DeepSpeed that will train; nothing: the file's `dstune.deepspeed_version`, then
  /// `python`'s, then the newest known.
  std::optional<Version> release{};
  std::optional<PythonEnvironment> python{};
  /// Ranks that share a batch; nothing: any number that the batch sizes allow.
  std::optional<int> data_parallel_ranks{};
  bool is_on_cpus = false;               ///< DeepSpeed's accelerator is the CPU
  std::optional<std::string> command{};  ///< the training command, whose arguments are compared
};

struct CheckedConfig {
  Version release{};
  std::string release_source;  ///< "--deepspeed-version", …
  ConfigFindings findings;
};

/// Checks a config, with candidates or without; a space's sections `autotuning` and `dstune`, too.
/// Reads no other file but what `dstune` and the command name.
[[nodiscard]] CheckedConfig check_config(const json::Document& document, const ConfigCheck& known);

}  // namespace dstune
