// The training command is read, and written with the answer so that it starts.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class LaunchersTest : public JobTest {
 protected:
  /// Groups have one or two ranks; two are twice as fast.
  void write_space(const std::string& command) {
    Json space = synthetic_space({1, 2}, {1}, 0.001);
    space["dstune"]["training_command"] = command;
    job_.write("space.json", space);
  }
  /// The line in cmd_optimal.txt, and the ranks of the answer.
  std::pair<std::string, int> tuned(const std::string& command) {
    write_space(command);
    const Ended ended = run_with({{"HF_HOME", job_.folder().string()}});  // nobody's own file
    EXPECT_EQ(ended.exit_code, done) << ended;
    return {job_.read(results + "cmd_optimal.txt"), optimal_of(job_)["num_gpus"].get<int>()};
  }
};

TEST_F(LaunchersTest, TheLineStartsTheAnswersRanks) {
  const auto [line, ranks] = tuned("torchrun --nproc_per_node=8 train.py --config $CONFIG");
  const std::string begin = "torchrun --nproc_per_node=" + std::to_string(ranks) + " train.py ";
  EXPECT_TRUE(line.starts_with(begin)) << line;
}

TEST_F(LaunchersTest, AcceleratesFileIsBesideTheSpace) {
  job_.write_text("a.yaml",
                  "distributed_type: DEEPSPEED\nnum_processes: 8\n"
                  "deepspeed_config: {zero_stage: 2, zero3_init_flag: false}\n");
  const auto [line, ranks] = tuned("accelerate launch --config_file a.yaml train.py");
  const std::string begin =
      "accelerate launch --zero3_init_flag false --num_processes " + std::to_string(ranks) + " ";
  EXPECT_TRUE(line.starts_with(begin)) << line;
  EXPECT_THAT(line, HasSubstr("ds_config_optimal.json --use_deepspeed train.py\n"));
}

TEST_F(LaunchersTest, RefusesCountsThatOnlyTheShellKnows) {
  write_space("torchrun --nproc_per_node=$GPUS train.py --config $CONFIG");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"space.json"}, {"plan", "space.json"}}) {
    const Ended ended = job_.run({.ranks = 2, .args = args});
    EXPECT_EQ(ended.exit_code, 3) << ended;
    EXPECT_THAT(ended.err, HasSubstr("/dstune/training_command")) << ended;
    EXPECT_THAT(ended.err, HasSubstr("--nproc_per_node is $GPUS, which only the shell knows"))
        << ended;
  }
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / results / "journal.jsonl"));
}

/// Flags say what today's training is.
class CommandTest : public JobTest {
 protected:
  static Json space_of(const std::string& command) {
    Json space = synthetic_space({2}, {1}, 0.001);
    space["dstune"]["training_command"] = command;
    space["autotuning"]["max_train_micro_batch_size_per_gpu"] = 32;
    space["train_micro_batch_size_per_gpu"] = "auto";
    space["gradient_accumulation_steps"] = "auto";
    return space;
  }
  Ended run(const Json& space) {
    job_.write("space.json", space);
    return JobTest::run();
  }
};

constexpr const char* trainers_command =
    "torchrun --nproc_per_node 2 train.py --deepspeed ds.json --per_device_train_batch_size 8 "
    "--gradient_accumulation_steps 4";

TEST_F(CommandTest, FlagsAreTheBaselineAndAChangeOfTheBatchIsSaid) {
  const Ended ended = run(space_of(trainers_command));
  ASSERT_EQ(ended.exit_code, 0) << ended;
  const Json optimal = optimal_of(job_);
  EXPECT_EQ(optimal["baseline"]["name"], "z0_gas4_tmbspg8");
  const Json config = job_.read_json(results + "ds_config_optimal.json");
  EXPECT_EQ(config["gradient_accumulation_steps"], 4);
  const int micro_batch = config["train_micro_batch_size_per_gpu"].get<int>();
  // A synthetic step takes as long whatever its size is.
  ASSERT_GT(micro_batch, 8);
  EXPECT_EQ(optimal["global_batch"]["today"], 64);
  EXPECT_EQ(optimal["global_batch"]["answer"], config["train_batch_size"]);
  const std::string summary = job_.read(results + "summary.txt");
  EXPECT_THAT(summary,
              HasSubstr("Global batch: " + std::to_string(config["train_batch_size"].get<int>()) +
                        " samples instead of 64."));
  const std::string line = job_.read(results + "cmd_optimal.txt");
  for (const std::string& words :
       {"--per_device_train_batch_size " + std::to_string(micro_batch) + " ",
        std::string("--gradient_accumulation_steps 4"),
        std::string("--gradient_checkpointing False")})
    EXPECT_THAT(line, HasSubstr(words));
  const Json arguments = job_.read_json(results + "training_arguments.json");
  EXPECT_EQ(arguments["per_device_train_batch_size"], micro_batch);
  EXPECT_EQ(arguments["gradient_checkpointing"], false);
  EXPECT_FALSE(arguments.contains("use_cpu")) << "the step is not DeepSpeed's";
  EXPECT_THAT(ended.err,
              HasSubstr("Read from the training command: train_micro_batch_size_per_gpu 8"))
      << ended;
}

TEST_F(CommandTest, TheBatchIsKeptWhereItIsAskedFor) {
  Json space = space_of(trainers_command);
  space["dstune"]["global_batch"] = "keep";
  const Ended ended = run(space);
  ASSERT_EQ(ended.exit_code, 0) << ended;
  EXPECT_EQ(job_.read_json(results + "ds_config_optimal.json")["train_batch_size"], 64);
  EXPECT_FALSE(optimal_of(job_).contains("global_batch"));
  for (const auto& [name, metrics] : all_metrics(job_)) {
    const Json config = job_.read_json(results + name + "/ds_config.json");
    EXPECT_EQ(config["train_batch_size"], 64) << name;
  }
}

TEST_F(CommandTest, APlanSaysWhatWasRead) {
  Json space = transformer_space({1});
  space["dstune"]["training_command"] =
      std::string(trainers_command) + " --bf16 --block_size 16 --gradient_checkpointing true";
  space["dstune"].erase("sequence_length");
  space["bf16"] = {{"enabled", "auto"}};
  write_transformer(job_, space);
  const Ended ended = job_.run({.args = {"plan", "--format", "json", "space.json"}});
  ASSERT_EQ(ended.exit_code, 0) << ended;
  const Json plan = printed(ended);
  const std::string read = plan["from_command"][0].get<std::string>();
  for (const char* words :
       {"bf16.enabled True (--bf16)", "dstune.sequence_length 16 (--block_size)",
        "dstune.activation_recompute true (--gradient_checkpointing)"})
    EXPECT_THAT(read, HasSubstr(words));
}

TEST_F(CommandTest, AnIntegerThatDoesNotRunGivesWayToSmallerSizes) {
  Json table;
  for (int size = 1; size <= 16; ++size)
    table[short_name(0, size)] = size <= 3
                                     ? Json{{"step_time_s", 0.001}, {"peak_memory_bytes", 1000}}
                                     : Json{{"status", "out_of_memory"}};
  job_.write("table.json", table);
  Json space = space_of("train.py $CONFIG");
  space["dstune"]["workload"] = {{"type", "replay"}, {"table", "table.json"}};
  space["autotuning"]["max_train_micro_batch_size_per_gpu"] = 16;
  space["train_micro_batch_size_per_gpu"] = 8;
  const Ended ended = run(space);
  ASSERT_EQ(ended.exit_code, 0) << ended;
  EXPECT_EQ(optimal_of(job_)["name"], short_name(0, 3));
  EXPECT_THAT(ended.err,
              HasSubstr("the micro-batch that the config asks for does not run at stage 0"))
      << ended;
  EXPECT_TRUE(all_metrics(job_).contains(short_name(0, 8))) << "it runs first";
}

}  // namespace
}  // namespace dstune::e2e
