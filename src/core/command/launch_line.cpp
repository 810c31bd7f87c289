#include "dstune/core/launch_line.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "command/launch_plan.hpp"
#include "command/training_command.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/command_reading.hpp"

namespace dstune {

namespace {

/// A key's value, depth-first: at each level the key itself, then the objects in document order.
const json::Value* find_depth_first(const json::Value& object, const std::string& key) {
  if (const auto found = object.find(key); found != object.end()) return &*found;
  for (const auto& member : object.items()) {
    if (!member.value().is_object() || member.key() == "autotuning") continue;
    if (const json::Value* found = find_depth_first(member.value(), key)) return found;
  }
  return nullptr;
}

/// A value as a script's argument, nothing where the script is left alone. Integral floats lose
/// their point: argparse's int would refuse 500000000.0.
std::optional<std::string> argument(const json::Value& value) {
  if (value.is_null() || value == false || value == "auto" || value == "") return std::nullopt;
  if (value.is_boolean()) return "True";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 0x1p53)
      return std::to_string(static_cast<std::int64_t>(number));
  }
  return value.dump();
}

void map_arguments(TrainingCommand& command, const json::Value& ds_config,
                   const ArgMappings& arg_mappings) {
  for (const auto& [key, flag] : arg_mappings) {
    const json::Value* value = find_depth_first(ds_config, std::string(trimmed(key)));
    if (value == nullptr) continue;
    const std::optional<std::string> text = argument(*value);
    const std::string name(trimmed(flag));
    if (text && !command.replace_value(name, *text)) command.append({name, *text});
  }
}

/// False where the command has no such flag. It has underscores or hyphens.
bool set_flag(TrainingCommand& command, const std::string& flag, const json::Value& value) {
  std::string hyphens = flag;
  std::ranges::replace(hyphens, '_', '-');
  // The launcher's own flag of that name is another one.
  const std::size_t from = script_word(command.words());
  bool is_set = false;
  for (const std::string& spelled : {flag, "--" + hyphens.substr(2)}) {
    if (is_set) break;
    is_set = value.is_boolean()
                 ? command.set_switch(spelled, value.get<bool>(), from)
                 : command.replace_value(spelled, argument(value).value_or(""), from);
  }
  return is_set;
}

void match_training_arguments(TrainingCommand& command, const json::Value& ds_config,
                              Recompute recompute, const UserCommand& written) {
  for (const TrainingArgument& one : training_arguments(written, ds_config, recompute)) {
    const std::string flag = "--" + one.name;
    const bool is_mapped = std::ranges::any_of(written.arg_mappings, [&](const auto& mapping) {
      return trimmed(mapping.second) == flag || trimmed(mapping.first) == one.key;
    });
    if (is_mapped || set_flag(command, flag, one.value)) continue;
    // Its name from transformers 5 on, where the command has it.
    if (one.name == "gradient_checkpointing" &&
        set_flag(command, "--activation_checkpointing", one.value))
      continue;
    command.append({flag, one.value == true    ? "True"
                          : one.value == false ? "False"
                                               : argument(one.value).value_or("")});
  }
}

/// Puts the configuration where the command has a place for it; false where it has none.
bool place_configuration(TrainingCommand& command, const std::string& config_path) {
  bool is_placed = command.has_variable();
  for (const char* const flag : accelerate_config_flags)
    is_placed = command.replace_value(flag, config_path) || is_placed;
  if (is_placed || command.replace_value("--deepspeed_config", config_path)) return true;
  return names_json(command.value_of("--deepspeed")) &&
         command.replace_value("--deepspeed", config_path);
}

}  // namespace

std::string shell_quote(const std::string& word) {
  constexpr std::string_view harmless =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(harmless) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'')
      quoted += "'\\''";
    else
      quoted += letter;
  }
  return quoted + "'";
}

std::string path_in_command(const std::string& folder, const std::string& path) {
  const char* const home = std::getenv("HOME");
  if (path.starts_with("~/") && home != nullptr) return home + path.substr(1);
  return path.starts_with('/') || folder.empty() ? path : fmt::format("{}/{}", folder, path);
}

std::string launch_line_violation(const UserCommand& training_command) {
  const TrainingCommand command(std::string(trimmed(training_command.text)), "c.json");
  std::vector<std::string> flags;
  for (const auto& [key, flag] : training_command.arg_mappings) flags.emplace_back(trimmed(flag));
  const std::string reason = command.ambiguity(flags);
  if (reason.empty()) return "";
  const char* const hint =
      command.has_variable()
          ? "write the flag with any value where it goes, and $CONFIG once, in the command that "
            "trains"
          : "put $CONFIG where its file goes, as in \"train.py --deepspeed_config $CONFIG\"";
  return fmt::format("it can not be told where the configuration goes: {}; {}", reason, hint);
}

std::string launch_line(const UserCommand& training_command, const std::string& config_path,
                        const json::Value& ds_config, Recompute recompute, const GroupShape& shape,
                        const std::optional<std::string>& hostfile) {
  require(launch_line_violation(training_command).empty(),
          "the place of the configuration is clear");
  TrainingCommand command(std::string(trimmed(training_command.text)), config_path);
  LaunchRequest request{shape, training_command.folder, config_path, &ds_config, true, hostfile};
  request.is_placed = place_configuration(command, config_path);
  if (!request.is_placed && read_launcher(command.words()).kind != LauncherKind::accelerate) {
    command.append(
        {training_command.takes_training_arguments ? "--deepspeed" : "--deepspeed_config",
         config_path});
    request.is_placed = true;
  }
  map_arguments(command, ds_config, training_command.arg_mappings);
  if (training_command.takes_training_arguments)
    match_training_arguments(command, ds_config, recompute, training_command);
  const LaunchPlan plan = plan_launch(command.words(), request);
  command.apply(plan.edits);
  // A command whose ranks can not be told starts with the configuration all the same.
  const bool has_config = std::ranges::any_of(plan.edits, [](const WordEdit& edit) {
    return std::ranges::find(edit.words, "--deepspeed_config_file") != edit.words.end();
  });
  if (!plan.problem.empty() && !request.is_placed && !has_config)
    command.apply({{read_launcher(command.words()).options.begin,
                    false,
                    {"--deepspeed_config_file", config_path}}});
  return command.text();
}

LaunchCounts launch_counts(const UserCommand& training_command) {
  const TrainingCommand command(std::string(trimmed(training_command.text)), "c.json");
  return counts_of(command.words(), training_command.folder);
}

std::string launch_counts_violation(const UserCommand& training_command,
                                    const std::vector<GroupShape>& shapes) {
  const std::string& folder = training_command.folder;
  TrainingCommand command(std::string(trimmed(training_command.text)), "c.json");
  const bool is_placed = place_configuration(command, "c.json");
  const std::vector<std::string> words = command.words();
  for (const GroupShape& shape : shapes) {
    LaunchRequest request{shape, folder, "c.json"};
    request.is_placed = is_placed || read_launcher(words).kind != LauncherKind::accelerate;
    const LaunchPlan plan = plan_launch(words, request);
    if (plan.problem.empty()) continue;
    if (!plan.is_of_counts) return plan.problem;
    const LaunchCounts counts = counts_of(words, folder);
    const bool is_other = counts.num_ranks.value_or(shape.size()) != shape.size() ||
                          counts.num_nodes.value_or(shape.num_nodes) != shape.num_nodes ||
                          counts.num_gpus.value_or(shape.num_gpus) != shape.num_gpus;
    if (shapes.size() == 1 && !is_other) continue;
    return fmt::format("it can not be told to start {} on {}: {}",
                       format_count(shape.size(), "rank"), format_count(shape.num_nodes, "node"),
                       plan.problem);
  }
  return "";
}

std::optional<ScriptCommand> script_command(const std::string& training_command,
                                            const json::Value& ds_config,
                                            const ArgMappings& arg_mappings) {
  constexpr const char* place = "$CONFIG";
  TrainingCommand command(std::string(trimmed(training_command)), place);
  if (!command.has_variable() && !command.replace_value("--deepspeed_config", place) &&
      names_json(command.value_of("--deepspeed")))
    command.replace_value("--deepspeed", place);
  map_arguments(command, ds_config, arg_mappings);
  ScriptCommand found;
  for (const std::string& word : command.words()) {
    if (!found.script.empty())
      found.arguments.push_back(word);
    else if (word.ends_with(".py"))
      found.script = word;
  }
  return found.script.empty() ? std::nullopt : std::optional(found);
}

std::string placeholder_launch_line(const std::string& config_path, const GroupShape& shape) {
  return fmt::format(
      "deepspeed --num_nodes {} --num_gpus {} your_training_script.py --deepspeed_config {}",
      shape.num_nodes, shape.num_gpus, shell_quote(config_path));
}

}  // namespace dstune
