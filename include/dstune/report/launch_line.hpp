#pragma once
/// The command with which the user starts the real training. Local.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

/// A word as a POSIX shell takes it for itself: in single quotes where it needs them.
std::string shell_quote(const std::string& word);

/// The user's command with the tuned configuration in it; everything else stays as it was written,
/// quotes and line breaks included.
/// - `$CONFIG` and `${CONFIG}` become `config_path`, also inside quotes. Where neither is there,
/// the
///   word after `--deepspeed_config`, or after a `--deepspeed` that names a .json file, is
///   replaced, else `--deepspeed_config` is appended.
/// - For each of `arg_mappings` (key in the DeepSpeed config → flag of the script): the key is
/// looked
///   up depth-first in `ds_config`; the word after the flag is replaced, or `flag value` appended.
///   Nothing happens for a key that is not there or is null, "", false or "auto".
/// - `--autotuning tune|run` is removed.
/// - A command that is only a Python script is started with `deepspeed` on the group's shape; one
///   that starts with `deepspeed` and does not say where is given the shape.
/// - `hostfile`, where given, is named to a `deepspeed` that names none.
std::string launch_line(const std::string& training_command, const std::string& config_path,
                        const json::Value& ds_config, const GroupShape& shape,
                        const std::vector<std::pair<std::string, std::string>>& arg_mappings,
                        const std::optional<std::string>& hostfile = std::nullopt);

/// The line for those who gave no command, with `your_training_script.py` in the script's place.
std::string placeholder_launch_line(const std::string& config_path, const GroupShape& shape);

}  // namespace dstune
