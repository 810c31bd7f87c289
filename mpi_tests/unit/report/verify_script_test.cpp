#include "dstune/report/verify_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;

VerificationJob sample_job(const std::vector<Experiment>& experiments) {
  VerificationJob job;
  for (const Experiment& experiment : experiments) job.runs.push_back({&experiment, "best"});
  job.folder = "/results/verify";
  job.script_path = "/results/verify.sbatch";
  job.training_command = UserCommand{.text = "train.py --deepspeed_config $CONFIG"};
  return job;
}

TEST(VerifyScript, TellsDeepSpeedToMeasureAndLeave) {
  Experiment experiment = test::sample_experiment("a");
  experiment.ds_config["dstune"] = json::Value::object();
  experiment.ds_config["autotuning"] = {{"enabled", true}, {"fast", false}};
  experiment.ds_config["steps_per_print"] = 100;
  const json::Value config = verification_config(experiment, "/r/verify/a/metrics.json");
  EXPECT_EQ(config["zero_optimization"], experiment.ds_config["zero_optimization"]);
  EXPECT_EQ(config["train_batch_size"], 16);
  EXPECT_FALSE(config.contains("dstune"));
  EXPECT_EQ(config["steps_per_print"], 1);
  EXPECT_EQ(config["log_level"], "info");
  EXPECT_EQ(config["autotuning"], (json::Value{{"enabled", true},
                                               {"start_profile_step", 3},
                                               {"end_profile_step", 22},
                                               {"metric_path", "/r/verify/a/metrics.json"}}));
}

TEST(VerifyScript, AsksForTheLargestGroup) {
  Experiment small = test::sample_experiment("small");
  Experiment wide = test::sample_experiment("wide");
  small.shape = {8, 1};
  wide.shape = {4, 3};
  const std::vector<Experiment> experiments = {small, wide};
  const VerificationJob job = sample_job(experiments);
  const std::string slurm = verify_script(job, BatchSystem::slurm);
  EXPECT_THAT(slurm, testing::StartsWith("#!/bin/bash\n"));
  EXPECT_THAT(slurm, HasSubstr("#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=8\n"));
  EXPECT_THAT(slurm, Not(HasSubstr("PBS")));
  const std::string pbs = verify_script(job, BatchSystem::pbs);
  EXPECT_THAT(pbs, HasSubstr("#PBS -l select=3:ncpus=8:mpiprocs=8\n"));
  EXPECT_THAT(pbs, Not(HasSubstr("SLURM")));
  for (const std::string& script : {slurm, pbs}) {
    EXPECT_THAT(script, HasSubstr("run small 1 8 "));
    EXPECT_THAT(script, HasSubstr("run wide 3 4 "));
    EXPECT_THAT(script, HasSubstr("hosts | sed 's/$/ slots=4/' >/results/verify/hostfile"));
    EXPECT_THAT(script, HasSubstr("'deepspeed --num_nodes 1 --num_gpus 8 train.py "
                                  "--deepspeed_config /results/verify/small/ds_config.json'"));
    EXPECT_THAT(script, HasSubstr("'deepspeed --hostfile /results/verify/hostfile --num_nodes 3 "
                                  "--num_gpus 4 train.py"));
  }
}

TEST(VerifyScript, NeedsNoHostfileOnOneNode) {
  const std::vector<Experiment> experiments = {test::sample_experiment("a")};
  const std::string script = verify_script(sample_job(experiments), BatchSystem::slurm);
  EXPECT_THAT(script, Not(HasSubstr("hostfile")));
  EXPECT_THAT(script, Not(HasSubstr("TRAINING_COMMAND")));
}

TEST(VerifyScript, AsksForTheTrainingCommand) {
  const std::vector<Experiment> experiments = {test::sample_experiment("a")};
  VerificationJob job = sample_job(experiments);
  job.training_command.reset();
  const std::string script = verify_script(job, BatchSystem::pbs);
  EXPECT_THAT(script, HasSubstr("Fill in how you start your training"));
  EXPECT_THAT(script, HasSubstr("\"$TRAINING_COMMAND\"\n"));
}

TEST(VerifyScript, SaysThatActivationsAreRecomputed) {
  Experiment experiment = test::sample_experiment("a");
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    experiment.config.recompute = recompute;
    const std::vector<Experiment> experiments = {experiment};
    const std::string script = verify_script(sample_job(experiments), BatchSystem::slurm);
    EXPECT_EQ(script.find("activation checkpointing") != std::string::npos,
              recompute == Recompute::block);
  }
}

TEST(VerifyScript, KeepsNamesAndPathsOutOfTheShellsHands) {
  const std::vector<Experiment> experiments = {test::sample_experiment("a b;$(x)")};
  VerificationJob job = sample_job(experiments);
  job.folder = "/a\nrm -r /'b'";
  job.script_path = "/a\nrm -r /'b'";
  const std::string script = verify_script(job, BatchSystem::slurm);
  EXPECT_THAT(script, HasSubstr("VERIFY_DIR='/a\nrm -r /'\\''b'\\'''\n"));
  EXPECT_THAT(script, HasSubstr("run 'a b;$(x)' 1 2 "));
  EXPECT_THAT(script, HasSubstr("#   sbatch '/a?rm"));
}

TEST(VerifyScript, RefusesANameThatLeavesTheFolder) {
  const std::vector<Experiment> experiments = {test::sample_experiment("../a")};
  EXPECT_THROW(verify_script(sample_job(experiments), BatchSystem::slurm), LogicError);
}

}  // namespace
}  // namespace dstune
