#pragma once
/// Batch scripts that check an answer in DeepSpeed itself, with the user's own training. The
/// program writes them and starts nothing. Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/report/batch_script.hpp"

namespace dstune {

/// The runs of a script, one after the other, and their settings.
struct VerificationJob {
  struct Run {
    const Experiment* experiment;
    std::string why;  ///< in words, for the script's reader: "best here", "your own configuration"
  };
  std::vector<Run> runs;                        ///< at least one; names are unique
  std::string folder;                           ///< for the results, absolute: folder/<name>/
  std::string script_path;                      ///< absolute: how the user is told to submit it
  std::optional<UserCommand> training_command;  ///< absent: the script asks for it
};

/// Returns the config for DeepSpeed: the experiment's configuration with an `autotuning` section
/// and with a log line of each step. The section makes any training write `metrics_path` and leave
/// after a few steps.
json::Value verification_config(const Experiment& experiment, const std::string& metrics_path);

/// A bash script, for Slurm or PBS. Each run leaves in its folder exp.json, ds_config.json,
/// cmd.txt, log.txt, status.json and, where DeepSpeed came to an end, its metrics.json;
/// docs/trust.md has the fields.
std::string verify_script(const VerificationJob& job, BatchSystem system);

}  // namespace dstune
