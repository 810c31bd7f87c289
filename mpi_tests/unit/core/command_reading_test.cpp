#include "dstune/core/command_reading.hpp"

#include <map>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "choices.hpp"
#include "dstune/base/text.hpp"
#include "golden.hpp"

namespace dstune {

namespace {

/// Files that commands here may name.
const std::map<std::string, std::string> sources = {
    {"parser.py", "from transformers import HfArgumentParser, TrainingArguments\n"},
    {"trl.py", "from trl import TrlParser\n"},
    {"plain.py", "import argparse, deepspeed\nargparse.ArgumentParser()\n"}};
const std::map<std::string, json::Value> yamls = {
    {"sft.yaml",
     {{"per_device_train_batch_size", 6},
      {"gradient_accumulation_steps", 3},
      {"max_length", 2048},
      {"bf16", true},
      {"learning_rate", "2.0e-5"},
      {"lora_target_modules", {"q_proj"}}}},
    {"ax.yml", {{"micro_batch_size", 2}, {"sequence_len", 4096}, {"optimizer", "adamw_torch"}}}};

CommandReading reading_of(const std::string& command, const ArgMappings& mappings = {}) {
  const auto look = [](const auto& files, const std::string& path) {
    const auto found = files.find(path);
    using Found = std::optional<std::decay_t<decltype(found->second)>>;
    return found == files.end() ? Found() : Found(found->second);
  };
  return read_command(command, mappings,
                      {[&](const std::string& path) { return look(sources, path); },
                       [&](const std::string& path) { return look(yamls, path); }});
}

/// All that was read, in a line: typed values, words with their sources, what can not be read.
std::string reading_text(const std::string& input) {
  ArgMappings mappings;
  std::string command;
  for (const std::string_view line : lines_of(input)) {
    if (line.starts_with("@ "))
      mappings.emplace_back(line.substr(2, line.find('=') - 2), line.substr(line.find('=') + 1));
    else
      command = line;
  }
  const CommandReading reading = reading_of(command, mappings);
  std::vector<std::string> found{reading.takes_training_arguments ? "a trainer" : "a script"};
  if (reading.micro_batch) found.push_back(fmt::format("micro-batch {}", *reading.micro_batch));
  if (reading.accumulation_steps)
    found.push_back(fmt::format("accumulation {}", *reading.accumulation_steps));
  if (reading.sequence_length)
    found.push_back(fmt::format("sequence {}", *reading.sequence_length));
  if (reading.precision) found.push_back(fmt::format("{}", to_text(*reading.precision)));
  if (reading.recompute) found.push_back(fmt::format("recompute {}", *reading.recompute));
  for (const auto& [pointer, number] : reading.numbers)
    found.push_back(fmt::format("{} {}", pointer, number));
  for (const CommandValue& value : reading.values)
    found.push_back(fmt::format("{}={} of {}", value.key, value.text, value.source));
  for (const CommandValue& value : reading.unread)
    found.push_back(fmt::format("unread {} of {}", value.text, value.source));
  return fmt::format("{}", fmt::join(found, ", "));
}

TEST(CommandReadingTest, CommandsAreRead) {
  test::expect_golden(DSTUNE_CORE_DATA "/commands.txt", [](const std::string& input) {
    return test::answers_to(input, reading_text);
  });
}

TEST(CommandReadingTest, ALaunchersFlagsAreNotTheScripts) {
  const json::Value config = {{"gradient_accumulation_steps", 2}};
  EXPECT_EQ(launch_line({"mine --gradient_accumulation_steps 8 t.py --deepspeed a.json", {}, true},
                        "/c.json", config, Recompute::selective, {1, 1}),
            "mine --gradient_accumulation_steps 8 t.py --deepspeed /c.json "
            "--gradient_accumulation_steps 2");
}

TEST(CommandReadingTest, TrainingArgumentsAreWhatTheConfigurationStates) {
  const json::Value config = {
      {"train_batch_size", 16},
      {"train_micro_batch_size_per_gpu", 2},
      {"gradient_accumulation_steps", 4},
      {"gradient_clipping", "auto"},
      {"bf16", {{"enabled", "auto"}}},
      {"fp16", {{"enabled", false}}},
      {"optimizer",
       {{"type", "AdamW"}, {"params", {{"lr", 3e-5}, {"betas", {0.9, 0.95}}, {"eps", "auto"}}}}}};
  std::map<std::string, json::Value> found;
  for (const TrainingArgument& one : training_arguments({}, config, Recompute::block))
    found[one.name] = one.value;
  const std::map<std::string, json::Value> wanted = {{"per_device_train_batch_size", 2},
                                                     {"gradient_accumulation_steps", 4},
                                                     {"fp16", false},
                                                     {"learning_rate", 3e-5},
                                                     {"adam_beta1", 0.9},
                                                     {"adam_beta2", 0.95},
                                                     {"gradient_checkpointing", true}};
  EXPECT_EQ(found, wanted);
  const auto warming = training_arguments(
      {}, {{"scheduler", {{"params", {{"warmup_max_lr", 1e-3}}}}}}, Recompute::selective);
  ASSERT_EQ(warming.size(), 1U);
  EXPECT_EQ(warming.front().name, "learning_rate");
}

TEST(CommandReadingTest, ALaunchOfATrainerSaysWhatTheConfigurationSays) {
  const json::Value config = {{"train_micro_batch_size_per_gpu", 2},
                              {"gradient_accumulation_steps", 4},
                              {"bf16", {{"enabled", true}}}};
  const auto line = [&](const std::string& command, Recompute recompute = Recompute::none,
                        const ArgMappings& mappings = {}, bool trains_on_cpu = false) {
    return launch_line({command, mappings, true, trains_on_cpu}, "/c.json", config, recompute,
                       {1, 1});
  };
  EXPECT_EQ(line("mine t.py --deepspeed $CONFIG --per_device_train_batch_size 8 --bf16 --x"),
            "mine t.py --deepspeed /c.json --per_device_train_batch_size 2 --bf16 True --x "
            "--gradient_accumulation_steps 4 --gradient_checkpointing False");
  EXPECT_EQ(line("mine t.py --deepspeed a.json --gradient-checkpointing no --bf16=false",
                 Recompute::block, {{"train_micro_batch_size_per_gpu", "--mine"}}, true),
            "mine t.py --deepspeed /c.json --gradient-checkpointing True --bf16=True --mine 2 "
            "--gradient_accumulation_steps 4 --use_cpu True");
  EXPECT_EQ(line("mine t.py --deepspeed $CONFIG --gradient_accumulation_steps 1 "
                 "--activation_checkpointing --per_device_train_batch_size=1 --bf16 1"),
            "mine t.py --deepspeed /c.json --gradient_accumulation_steps 4 "
            "--activation_checkpointing False --per_device_train_batch_size=2 --bf16 True");
  EXPECT_EQ(line("mine t.py --x 1", Recompute::selective,
                 {{"gradient_accumulation_steps", "--gradient_accumulation_steps"}}),
            "mine t.py --x 1 --deepspeed /c.json --gradient_accumulation_steps 4 "
            "--per_device_train_batch_size 2 --bf16 True");
}

}  // namespace

}  // namespace dstune
