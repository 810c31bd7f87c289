#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/base/file.hpp"
#include "dstune/core/launch_line.hpp"

namespace dstune {

namespace {

using testing::HasSubstr;

const json::Value launched_config = {{"bf16", {{"enabled", true}}},
                                     {"gradient_clipping", "auto"},
                                     {"zero_optimization", {{"stage", 2}}}};

struct Launch {
  std::string command;
  GroupShape shape;
  std::string line;
};

/// A folder of its own for accelerate's files, also of the default one.
class LauncherTest : public testing::Test {
 protected:
  LauncherTest() {
    std::filesystem::create_directories(folder_);
    ::setenv("HF_HOME", folder_.c_str(), 1);
  }
  ~LauncherTest() override {
    ::unsetenv("HF_HOME");
    std::filesystem::remove_all(folder_);
  }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text, Durability::rename_only);
  }
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
  void expect_lines(const std::vector<Launch>& launches) const {
    for (const Launch& each : launches) {
      EXPECT_EQ(line_of(each.command, each.shape), each.line) << each.command;
      EXPECT_EQ(refusal_of(each.command, {each.shape, {1, 1}}), "") << each.command;
    }
  }
  [[nodiscard]] std::string counts_text(const std::string& command) const {
    const LaunchCounts counts = launch_counts(in_folder(command));
    const auto text = [](const std::optional<int>& count) {
      return count ? std::to_string(*count) : "-";
    };
    return fmt::format("{} {}x{}={}", counts.launcher, text(counts.num_nodes),
                       text(counts.num_gpus), text(counts.num_ranks));
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("dstune_launcher_{}", ::getpid());
};

constexpr GroupShape two{2, 1};
constexpr GroupShape two_nodes{4, 2};

TEST_F(LauncherTest, DeepSpeedStartsTheGroup) {
  expect_lines({
      {"deepspeed --num_gpus=16 --num_nodes 1 t.py $CONFIG", two,
       "deepspeed --num_gpus=2 --num_nodes 1 t.py c.json"},
      {"deepspeed --num_gpus 8 t.py --num_gpus 7 $CONFIG", two,
       "deepspeed --num_nodes 1 --num_gpus 2 t.py --num_gpus 7 c.json"},
      {"deepspeed --num_accelerators 8 --module t $CONFIG", two,
       "deepspeed --num_nodes 1 --num_accelerators 2 --module t c.json"},
      {"deepspeed --num_no 1 --num_g 8 t.py $CONFIG", two,
       "deepspeed --num_no 1 --num_g 2 t.py c.json"},
      {"deepspeed -H h -i a:0,1,2,3@b t.py $CONFIG", two, "deepspeed -H h -i a:0,1 t.py c.json"},
      {"deepspeed --include=a:4,5,6,7@b t.py $CONFIG", two_nodes,
       "deepspeed --include=a:4,5,6,7@b:0,1,2,3 t.py c.json"},
      {"python3 -u -m deepspeed.launcher.runner t.py $CONFIG", two,
       "python3 -u -m deepspeed.launcher.runner --num_nodes 1 --num_gpus 2 t.py c.json"},
  });
}

TEST_F(LauncherTest, TorchrunStartsTheGroup) {
  expect_lines({
      {"torchrun --nproc-per-node=8 t.py $CONFIG", two, "torchrun --nproc-per-node=2 t.py c.json"},
      {"torchrun --standalone --nproc_per_node gpu t.py --nproc_per_node 8 $CONFIG", two,
       "torchrun --standalone --nproc_per_node 2 t.py --nproc_per_node 8 c.json"},
      {"torchrun t.py $CONFIG", two, "torchrun --nproc_per_node 2 t.py c.json"},
      {"torchrun t.py $CONFIG", {1, 1}, "torchrun t.py c.json"},
      {"python -m torch.distributed.run --nproc_per_node=8 -m pkg.t $CONFIG", two,
       "python -m torch.distributed.run --nproc_per_node=2 -m pkg.t c.json"},
      {"python -m torch.distributed.launch --nproc_per_node=8 --use_env t.py $CONFIG", two,
       "python -m torch.distributed.launch --nproc_per_node=2 --use_env t.py c.json"},
      {"torchrun --nnodes 1:4 --nproc_per_node 8 --rdzv_endpoint h:1 t.py $CONFIG", two_nodes,
       "torchrun --nnodes 2 --nproc_per_node 4 --rdzv_endpoint h:1 t.py c.json"},
  });
}

TEST_F(LauncherTest, PythonBecomesDeepSpeedsLauncher) {
  expect_lines({
      {"python train.py --lr 1 $CONFIG", two,
       "python -m deepspeed.launcher.runner --num_nodes 1 --num_gpus 2 train.py --lr 1 c.json"},
      {"A=1 env B=2 /v/bin/python3.11 -u train.py $CONFIG", two,
       "A=1 env B=2 /v/bin/python3.11 -u -m deepspeed.launcher.runner --num_nodes 1 --num_gpus 2 "
       "train.py c.json"},
      {"python -m pkg.train --lr 1 $CONFIG", two,
       "python -m deepspeed.launcher.runner --num_nodes 1 --num_gpus 2 --module pkg.train --lr 1 "
       "c.json"},
      {"python train.py $CONFIG", {1, 1}, "python train.py c.json"},
      {"time train.py $CONFIG", two, "time deepspeed --num_nodes 1 --num_gpus 2 train.py c.json"},
  });
}

TEST_F(LauncherTest, StartersMakeTheRanks) {
  expect_lines({
      {"srun -n8 python t.py $CONFIG", two, "srun -n2 -N 1 --ntasks-per-node=2 python t.py c.json"},
      {"srun -N 2 --ntasks=16 --ntasks-per-node=8 -u python -u t.py $CONFIG", two_nodes,
       "srun -N 2 --ntasks=8 --ntasks-per-node=4 -u python -u t.py c.json"},
      {"srun --gres=gpu:8 -p long numactl -l ./t.py $CONFIG", two,
       "srun -N 1 -n 2 --ntasks-per-node=2 --gres=gpu:8 -p long numactl -l ./t.py c.json"},
      {"mpirun -np 8 python t.py $CONFIG", two, "mpirun -np 2 python t.py c.json"},
      {"mpirun -x A -mca btl tcp python t.py $CONFIG", two_nodes,
       "mpirun --map-by ppr:4:node -np 8 -x A -mca btl tcp python t.py c.json"},
      {"mpirun --map-by ppr:8:node:PE=2 -n 16 python t.py $CONFIG", two_nodes,
       "mpirun --map-by ppr:4:node:PE=2 -n 8 python t.py c.json"},
      {"mpirun --npernode 8 python t.py $CONFIG", two,
       "mpirun -np 2 --npernode 2 python t.py c.json"},
      {"mpiexec.hydra -n 16 -ppn 8 python t.py $CONFIG", two_nodes,
       "mpiexec.hydra -n 8 -ppn 4 python t.py c.json"},
      {"mpiexec -n 8 -genv A 1 python t.py $CONFIG", two_nodes,
       "mpiexec -ppn 4 -n 8 -genv A 1 python t.py c.json"},
  });
}

TEST_F(LauncherTest, StartersStartOneLauncherANode) {
  expect_lines({
      {"srun -N 2 --ntasks-per-node 1 torchrun --nnodes 2 --nproc_per_node 8 --rdzv_endpoint h:1 "
       "t.py $CONFIG",
       two,
       "srun -n 1 -N 1 --ntasks-per-node 1 torchrun --nnodes 1 --nproc_per_node 2 --rdzv_endpoint "
       "h:1 t.py c.json"},
      {"srun -N1 -n1 --ntasks-per-node 1 torchrun --nproc_per_node 8 --master_addr h t.py $CONFIG",
       two_nodes,
       "srun -N2 -n2 --ntasks-per-node 1 torchrun --nnodes 2 --nproc_per_node 4 --master_addr h "
       "t.py c.json"},
      {"srun --gres=gpu:8 deepspeed --num_gpus 8 t.py $CONFIG", two,
       "srun --gres=gpu:8 deepspeed --num_nodes 1 --num_gpus 2 t.py c.json"},
  });
}

TEST_F(LauncherTest, AccelerateStartsTheGroup) {
  expect_lines({
      {"accelerate launch --num_processes 8 t.py --deepspeed_config $CONFIG", two,
       "accelerate launch --num_processes 2 t.py --deepspeed_config c.json"},
      {"accelerate launch --multi_gpu --num-processes=8 t.py --lr 1", two,
       "accelerate launch --deepspeed_config_file c.json --use_deepspeed --num-processes=2 t.py "
       "--lr 1"},
      {"python -m accelerate.commands.launch --use_deepspeed --deepspeed_config_file old.json "
       "--main_process_ip h -m t",
       two_nodes,
       "python -m accelerate.commands.launch --num_processes 8 --num_machines 2 --use_deepspeed "
       "--deepspeed_config_file c.json --main_process_ip h -m t"},
      {"accelerate launch --multi_gpu --num_processes 8 t.py --deepspeed $CONFIG",
       {1, 1},
       "accelerate launch --num_processes 1 t.py --deepspeed c.json"},
      {"accelerate launch --use_deepspeed --mixed_precision fp16 --num_processes 2 t.py", two,
       "accelerate launch --deepspeed_config_file c.json --use_deepspeed --mixed_precision bf16 "
       "--num_processes 2 t.py"},
  });
}

TEST_F(LauncherTest, AcceleratesFileSaysTheRest) {
  write("a.yaml",
        "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 1\n"
        "deepspeed_config: {deepspeed_config_file: old.json, zero3_init_flag: true}\n");
  expect_lines({
      {"accelerate launch --config_file a.yaml t.py",
       {8, 1},
       "accelerate launch --deepspeed_config_file c.json --config_file a.yaml t.py"},
      {"accelerate launch --config_file a.yaml t.py --lr 1", two,
       "accelerate launch --num_processes 2 --deepspeed_config_file c.json --config_file a.yaml "
       "t.py --lr 1"},
  });
  EXPECT_EQ(counts_text("accelerate launch --config_file a.yaml t.py"), "accelerate launch 1x8=8");
  write("precise.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\n");
  expect_lines({{"accelerate launch --config_file precise.yaml t.py", two,
                 "accelerate launch --mixed_precision bf16 --deepspeed_config_file c.json "
                 "--config_file precise.yaml t.py"}});
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
  expect_lines({{"accelerate launch --config_file=z.yaml t.py --lr 1", two,
                 "accelerate launch --machine_rank 0 --main_process_ip h --zero3_init_flag true "
                 "--deepspeed_multinode_launcher standard --same_network --gradient_clipping 0.5 "
                 "--num_processes 2 --mixed_precision bf16 --deepspeed_config_file c.json "
                 "--use_deepspeed t.py --lr 1"}});
  write("accelerate/default_config.yaml", "deepspeed_config: {zero_stage: 3}\nnum_processes: 2\n");
  EXPECT_THAT(refusal_of("accelerate launch t.py", {{2, 1}}),
              HasSubstr("accelerate refuses zero_stage in"));
  EXPECT_THAT(refusal_of("accelerate launch --config_file z.yaml t.py", {{8, 1}}),
              HasSubstr("default_config.yaml beside a DeepSpeed configuration"));
  EXPECT_EQ(counts_text("accelerate launch t.py"), "accelerate launch 1x2=2");
}

TEST_F(LauncherTest, CommandsSayTheirCounts) {
  for (const auto& [command, text] : std::vector<std::pair<std::string, std::string>>{
           {"deepspeed --num_nodes 2 --num_gpus=4 t.py", "deepspeed 2x4=8"},
           {"deepspeed -H h --num_gpus 4 t.py", "deepspeed -x4=-"},
           {"deepspeed t.py", "deepspeed 1x-=-"},
           {"deepspeed -i a:0,1@b:2,3 t.py", "deepspeed 2x2=4"},
           {"deepspeed -i a t.py", "deepspeed 1x-=-"},
           {"deepspeed -e a:0 t.py", "deepspeed -x-=-"},
           {"torchrun t.py", "torchrun 1x1=1"},
           {"torchrun --nproc-per-node 8 t.py", "torchrun 1x8=8"},
           {"torchrun --nproc-per-node gpu t.py", "torchrun 1x-=-"},
           {"torchrun --nnodes=$N --nproc-per-node 8 t.py", "torchrun -x8=-"},
           {"accelerate launch t.py", "accelerate launch 1x-=-"},
           {"accelerate launch --num_processes 8 --num_machines 2 t.py", "accelerate launch 2x4=8"},
           {"srun -N2 -n 8 python t.py", "srun 2x4=8"},
           {"srun --nodes=2 --ntasks-per-node=4 python t.py", "srun 2x4=8"},
           {"srun -n 8 python t.py", "srun -x-=8"},
           {"mpirun -np 8 python t.py", "mpirun -x-=8"},
           {"mpirun -np 8 --map-by ppr:4:node python t.py", "mpirun 2x4=8"},
           {"srun -N 2 torchrun --nnodes 2 --nproc_per_node 4 t.py", "torchrun 2x4=8"},
           {"python t.py", "python 1x1=1"},
           {"t.py", "t.py -x-=-"},
           {"bash run.sh", "bash -x-=-"},
           {"srun -n 8 bash run.sh", "bash -x-=-"}})
    EXPECT_EQ(counts_text(command), text) << command;
}

TEST_F(LauncherTest, RefusesWhatCanNotBeTold) {
  const std::vector<GroupShape> searched{{1, 1}, {2, 1}};
  for (const auto& [command, text] : std::vector<std::pair<std::string, std::string>>{
           {"torchrun --nproc_per_node=$GPUS t.py", "--nproc_per_node is $GPUS"},
           {"deepspeed --num_gpus \"$GPUS\" t.py", "--num_gpus is $GPUS"},
           {"srun -n $N python t.py", "--ntasks is $N"},
           {"mpirun -np $(nproc) python t.py", "-np is $(nproc)"},
           {"accelerate launch --num_processes $N t.py", "--num_processes is $N"},
           {"deepspeed --exclude a:0 t.py", "--exclude"},
           {"deepspeed --include a:0 t.py", "--include a:0 has not 1 nodes with 2 devices"},
           {"accelerate launch --gpu_ids 0 t.py", "gpu_ids 0 are fewer than 2"},
           {"accelerate launch --config_file missing.yaml t.py", "missing.yaml"},
           {"bash run.sh", "it can not be seen how many ranks bash starts"},
           {"srun t", "it can not be seen how many ranks t starts"},
           {"mpirun -n 1 python a.py : -n 1 python t.py", "mpirun starts several programs"},
           {"srun -w a,b python t.py", "--nodelist a,b"},
           {"srun -n 2 deepspeed t.py", "srun starts deepspeed 2 times"},
           {"srun --unheard-of 1 python t.py", "--unheard-of of srun is not known here"}}) {
    EXPECT_THAT(refusal_of(command, searched), HasSubstr(text)) << command;
    EXPECT_EQ(line_of(command + " $CONFIG", {2, 1}), command + " c.json");
  }
  for (const auto& [command, text] : std::vector<std::pair<std::string, std::string>>{
           {"torchrun --nproc_per_node 8 t.py", "--rdzv_endpoint"},
           {"accelerate launch --num_processes 8 t.py", "--main_process_ip"},
           {"mpirun -np 8 python t.py", "--map-by ppr:4:node (Open MPI) or -ppn 4"}})
    EXPECT_THAT(refusal_of(command, {{1, 1}, two_nodes}), HasSubstr(text)) << command;
}

TEST_F(LauncherTest, OneGroupNeedsNoCounts) {
  for (const std::string command :
       {"bash run.sh", "torchrun --nnodes 2 --nproc_per_node=$GPUS t.py", "srun -n $N python t.py",
        "deepspeed --exclude a:0 t.py", "mpirun -np 8 python t.py"})
    EXPECT_EQ(refusal_of(command, {two_nodes}), "") << command;
  EXPECT_THAT(refusal_of("mpirun -np 16 python t.py", {two_nodes}),
              HasSubstr("8 ranks on 2 nodes"));
  EXPECT_THAT(refusal_of("accelerate launch --cpu t.py", {{1, 1}}),
              HasSubstr("no DeepSpeed configuration beside --cpu"));
}

}  // namespace

}  // namespace dstune
