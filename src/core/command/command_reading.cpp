#include "dstune/core/command_reading.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "command/launcher.hpp"
#include "command/training_command.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// The kind that a value has to be.
enum class Shape { count, number, truth, word };

/// A name under which a value is given, and what it says.
struct ArgumentName {
  std::string_view name;
  std::string_view key;
  Shape shape;
};

constexpr std::string_view micro_batch_key = "train_micro_batch_size_per_gpu";
constexpr std::string_view accumulation_key = "gradient_accumulation_steps";
constexpr std::string_view sequence_key = "dstune/sequence_length";
constexpr std::string_view recompute_key = "dstune/activation_recompute";
constexpr std::string_view rate_key = "optimizer/params/lr";

/// Flags of TrainingArguments (transformers, training_args.py).
constexpr std::array<ArgumentName, 16> trainer_names{{
    {"per_device_train_batch_size", micro_batch_key, Shape::count},
    {"gradient_accumulation_steps", accumulation_key, Shape::count},
    {"gradient_checkpointing", recompute_key, Shape::truth},
    {"activation_checkpointing", recompute_key, Shape::truth},
    {"bf16", "bf16/enabled", Shape::truth},
    {"fp16", "fp16/enabled", Shape::truth},
    {"tf32", "tf32", Shape::truth},
    {"optim", "optim", Shape::word},
    {"learning_rate", rate_key, Shape::number},
    {"weight_decay", "optimizer/params/weight_decay", Shape::number},
    {"adam_beta1", "optimizer/params/betas/0", Shape::number},
    {"adam_beta2", "optimizer/params/betas/1", Shape::number},
    {"adam_epsilon", "optimizer/params/eps", Shape::number},
    {"max_grad_norm", "gradient_clipping", Shape::number},
    {"max_steps", "max_steps", Shape::count},
    {"seed", "seed", Shape::count},
}};

/// The length of a sample, as scripts call it: transformers' examples, TRL, LLaMA-Factory, axolotl.
constexpr std::array<std::string_view, 8> sequence_names{
    "block_size",  "max_length",       "max_seq_length", "cutoff_len",
    "max_seq_len", "model_max_length", "seq_length",     "sequence_len"};

/// axolotl's, which has TrainingArguments' names for the rest.
constexpr std::array<ArgumentName, 2> yaml_names{{
    {"micro_batch_size", micro_batch_key, Shape::count},
    {"optimizer", "optim", Shape::word},
}};

std::optional<ArgumentName> argument_named(std::string_view name, bool is_yaml) {
  const auto has_name = [&](const ArgumentName& one) { return one.name == name; };
  if (const auto* const found = std::ranges::find_if(trainer_names, has_name);
      found != trainer_names.end())
    return *found;
  if (std::ranges::find(sequence_names, name) != sequence_names.end())
    return ArgumentName{name, sequence_key, Shape::count};
  const auto* const found = std::ranges::find_if(yaml_names, has_name);
  return is_yaml && found != yaml_names.end() ? std::optional(*found) : std::nullopt;
}

/// TrainingArguments' flags have underscores or hyphens.
std::string with_underscores(std::string_view flag) {
  std::string name(flag);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> count_in(std::string_view text) {
  const auto number = number_in(text);
  constexpr double largest = 1e15;
  if (!number || *number != std::floor(*number) || *number < 0 || *number > largest)
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

/// HfArgumentParser reads truths so.
std::optional<bool> truth_in(std::string_view text) {
  const std::string word = lower_case(text);
  for (const std::string_view yes : {"true", "t", "yes", "y", "1"})
    if (word == yes) return true;
  for (const std::string_view no : {"false", "f", "no", "n", "0"})
    if (word == no) return false;
  return std::nullopt;
}

/// Some values leave it to the script: the Trainer's -1, and axolotl's auto.
bool is_unset(const std::string& text) {
  const auto number = number_in(text);
  return lower_case(text) == "auto" || (number && *number <= 0);
}

class CommandReader {
 public:
  explicit CommandReader(CommandReading& reading) : reading_(&reading) {}

  void take(const ArgumentName& name, const std::string& text, const std::string& source) {
    CommandValue value{std::string(name.key), text, source};
    if (name.shape != Shape::number && name.shape != Shape::truth && is_unset(text)) return;
    if (name.shape == Shape::truth && lower_case(text) == "auto") return;
    if (!set(name, text)) {
      reading_->unread.push_back(std::move(value));
      return;
    }
    std::erase_if(reading_->values, [&](const CommandValue& one) { return one.key == value.key; });
    reading_->values.push_back(std::move(value));
  }

  /// bf16 and fp16 are two switches of one thing.
  void settle_precision() {
    if (bf16_.value_or(false))
      reading_->precision = Precision::bf16;
    else if (fp16_.value_or(false))
      reading_->precision = Precision::fp16;
    else if (bf16_ || fp16_)
      reading_->precision = Precision::fp32;
  }

 private:
  /// False where the text is not what the name needs.
  bool set(const ArgumentName& name, const std::string& text) {
    switch (name.shape) {
      case Shape::count: {
        const auto count = count_in(text);
        return count && set_count(name.key, *count);
      }
      case Shape::number: {
        const auto number = number_in(text);
        if (number) reading_->numbers[fmt::format("/{}", name.key)] = *number;
        return number.has_value();
      }
      case Shape::truth: {
        const auto truth = truth_in(text);
        return truth && set_truth(name.key, *truth);
      }
      case Shape::word:
        break;
    }
    return text.find_first_of("$`") == std::string::npos;
  }

  bool set_count(std::string_view key, std::int64_t count) {
    if (key == micro_batch_key) reading_->micro_batch = count;
    if (key == accumulation_key) reading_->accumulation_steps = count;
    if (key == sequence_key) reading_->sequence_length = count;
    return true;
  }

  bool set_truth(std::string_view key, bool truth) {
    if (key == recompute_key) reading_->recompute = truth;
    if (key == "bf16/enabled") bf16_ = truth;
    if (key == "fp16/enabled") fp16_ = truth;
    return true;
  }

  CommandReading* reading_;
  std::optional<bool> bf16_, fp16_;
};

/// The key that `arg_mappings` gives this flag; it may be any of the keys above, without its path.
std::optional<ArgumentName> mapped_argument(std::string_view flag,
                                            const ArgMappings& arg_mappings) {
  for (const auto& [mapped_key, mapped_flag] : arg_mappings) {
    if (trimmed(mapped_flag) != flag) continue;
    const std::string_view key = trimmed(mapped_key);
    for (const ArgumentName& name : trainer_names)
      if (name.key == key || name.key.substr(name.key.find_last_of('/') + 1) == key) return name;
  }
  return std::nullopt;
}

std::string text_of(const json::Value& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool is_yaml_name(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

/// True where the script's source parses TrainingArguments.
bool parses_training_arguments(const std::string& source) {
  for (const std::string_view parser : {"HfArgumentParser", "TrlParser"})
    if (source.find(parser) != std::string::npos) return true;
  return false;
}

/// True where it parses its arguments with Python's parser, and has nothing of Hugging Face's.
bool has_parser_of_its_own(const std::string& source) {
  const auto names = [&](const char* word) { return source.find(word) != std::string::npos; };
  return names("ArgumentParser") && !names("transformers") && !names("trl");
}

/// A word and what follows it as its value.
struct GivenFlag {
  std::string name;
  std::optional<std::string> value;  ///< nothing: a switch
};

std::optional<GivenFlag> flag_at(const std::vector<std::string>& words, std::size_t place) {
  const std::string& word = words[place];
  if (word.size() < 2 || word[0] != '-' || number_in(word)) return std::nullopt;
  if (const auto equals = word.find('='); equals != std::string::npos)
    return GivenFlag{word.substr(0, equals), word.substr(equals + 1)};
  const bool has_next = place + 1 < words.size();
  const bool is_value =
      has_next && (!words[place + 1].starts_with('-') || number_in(words[place + 1]).has_value());
  return GivenFlag{word, is_value ? std::optional(words[place + 1]) : std::nullopt};
}

}  // namespace

const CommandValue* CommandReading::find(std::string_view key) const {
  const auto found =
      std::ranges::find_if(values, [&](const CommandValue& one) { return one.key == key; });
  return found == values.end() ? nullptr : &*found;
}

CommandReading read_command(const std::string& training_command, const ArgMappings& arg_mappings,
                            const CommandFiles& files) {
  CommandReading reading;
  CommandReader reader(reading);
  const TrainingCommand command(std::string(trimmed(training_command)), "$CONFIG.json");
  const std::vector<std::string> words = command.words();

  const auto take_yaml = [&](const std::string& path) {
    const auto values = files.yaml(path);
    if (!values) reading.unread.push_back({"arguments", path, "--config"});
    if (!values || !values->is_object()) return;
    for (const auto& [key, value] : values->items()) {
      const auto name = argument_named(key, true);
      if (!name || value.is_structured() || value.is_null()) continue;
      reader.take(*name, text_of(value), fmt::format("{} of {}", key, base_name(path)));
    }
  };
  // Flags of the launcher say nothing of the script; a program of its own has a word of what to do.
  const std::size_t script = script_word(words);
  const std::size_t begin = script > 0 || words.empty() || words[0].ends_with(".py") ? script : 1;
  for (std::size_t place = begin + 1; place < words.size(); ++place) {
    if (is_yaml_name(words[place]) && (words[place - 1] == "--config" || place == begin + 1))
      take_yaml(words[place]);
    if (words[place].starts_with("--config=") && is_yaml_name(words[place]))
      take_yaml(words[place].substr(words[place].find('=') + 1));
  }

  std::size_t num_training_flags = 0;
  for (std::size_t place = script; place < words.size(); ++place) {
    const auto flag = flag_at(words, place);
    if (!flag) continue;
    auto name = mapped_argument(flag->name, arg_mappings);
    if (flag->name.starts_with("--")) {
      const std::string argument = with_underscores(flag->name.substr(2));
      const auto usual = argument_named(argument, false);
      if (argument == "output_dir" || argument == "num_train_epochs" ||
          (usual && usual->key != sequence_key))
        ++num_training_flags;
      if (!name) name = usual;
    }
    if (!name) continue;
    if (flag->value || name->shape == Shape::truth)
      reader.take(*name, flag->value.value_or("True"), flag->name);
  }
  reader.settle_precision();

  const auto found = script_command(training_command, json::Value::object(), {});
  const auto source = found ? files.text(found->script) : std::nullopt;
  const bool has_flags = names_json(command.value_of("--deepspeed")) && num_training_flags > 0;
  const bool is_trl = !words.empty() && base_name(words.front()) == "trl";
  reading.takes_training_arguments = is_trl || (source && parses_training_arguments(*source)) ||
                                     (has_flags && !(source && has_parser_of_its_own(*source)));
  return reading;
}

}  // namespace dstune
