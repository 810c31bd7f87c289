#include "sections/command_values.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/checked.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"
#include "dstune/base/yaml.hpp"
#include "dstune/core/command_reading.hpp"

namespace dstune {

namespace {

constexpr const char* micro_batch_key = "train_micro_batch_size_per_gpu";
constexpr const char* steps_key = "gradient_accumulation_steps";

/// A script's source, or a file of its arguments.
constexpr std::int64_t max_named_file_bytes = 8 << 20;

/// True where the config leaves a key to the training: absent, null or "auto".
bool is_left_open(const json::Value& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() || *found == "auto";
}

/// A batch size as it may be; whatever else stands there is named when the config is read.
std::optional<std::int64_t> as_size(const json::Value& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto size = value.get<std::int64_t>();
  return size > 0 ? std::optional(size) : std::nullopt;
}

/// The config's word on a batch size: the command's value where a list has it, else the first.
std::optional<std::int64_t> size_in(const json::Value& config, const char* key,
                                    const std::optional<std::int64_t>& of_command) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  if (!found->is_array()) return as_size(*found);
  std::optional<std::int64_t> first;
  for (const json::Value& candidate : *found) {
    const auto size = as_size(candidate);
    if (size && size == of_command) return size;
    if (!first) first = size;
  }
  return first;
}

/// Ranks that the command trains with: what its launcher says, else the first group size, as what
/// comes first in a list is what the user has today.
int ranks_of(const JobSpec& job) {
  const LaunchCounts counts = launch_counts(*job.training_command);
  if (counts.num_ranks) return *counts.num_ranks;
  const GroupShape first = job.shapes.empty() ? GroupShape{1, 1} : job.shapes.front();
  return counts.num_gpus ? *counts.num_gpus * counts.num_nodes.value_or(first.num_nodes)
                         : first.size();
}

std::optional<TodaysBatch> todays_batch(const JobSpec& job) {
  const CommandReading& command = job.command;
  const auto total = size_in(job.ds_config, "train_batch_size", std::nullopt);
  TodaysBatch batch;
  batch.ranks = ranks_of(job);
  auto micro = size_in(job.ds_config, micro_batch_key, command.micro_batch);
  if (!micro) micro = command.micro_batch;
  // TrainingArguments have a default.
  constexpr std::int64_t usual_micro_batch = 8;
  const bool is_unread = std::ranges::any_of(command.unread, [](const CommandValue& value) {
    return value.key == micro_batch_key || value.key == "arguments";
  });
  if (!micro && command.takes_training_arguments && !is_unread) micro = usual_micro_batch;
  if (!micro) return std::nullopt;
  batch.micro_batch = *micro;
  batch.accumulation_steps = size_in(job.ds_config, steps_key, command.accumulation_steps)
                                 .value_or(command.accumulation_steps.value_or(1));
  if (total) batch.accumulation_steps = std::max<std::int64_t>(1, *total / *micro / batch.ranks);
  try {
    batch.samples = total.value_or(checked_product("the global batch of the training command",
                                                   *micro, batch.accumulation_steps, batch.ranks));
  } catch (const OverflowError&) {
    return std::nullopt;
  }
  return batch;
}

/// "bf16.enabled True (--bf16)"
std::string told(const CommandValue& value) {
  std::string key = value.key;
  std::ranges::replace(key, '/', '.');
  return fmt::format("{} {} ({})", key, value.text, value.source);
}

class Taker {
 public:
  Taker(const json::Node* section, SectionTarget& target)
      : section_(section), target_(&target), job_(target.job) {}

  void run() {
    const CommandReading& command = job_->command;
    json::Value& config = job_->ds_config;
    const auto states = [&](const char* key) { return !is_left_open(config, key); };
    if (states(micro_batch_key)) settle_size(micro_batch_key, command.micro_batch);
    if (command.accumulation_steps && !states(steps_key) && !states("train_batch_size"))
      config[steps_key] = *command.accumulation_steps;
    else if (states(steps_key))
      settle_size(steps_key, command.accumulation_steps);
    take_precision();
    if (says("sequence_length")) lose("dstune/sequence_length");
    take_recompute();
    for (const auto& [pointer, number] : command.numbers) take_number(pointer);
    if (config.contains("optimizer")) lose("optim");
    tell();
  }

 private:
  [[nodiscard]] bool says(const char* key) const {
    return section_ != nullptr && given(*section_, key);
  }

  /// A size of the config's that is the command's, too, or may be, is taken for today's.
  void settle_size(const char* key, const std::optional<std::int64_t>& size) {
    if (size && size_in(job_->ds_config, key, size) != size) lose(key);
  }

  /// The space wins over it.
  void lose(const std::string& key) { lost_.insert(key); }

  /// A mode that the space lists is the baseline's where the command has it.
  void take_recompute() {
    std::optional<bool>& asked = job_->command.recompute;
    if (!asked) return;
    const Recompute mode = *asked ? Recompute::block : Recompute::none;
    if (!says("activation_recompute")) {
      job_->recompute = {mode};
    } else if (std::ranges::find(job_->recompute, mode) == job_->recompute.end()) {
      lose("dstune/activation_recompute");
      asked.reset();
    }
  }

  void take_precision() {
    const CommandReading& command = job_->command;
    const json::Value& config = job_->ds_config;
    const bool has_section =
        config.contains("bf16") || config.contains("bfloat16") || config.contains("fp16");
    const bool is_open = has_automatic_precision(config);
    if (!command.precision || says("precision") || (has_section && !is_open)) {
      for (const char* section : {"bf16", "fp16"}) {
        const CommandValue* const said = command.find(fmt::format("{}/enabled", section));
        const json::Value::json_pointer place(fmt::format("/{}/enabled", section));
        const bool is_on = config.contains(place) && config.at(place) == true;
        // Nothing is to be said where both say the same.
        if (said == nullptr || is_on == (from_text<Precision>(section) == command.precision))
          continue;
        lose(said->key);
        job_->command.precision.reset();
      }
      return;
    }
    if (is_open) {
      target_->command_precision = command.precision;
    } else if (command.takes_training_arguments && *command.precision != Precision::fp32) {
      // accelerate adds the section (DeepSpeedPlugin.set_mixed_precision).
      job_->ds_config[std::string(to_text(*command.precision))] = {{"enabled", true}};
    } else if (*command.precision != Precision::fp32) {
      // A script of its own kind may do what it likes with it.
      lose(fmt::format("{}/enabled", to_text(*command.precision)));
      job_->command.precision.reset();
    }
  }

  /// The Trainer's numbers fill in what the config leaves to them, and are of no matter elsewhere.
  void take_number(const std::string& pointer) {
    const json::Value::json_pointer place(pointer);
    const bool is_automatic =
        job_->ds_config.contains(place) && job_->ds_config.at(place) == "auto";
    if (!is_automatic) lose(pointer.substr(1));
  }

  void tell() {
    const CommandReading& command = job_->command;
    std::vector<std::string> taken, left;
    for (const CommandValue& value : command.values) {
      // Rates that the config states elsewhere are no contradiction.
      const bool is_number = command.numbers.contains("/" + value.key);
      if (!lost_.contains(value.key))
        taken.push_back(told(value));
      else if (!is_number)
        left.push_back(told(value));
    }
    auto& lines = job_->from_command;
    if (!taken.empty())
      lines.push_back(fmt::format("Read from the training command: {}", fmt::join(taken, ", ")));
    if (!left.empty())
      lines.push_back(
          fmt::format("Not taken from the training command, since the space says it: {}",
                      fmt::join(left, ", ")));
    std::vector<std::string> unread;
    for (const CommandValue& value : command.unread) unread.push_back(told(value));
    if (!unread.empty())
      lines.push_back(fmt::format(
          "Not understood in the training command, where a value of another kind is needed: {}",
          fmt::join(unread, ", ")));
  }

  const json::Node* section_;
  SectionTarget* target_;
  JobSpec* job_;
  std::set<std::string> lost_;
};

}  // namespace

CommandFiles files_of(JobSpec& job) {
  const std::string folder = job.folder;
  const auto text = [folder](const std::string& path) -> std::optional<std::string> {
    try {
      return read_file(path_in_command(folder, path), max_named_file_bytes);
    } catch (const Error&) {
      return std::nullopt;  // the command may run elsewhere
    }
  };
  const auto yaml = [&job](const std::string& path) -> std::optional<json::Value> {
    try {
      return read_yaml(path_in_command(job.folder, path)).root();
    } catch (const Error& error) {
      job.warnings.push_back(fmt::format("the training command's arguments in {} are not read: {}",
                                         path, error.what()));
      return std::nullopt;
    }
  };
  return {text, yaml};
}

void take_from_command(const json::Node* section, SectionTarget& target) {
  JobSpec& job = *target.job;
  if (!job.training_command) return;
  UserCommand& written = *job.training_command;
  written.arg_mappings = job.tuning.arg_mappings;
  written.folder = job.folder;
  job.command = read_command(written.text, written.arg_mappings, files_of(job));
  written.takes_training_arguments = job.command.takes_training_arguments;
  if (!job.experiment_files.empty()) return;  // they say it all
  Taker(section, target).run();
  job.todays_batch = todays_batch(job);
  if (!job.todays_batch) return;
  const auto& [micro_batch, steps, ranks, samples] = *job.todays_batch;
  std::string line = fmt::format("The global batch is {} today", format_count(samples, "sample"));
  if (micro_batch * steps * ranks == samples)
    line += fmt::format(", {} x {} x {}", micro_batch, steps, format_count(ranks, "rank"));
  if (!job.keeps_global_batch && is_left_open(job.ds_config, "train_batch_size"))
    line += "; \"global_batch\": \"keep\" in the section dstune keeps it";
  job.from_command.push_back(std::move(line));
}

void keep_global_batch(const json::Node* section, SectionTarget& target) {
  JobSpec& job = *target.job;
  if (!job.keeps_global_batch || !job.experiment_files.empty()) return;
  if (!is_left_open(job.ds_config, "train_batch_size")) return;
  if (!job.todays_batch) {
    const json::Node place = section->find("global_batch").value_or(*section);
    target.problems->add(place.problem(
        "nothing says what the global batch is today: write it as train_batch_size, or a "
        "training_command with its micro-batch"));
    return;
  }
  json::Value& steps = job.ds_config[steps_key];
  if (!steps.is_array()) steps = "auto";
  job.ds_config["train_batch_size"] = job.todays_batch->samples;
}

}  // namespace dstune
