#include "dstune/core/command_reading.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {

namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

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

TEST(CommandReadingTest, ReadsFlagsOfTrainingArgumentsInAllTheirForms) {
  const auto reading = reading_of(
      "deepspeed parser.py --deepspeed ds.json --per_device_train_batch_size 4 "
      "--gradient-accumulation-steps=8 --bf16 --block_size 512 "
      "--gradient_checkpointing true --optim adamw_torch --max_grad_norm 0.5 "
      "--learning_rate 2e-5 --max_steps 200 --seed=7 --max_steps -1");
  EXPECT_EQ(reading.micro_batch, 4);
  EXPECT_EQ(reading.accumulation_steps, 8);
  EXPECT_EQ(reading.sequence_length, 512);
  EXPECT_EQ(reading.precision, Precision::bf16);
  EXPECT_EQ(reading.recompute, true);
  EXPECT_EQ(reading.find("optim")->text, "adamw_torch");
  EXPECT_EQ(reading.numbers.at("/gradient_clipping"), 0.5);
  EXPECT_EQ(reading.numbers.at("/optimizer/params/lr"), 2e-5);
  EXPECT_EQ(reading.find("max_steps")->text, "200");
  EXPECT_EQ(reading.find("seed")->text, "7");
  EXPECT_TRUE(reading.takes_training_arguments);
  ASSERT_NE(reading.find("gradient_accumulation_steps"), nullptr);
  EXPECT_EQ(reading.find("gradient_accumulation_steps")->source, "--gradient-accumulation-steps");
  EXPECT_EQ(reading.find("gradient_accumulation_steps")->text, "8");
}

TEST(CommandReadingTest, SwitchesStandAloneOrHaveATruthBehindThem) {
  EXPECT_EQ(reading_of("t.py --fp16 --bf16 False").precision, Precision::fp16);
  EXPECT_EQ(reading_of("t.py --bf16 false").precision, Precision::fp32);
  EXPECT_EQ(reading_of("t.py --bf16=1").precision, Precision::bf16);
  EXPECT_EQ(reading_of("t.py --x").precision, std::nullopt);
  EXPECT_EQ(reading_of("t.py --gradient_checkpointing --x 1").recompute, true);
  EXPECT_EQ(reading_of("t.py --gradient_checkpointing=no").recompute, false);
}

TEST(CommandReadingTest, TheLastOfTheSameFlagCountsAndHidesTheFirst) {
  const auto reading =
      reading_of("t.py --per_device_train_batch_size 4 --per_device_train_batch_size 2");
  EXPECT_EQ(reading.micro_batch, 2);
  EXPECT_EQ(reading.values.size(), 1U);
}

TEST(CommandReadingTest, ArgMappingsNameFlagsOfTheScriptsOwn) {
  const ArgMappings mappings = {{"train_micro_batch_size_per_gpu", "--batch"},
                                {"gradient_accumulation_steps ", " -g "},
                                {"lr", "--rate"}};
  const auto reading = reading_of("plain.py --batch 12 -g 2 --rate 0.1 --batch_test 3", mappings);
  EXPECT_EQ(reading.micro_batch, 12);
  EXPECT_EQ(reading.accumulation_steps, 2);
  EXPECT_EQ(reading.numbers.at("/optimizer/params/lr"), 0.1);
  EXPECT_FALSE(reading.takes_training_arguments);
}

TEST(CommandReadingTest, WhatIsNoNumberIsNotRead) {
  const auto reading = reading_of(
      "t.py --per_device_train_batch_size $BS --gradient_accumulation_steps 0 --block_size 1.5");
  EXPECT_EQ(reading.micro_batch, std::nullopt);
  EXPECT_EQ(reading.accumulation_steps, std::nullopt);
  EXPECT_EQ(reading.sequence_length, std::nullopt);
  EXPECT_THAT(reading.values, IsEmpty());
  EXPECT_EQ(reading.unread.size(), 2U) << "0 leaves it to the script";
  EXPECT_EQ(reading.unread.front().text, "$BS");
}

TEST(CommandReadingTest, AFileOfArgumentsIsReadAndFlagsWinOverIt) {
  const auto reading = reading_of(
      "accelerate launch --config_file a.yaml trl.py --config sft.yaml "
      "--gradient_accumulation_steps 5");
  EXPECT_EQ(reading.micro_batch, 6);
  EXPECT_EQ(reading.accumulation_steps, 5);
  EXPECT_EQ(reading.sequence_length, 2048);
  EXPECT_EQ(reading.precision, Precision::bf16);
  EXPECT_EQ(reading.numbers.at("/optimizer/params/lr"), 2e-5);
  EXPECT_EQ(reading.find("dstune/sequence_length")->source, "max_length of sft.yaml");
  EXPECT_TRUE(reading.takes_training_arguments);

  const auto alone = reading_of("accelerate launch -m axolotl.cli.train ax.yml");
  EXPECT_EQ(alone.micro_batch, 2);
  const auto axolotl = reading_of("axolotl train ax.yml");
  EXPECT_EQ(axolotl.micro_batch, 2);
  EXPECT_EQ(axolotl.sequence_length, 4096);
  EXPECT_EQ(axolotl.find("optim")->text, "adamw_torch");
}

TEST(CommandReadingTest, ALaunchersFlagsAreNotTheScripts) {
  const auto reading = reading_of(
      "accelerate launch --gradient_accumulation_steps 8 parser.py "
      "--per_device_train_batch_size 4 --max_steps -1 --seed 0");
  EXPECT_EQ(reading.accumulation_steps, std::nullopt);
  EXPECT_EQ(reading.micro_batch, 4);
  EXPECT_THAT(reading.unread, IsEmpty());
  EXPECT_EQ(reading_of("train.py mode sft.yaml").micro_batch, std::nullopt);
  EXPECT_EQ(reading_of("train.py sft.yaml").micro_batch, 6);
  const json::Value config = {{"gradient_accumulation_steps", 2}};
  EXPECT_EQ(launch_line({"mine --gradient_accumulation_steps 8 t.py --deepspeed a.json", {}, true},
                        "/c.json", config, Recompute::selective, {1, 1}),
            "mine --gradient_accumulation_steps 8 t.py --deepspeed /c.json "
            "--gradient_accumulation_steps 2");
}

TEST(CommandReadingTest, TellsATrainersScript) {
  EXPECT_TRUE(reading_of("torchrun parser.py --deepspeed $CONFIG").takes_training_arguments);
  EXPECT_TRUE(
      reading_of("torchrun absent.py --deepspeed ds.json --output_dir o").takes_training_arguments);
  EXPECT_FALSE(reading_of("torchrun plain.py --deepspeed $CONFIG --num_train_epochs 3")
                   .takes_training_arguments)
      << "it has a parser of its own";
  EXPECT_FALSE(reading_of("torchrun absent.py --deepspeed --train_file=t.json --output_dir o")
                   .takes_training_arguments);
  EXPECT_FALSE(reading_of("torchrun plain.py --deepspeed_config ds.json").takes_training_arguments);
  EXPECT_FALSE(reading_of("torchrun plain.py --deepspeed --deepspeed_config ds.json "
                          "--per_device_train_batch_size 4")
                   .takes_training_arguments);
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
