// The training command's word is taken over where the space does not say it.
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/space/search_space.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class CommandValuesTest : public SpaceTest {
 protected:
  /// A space with this command, and with more in `dstune` and in the config.
  JobSpec read(const std::string& command, const std::string& config = "",
               const std::string& dstune = "") {
    return job(R"({"dstune": {"training_command": ")" + command + "\"" +
               (dstune.empty() ? "" : ", " + dstune) + "}" + (config.empty() ? "" : ", " + config) +
               "}");
  }
};

TEST_F(CommandValuesTest, FillsInWhatTheSpaceLeavesOpen) {
  const auto read_job = read(
      "torchrun run_clm.py --deepspeed ds.json --per_device_train_batch_size 4 "
      "--gradient_accumulation_steps 8 --bf16 --block_size 512 --gradient_checkpointing true "
      "--learning_rate 3e-4",
      R"("bf16": {"enabled": "auto"}, "gradient_accumulation_steps": "auto",
         "optimizer": {"type": "AdamW", "params": {"lr": "auto"}})");
  EXPECT_EQ(read_job.ds_config["gradient_accumulation_steps"], 8);
  EXPECT_EQ(read_job.precision, Precision::bf16);
  EXPECT_EQ(read_job.sequence_length, 512);
  EXPECT_THAT(read_job.recompute, ElementsAre(Recompute::block));
  EXPECT_EQ(std::get<double>(read_job.auto_values.at("/optimizer/params/lr")), 3e-4);
  ASSERT_TRUE(read_job.todays_batch);
  EXPECT_EQ(read_job.todays_batch->samples, 32);
  ASSERT_FALSE(read_job.from_command.empty());
  for (const char* flag : {"--per_device_train_batch_size", "--gradient_accumulation_steps",
                           "--bf16", "--block_size", "--gradient_checkpointing"})
    EXPECT_THAT(read_job.from_command.front(), HasSubstr(flag));
  EXPECT_THAT(read_job.from_command.back(), HasSubstr("\"global_batch\": \"keep\""));
}

TEST_F(CommandValuesTest, TheSpaceWinsOverFlagsAndSaysSo) {
  const auto read_job = read(
      "torchrun t.py --deepspeed ds.json --block_size 512 --gradient_checkpointing --bf16 "
      "--gradient_accumulation_steps 8 --per_device_train_batch_size 4",
      R"("fp16": {"enabled": true}, "gradient_accumulation_steps": [1, 2],
         "train_micro_batch_size_per_gpu": [2, 4])",
      R"("sequence_length": 64, "activation_recompute": ["none", "block"])");
  EXPECT_EQ(read_job.sequence_length, 64);
  EXPECT_EQ(read_job.recompute.size(), 2U);
  EXPECT_FALSE(read_job.ds_config.contains("bf16"));
  EXPECT_EQ(read_job.ds_config["gradient_accumulation_steps"], json::Value({1, 2}));
  EXPECT_THAT(read_job.from_command,
              Contains(HasSubstr("Not taken from the training command, since the space says it")));
  // The list has the command's micro-batch, not its accumulation.
  EXPECT_EQ(read_job.todays_batch->micro_batch, 4);
  EXPECT_EQ(read_job.todays_batch->accumulation_steps, 1);
}

TEST_F(CommandValuesTest, ATrainersPrecisionMakesItsSection) {
  const std::string command = "torchrun t.py --deepspeed ds.json --bf16";
  EXPECT_EQ(read(command).ds_config["bf16"]["enabled"], true);
  EXPECT_FALSE(read("torchrun t.py --deepspeed_config ds.json --bf16").ds_config.contains("bf16"))
      << "a script of its own kind decides by itself";
}

TEST_F(CommandValuesTest, TrainingArgumentsHaveAMicroBatchByDefault) {
  const auto trainer = read("torchrun t.py --deepspeed ds.json --output_dir o");
  ASSERT_TRUE(trainer.todays_batch);
  EXPECT_EQ(trainer.todays_batch->micro_batch, 8);
  EXPECT_FALSE(read("torchrun t.py --deepspeed_config ds.json").todays_batch);
  EXPECT_FALSE(
      read("torchrun t.py --deepspeed ds.json --per_device_train_batch_size $B").todays_batch);
}

TEST_F(CommandValuesTest, ASampleIsNoLongerThanTheModelHasPositions) {
  const auto cut = job(
      R"({"dstune": {"model": {"family": "gpt2", "hidden_size": 64, "num_layers": 1,
          "num_heads": 2, "vocab_size": 64, "max_positions": 128},
          "training_command": "t.py --deepspeed d.json --block_size 512"}})");
  EXPECT_EQ(cut.sequence_length, 128);
  EXPECT_THAT(cut.from_command, Contains(HasSubstr("not 512")));
}

TEST_F(CommandValuesTest, SizesThatAreNoneAreNamedAsBefore) {
  for (const char* size : {"0", "0.5", "[0, 4]", "1e300"}) {
    const auto found = problems(
        R"({"dstune": {"training_command": "t.py --deepspeed d.json --output_dir o"},
            "train_batch_size": 32, "train_micro_batch_size_per_gpu": )" +
        std::string(size) + "}");
    EXPECT_FALSE(found.empty()) << size;
  }
}

TEST_F(CommandValuesTest, NodesThatNobodySaysAreThoseOfTheGroup) {
  const auto spec = job(R"({"dstune": {"resources": {"num_gpus": 8, "num_nodes": 4},
      "training_command": "torchrun --nnodes $N --nproc_per_node 8 --rdzv_endpoint h:1 t.py --deepspeed d.json --per_device_train_batch_size 2"}})");
  ASSERT_TRUE(spec.todays_batch);
  EXPECT_EQ(spec.todays_batch->ranks, 32);
}

TEST_F(CommandValuesTest, WhatAScriptOfItsOwnKindMayIgnoreIsNotTaken) {
  const auto spec = read("torchrun t.py --deepspeed_config ds.json --bf16");
  EXPECT_FALSE(spec.command.precision);
  EXPECT_THAT(spec.from_command, Contains(HasSubstr("Not taken")));
}

TEST_F(CommandValuesTest, AFileOfArgumentsIsReadBesideTheSpace) {
  write("sft.yaml", "per_device_train_batch_size: 3\n");
  EXPECT_EQ(read("trl sft --config sft.yaml").todays_batch->micro_batch, 3);
  write("sft.yaml", "a: [\n");
  const auto broken = read("trl sft --config sft.yaml");
  EXPECT_FALSE(broken.todays_batch);
  EXPECT_THAT(broken.warnings, Contains(HasSubstr("sft.yaml are not read")));
}

/// Random commands and spaces: whatever is searched, members that can run have today's batch.
TEST_F(CommandValuesTest, EveryMemberKeepsTheGlobalBatch) {
  std::mt19937 random(20);
  const auto one_of = [&](const std::vector<std::string>& all) {
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(random)];
  };
  const auto power = [&](int most) { return 1 << std::uniform_int_distribution(0, most)(random); };
  int with_members = 0;
  for (int round = 0; round < 200; ++round) {
    const int micro = power(4);
    const int steps = power(4);
    const int ranks = power(2);
    default_ranks_ = ranks;
    const std::string flags = fmt::format(
        "--per_device_train_batch_size {} --gradient_accumulation_steps {}", micro, steps);
    const std::string sizes = one_of(
        {"", R"(, "train_micro_batch_size_per_gpu": "auto")",
         R"(, "train_micro_batch_size_per_gpu": [1, 2, 3, 4])",
         R"(, "train_micro_batch_size_per_gpu": [1], "gradient_accumulation_steps": [1, 2, 4, 8])",
         R"(, "gradient_accumulation_steps": "auto")", R"(, "gradient_accumulation_steps": 2)"});
    JobSpec spec;
    try {
      spec = job(R"({"dstune": {"global_batch": "keep", "workload": {"type": "synthetic"},
                     "training_command": "torchrun t.py --deepspeed d.json )" +
                 flags + "\"}" + sizes + R"(, "zero_optimization": {"stage": [0, 3]}})");
    } catch (const InputError& error) {
      // No combination of the lists has that batch.
      EXPECT_THAT(error.what(), HasSubstr("/dstune/global_batch: keeps the")) << sizes << flags;
      continue;
    }
    ASSERT_TRUE(spec.todays_batch);
    const std::int64_t batch = spec.todays_batch->samples;
    int live = 0;
    for (const Member& member : SearchSpace(spec).members()) {
      if (member.is_pruned) continue;
      ++live;
      EXPECT_EQ(member.train_batch_size, batch) << sizes << " " << flags;
      EXPECT_EQ(global_batch(member.config, member.shape.size()), batch);
    }
    if (live > 0) ++with_members;
  }
  EXPECT_GT(with_members, 100);
}

}  // namespace
}  // namespace dstune
