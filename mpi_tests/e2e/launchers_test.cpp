// cmd_optimal.txt starts the answer's ranks, whatever counts the user's command has.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class LaunchersTest : public testing::Test {
 protected:
  /// With one or two ranks, of which two are twice as fast.
  void write_space(const std::string& command) {
    Json space = synthetic_space({1, 2}, {1}, 0.001);
    space["dstune"]["training_command"] = command;
    job_.write("space.json", space);
  }
  /// The line in cmd_optimal.txt, and the ranks of the answer.
  std::pair<std::string, int> tuned(const std::string& command) {
    write_space(command);
    const Ended ended = job_.run({.ranks = 2, .args = {"space.json"}});
    EXPECT_EQ(ended.exit_code, 0) << ended;
    return {job_.read(results + "cmd_optimal.txt"),
            job_.read_json(results + "optimal.json")["num_gpus"].get<int>()};
  }
  Job job_;
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
  EXPECT_NE(line.find("ds_config_optimal.json --use_deepspeed train.py\n"), std::string::npos)
      << line;
}

TEST_F(LaunchersTest, RefusesCountsThatOnlyTheShellKnows) {
  write_space("torchrun --nproc_per_node=$GPUS train.py --config $CONFIG");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"space.json"}, {"plan", "space.json"}}) {
    const Ended ended = job_.run({.ranks = 2, .args = args});
    EXPECT_EQ(ended.exit_code, 3) << ended;
    EXPECT_NE(ended.err.find("/dstune/training_command"), std::string::npos) << ended;
    EXPECT_NE(ended.err.find("--nproc_per_node is $GPUS, which only the shell knows"),
              std::string::npos)
        << ended;
  }
  EXPECT_FALSE(std::filesystem::exists(job_.folder() / "autotuning_results"));
}

}  // namespace
}  // namespace dstune::e2e
