#pragma once
/// The command with which the user starts the real training: its place for the configuration, and
/// the line that starts the training with a tuned one. The program starts nothing. Local.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

/// Key in the DeepSpeed config → flag of the user's script.
using ArgMappings = std::vector<std::pair<std::string, std::string>>;

/// The user's training command, `dstune.training_command`, and what is known of its script.
struct UserCommand {
  std::string text{};          ///< as it is written
  ArgMappings arg_mappings{};  ///< `autotuning.arg_mappings`
  /// The script takes TrainingArguments of Hugging Face, which the Trainer compares with the
  /// configuration.
  bool takes_training_arguments = false;
  bool trains_on_cpu = false;  ///< which TrainingArguments have to be told
  std::string folder{};        ///< where it runs, for the files that it names
};

/// A word as a POSIX shell takes it for itself: in single quotes where it needs them.
std::string shell_quote(const std::string& word);

/// A path that a command names, seen from where it runs: "~/" is the user's home.
std::string path_in_command(const std::string& folder, const std::string& path);

/// The user's command with the tuned configuration in it; everything else stays as it was written,
/// quotes and line breaks included. The line may hold several commands: the training is the one
/// with `$CONFIG`.
/// - `$CONFIG` and `${CONFIG}` become `config_path`, also inside quotes. If neither is there, the
///   word after `--deepspeed_config`, or after a `--deepspeed` that names a .json file, is
///   replaced. Else `--deepspeed_config` is appended, or `--deepspeed` for TrainingArguments.
///   `--deepspeed_config_file` of `accelerate launch` is such a place, too. A command with that
///   launcher and without a place gets it there.
/// - For each of its mappings: the key is looked up depth-first in `ds_config`; the word after
///   the flag is replaced, or `flag value` appended. Nothing happens for a key that is not there or
///   is null, "", false or "auto".
/// - If the script takes TrainingArguments, those that must say the same as the configuration
///   follow likewise (dstune/core/command_reading.hpp). So does gradient_checkpointing. Keys and
///   flags that a mapping has are left out. On CPUs `--use_cpu True` is among them.
/// - Appended words go behind the last word, in front of redirections.
/// - `--autotuning tune|run` is removed.
/// - The launcher starts the group: DeepSpeed's, torchrun, accelerate, and what starts them or the
///   script, srun or mpirun. Counts are changed where they stand, and put in front where the
///   default may be another. A command that is only a Python script, or Python for more than one
///   rank, is started by DeepSpeed's launcher. The counts stay as they are if
///   launch_counts_violation() says something.
/// - `hostfile`, where given, is named to a `deepspeed` that names none.
/// Throws LogicError where launch_line_violation() says something.
std::string launch_line(const UserCommand& training_command, const std::string& config_path,
                        const json::Value& ds_config, Recompute recompute, const GroupShape& shape,
                        const std::optional<std::string>& hostfile = std::nullopt);

/// Tells why launch_line() can not find the place of the configuration or of an argument, with a
/// hint; empty if it can. Without `$CONFIG` the line is one simple command: no pipe, `;`, `&`,
/// comment, second line or text for another shell, and no substitution that may hold the place.
[[nodiscard]] std::string launch_line_violation(const UserCommand& training_command);

/// The counts that the command says today, by its words, by accelerate's file, or by a launcher's
/// fixed default; nothing where only the run itself shows it.
struct LaunchCounts {
  std::string launcher;  ///< "deepspeed", "srun", …
  std::optional<int> num_nodes;
  std::optional<int> num_gpus;   ///< ranks on each node
  std::optional<int> num_ranks;  ///< all of them
};
LaunchCounts launch_counts(const UserCommand& training_command);

/// The reason why launch_line() can not make the command start one of the groups, with what to
/// write; empty where it can start each of them. One group alone is no violation where the command
/// says it already, or does not say what it starts.
[[nodiscard]] std::string launch_counts_violation(const UserCommand& training_command,
                                                  const std::vector<GroupShape>& shapes);

/// The Python script of a training command, for who runs it without a launcher.
struct ScriptCommand {
  std::string script;  ///< as written
  std::vector<std::string> arguments;
};
/// Returns the first word behind the launcher and its options that ends in ".py", and the words
/// behind it. `$CONFIG` stands where the configuration's file goes, if there is such a place;
/// arguments are mapped as in launch_line(). Nothing where no word names a script.
std::optional<ScriptCommand> script_command(const std::string& training_command,
                                            const json::Value& ds_config,
                                            const ArgMappings& arg_mappings);

/// The line for those who gave no command, with `your_training_script.py` in the script's place.
std::string placeholder_launch_line(const std::string& config_path, const GroupShape& shape);

}  // namespace dstune
