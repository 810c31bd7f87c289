#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/core/launch_line.hpp"
#include "folder_test.hpp"
#include "golden.hpp"

namespace dstune {

namespace {

using testing::HasSubstr;

const json::Value launched_config = {{"bf16", {{"enabled", true}}},
                                     {"gradient_clipping", "auto"},
                                     {"zero_optimization", {{"stage", 2}}}};

/// A folder of its own for accelerate's files, also of the default one.
class LauncherTest : public test::FolderTest {
 protected:
  LauncherTest() { ::setenv("HF_HOME", folder_.c_str(), 1); }
  ~LauncherTest() override { ::unsetenv("HF_HOME"); }

  [[nodiscard]] UserCommand in_folder(const std::string& command) const {
    return {.text = command, .folder = folder_};
  }
  [[nodiscard]] std::string line_of(const std::string& command, GroupShape shape) const {
    return launch_line(in_folder(command), "c.json", launched_config, Recompute::none, shape);
  }
  [[nodiscard]] std::string refusal_of(const std::string& command,
                                       const std::vector<GroupShape>& shapes) const {
    return launch_counts_violation(in_folder(command), shapes);
  }
  void expect_line(const std::string& command, GroupShape shape, const std::string& line) const {
    EXPECT_EQ(line_of(command, shape), line);
    EXPECT_EQ(refusal_of(command, {shape, {1, 1}}), "");
  }
  [[nodiscard]] std::string counts_text(const std::string& command) const {
    const LaunchCounts counts = launch_counts(in_folder(command));
    const auto text = [](const std::optional<int>& count) {
      return count ? std::to_string(*count) : "-";
    };
    return fmt::format("{} {}x{}={}", counts.launcher, text(counts.num_nodes),
                       text(counts.num_gpus), text(counts.num_ranks));
  }
};

constexpr const char* file_of_eight =
    "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 1\n"
    "deepspeed_config: {deepspeed_config_file: old.json, zero3_init_flag: true}\n";
constexpr GroupShape two{2, 1};
constexpr GroupShape two_nodes{4, 2};

TEST_F(LauncherTest, CommandsStartTheGroup) {
  write("a.yaml", file_of_eight);
  write("precise.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\n");
  test::expect_golden(DSTUNE_CORE_DATA "/launches.txt", [&](const std::string& command) {
    std::string answer = counts_text(command);
    for (const GroupShape& shape : {GroupShape{1, 1}, two, two_nodes}) {
      const std::string refusal = refusal_of(command, {shape, {1, 1}});
      answer += refusal.empty() ? "\n" + line_of(command, shape) : "\nrefused: " + refusal;
    }
    const std::string folder = folder_.string();
    for (std::size_t at = 0; (at = answer.find(folder)) != std::string::npos;)
      answer.replace(at, folder.size(), "FOLDER");
    return answer;
  });
}

TEST_F(LauncherTest, WhatAFileSaysIsNotSaidAgain) {
  write("a.yaml", file_of_eight);
  expect_line("accelerate launch --config_file a.yaml t.py", {8, 1},
              "accelerate launch --deepspeed_config_file c.json --config_file a.yaml t.py");
}

TEST_F(LauncherTest, WhereRanksCanNotBeToldTheCommandStays) {
  for (const std::string command : {"bash run.sh", "srun -n $N python t.py"}) {
    EXPECT_EQ(refusal_of(command, {two_nodes}), "") << "one group needs no counts";
    EXPECT_EQ(line_of(command + " $CONFIG", two), command + " c.json");
  }
}

TEST_F(LauncherTest, WhatAccelerateRefusesInItsFileGoesToTheCommand) {
  write("z.yaml",
        "compute_environment: LOCAL_MACHINE\ndebug: false\n"
        "deepspeed_config:\n  deepspeed_multinode_launcher: standard\n"
        "  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n  zero3_init_flag: true\n"
        "  zero_stage: 3\n  offload_param_device: none\n"
        "distributed_type: DEEPSPEED\ndowncast_bf16: 'no'\nmachine_rank: 0\n"
        "main_process_ip: h\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
        "rdzv_backend: static\nsame_network: true\ntpu_env: []\nuse_cpu: false\n");
  expect_line("accelerate launch --config_file=z.yaml t.py --lr 1", two,
              "accelerate launch --machine_rank 0 --main_process_ip h --zero3_init_flag true "
              "--deepspeed_multinode_launcher standard --same_network --gradient_clipping 0.5 "
              "--num_processes 2 --mixed_precision bf16 --deepspeed_config_file c.json "
              "--use_deepspeed t.py --lr 1");
  write("accelerate/default_config.yaml", "deepspeed_config: {zero_stage: 3}\nnum_processes: 2\n");
  EXPECT_THAT(refusal_of("accelerate launch t.py", {{2, 1}}),
              HasSubstr("accelerate refuses zero_stage in"));
  EXPECT_THAT(refusal_of("accelerate launch --config_file z.yaml t.py", {{8, 1}}),
              HasSubstr("default_config.yaml beside a DeepSpeed configuration"));
  EXPECT_EQ(counts_text("accelerate launch t.py"), "accelerate launch 1x2=2");
}

}  // namespace

}  // namespace dstune
