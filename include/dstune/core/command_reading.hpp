#pragma once
/// Reads from a training command what it says of the training: the flags of its script. Their names
/// come from `arg_mappings`, from Hugging Face's TrainingArguments, or are common in scripts.
/// Local.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune {

/// One value that was read.
struct CommandValue {
  /// The key in DeepSpeed's config or `dstune`, without a leading slash:
  /// "gradient_accumulation_steps", "optimizer/params/lr", "dstune/sequence_length"; "optim",
  /// "max_steps" and "seed" are TrainingArguments' own.
  std::string key;
  std::string text;    ///< as it is written; "True" for a switch
  std::string source;  ///< "--block_size", "micro_batch_size of sft.yaml"
};

struct CommandReading {
  /// Its script takes TrainingArguments: flags of theirs may be added to the command.
  bool takes_training_arguments = false;
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> accumulation_steps;
  std::optional<std::int64_t> sequence_length;
  std::optional<Precision> precision;
  std::optional<bool> recompute;  ///< gradient_checkpointing
  /// Rates and the like, by pointer in DeepSpeed's config: "/optimizer/params/lr".
  std::map<std::string, double> numbers;
  std::vector<CommandValue> values;  ///< all that was read, in the command's order
  std::vector<CommandValue> unread;  ///< likewise: what can not be understood

  /// The value of a key; null where it was not read.
  [[nodiscard]] const CommandValue* find(std::string_view key) const;
};

/// Files that a command names, seen from where it runs; nothing where one can not be read.
struct CommandFiles {
  std::function<std::optional<std::string>(const std::string& path)> text;
  std::function<std::optional<json::Value>(const std::string& path)> yaml;
};

/// Reads the words of the command; where one flag stands twice, the last one counts, as for
/// argparse. A YAML file that it names (`--config FILE` of TRL's kind, or the only argument) is
/// read first, and flags win over it. The script is looked at for what parses its arguments
/// (HfArgumentParser, TrlParser). A value that is no number where one is needed, such as a shell
/// variable, is not read and is in `unread`.
CommandReading read_command(const std::string& training_command, const ArgMappings& arg_mappings,
                            const CommandFiles& files);

/// A flag of TrainingArguments with its value.
struct TrainingArgument {
  std::string name;  ///< "per_device_train_batch_size"
  json::Value value;
  std::string key;        ///< as `arg_mappings` may name it: "train_micro_batch_size_per_gpu", "lr"
  std::string pointer{};  ///< of the config's key that it is compared with; empty: of none
};
/// The TrainingArguments that a configuration asks for; the Trainer refuses others. They are each
/// key that the configuration states, with micro-batch and accumulation, and
/// gradient_checkpointing. If the command trains on CPUs, use_cpu is one. The Trainer fills "auto".
/// (transformers, integrations/deepspeed.py, trainer_config_process.)
std::vector<TrainingArgument> training_arguments(const UserCommand& command,
                                                 const json::Value& ds_config, Recompute recompute);

}  // namespace dstune
