#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/search/planner.hpp"
#include "search_fixture.hpp"

namespace dstune {
namespace {

class ExperimentFilesTest : public SearchTest {
 protected:
  PlannedSpace plan_files(const std::vector<std::string>& files) {
    overrides_.experiment_files = files;
    const auto read = job(R"("zero_optimization": {"stage": [0, 9]})");
    PlannerOptions options;
    options.device_memory_bytes = plenty_bytes;
    return plan_experiments(read, workspaces_, options);
  }
  std::vector<std::string> places(const std::vector<std::string>& files) {
    std::vector<std::string> found;
    try {
      plan_files(files);
    } catch (const InputError& error) {
      for (const auto& problem : error.problems()) {
        found.push_back(std::to_string(problem.line) + " " + problem.pointer);
      }
    }
    return found;
  }
};

TEST_F(ExperimentFilesTest, RunsExactlyWhatTheFileSays) {
  const auto file = write("e.json", R"({"name": "z2_gas2_tmbspg3", "num_gpus": 2, "num_nodes": 1,
      "exp_id": 7, "hostfile": "/job/hostfile", "ds_config": {"zero_optimization": {"stage": 2},
      "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
      "autotuning": {"enabled": true}}})");
  const auto space = plan_files({file});
  ASSERT_EQ(space.members.size(), 1U);
  EXPECT_EQ(space.planned, 1U);
  const auto& experiment = space.members[0].planned.experiment;
  EXPECT_EQ(experiment.name, "z2_gas2_tmbspg3");
  EXPECT_EQ(experiment.shape, (GroupShape{2, 1}));
  EXPECT_EQ(experiment.config.zero_stage, 2);
  EXPECT_EQ(experiment.config.accumulation_steps, 2);
  EXPECT_EQ(experiment.config.sequence_length, 32);
  EXPECT_EQ(experiment.ds_config["train_batch_size"], 12);
  EXPECT_FALSE(experiment.ds_config.contains("autotuning"));
  EXPECT_GT(space.members[0].planned.predicted.peak_memory_bytes, 0);
  EXPECT_THAT(
      space.warnings,
      testing::ElementsAre(
          "exp_id has no effect in " + file +
              ": as in DeepSpeed's scheduler, experiments have the order of their files",
          "hostfile has no effect in " + file + ": all experiments run on the ranks of this job"));
}

// As DeepSpeed's scheduler skips what it has.
TEST_F(ExperimentFilesTest, TheSameExperimentTwiceIsRunOnce) {
  const std::string config = R"("exp_id": 3, "num_gpus": 1, "ds_config":
      {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}})";
  const auto first = write("a.json", R"({"name": "a", )" + config);
  const auto other = write("b.json", R"({"name": "b", )" + config);
  const auto copy = write("copy.json", R"({"name": "a", )" + config);
  const auto space = plan_files({first, first, other, copy});
  ASSERT_EQ(space.members.size(), 2U);
  EXPECT_EQ(space.members[1].planned.experiment.name, "b");
  EXPECT_THAT(space.warnings,
              testing::ElementsAre(
                  first + " is given twice, and run once",
                  copy + " is the experiment of " + first + ", too, and skipped",
                  "exp_id has no effect in 3 files: as in DeepSpeed's scheduler, experiments have "
                  "the order of their files"));
}

TEST_F(ExperimentFilesTest, MistypedKeysAreNamed) {
  const auto file = write("a.json", R"({"name": "a", "num_gpu": 1, "my_notes": 1,
      "ds_config": {"train_micro_batch_size_per_gpu": 1}})");
  EXPECT_THAT(places({file}), testing::ElementsAre("1 /num_gpu"));
}

TEST_F(ExperimentFilesTest, ABatchIsNamedAtItsKey) {
  const auto file = write("a.json",
                          "{\"name\": \"a\", \"num_gpus\": 7, \"ds_config\": {\n"
                          "\"train_micro_batch_size_per_gpu\": 2,\n\"train_batch_size\": 256}}");
  EXPECT_THAT([&] { plan_files({file}); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr(
                  "a.json:3: /ds_config/train_batch_size: 256 is no multiple of "
                  "train_micro_batch_size_per_gpu 2 x 7 ranks: write 252 or 266, or train on 8 "
                  "ranks")));
}

TEST_F(ExperimentFilesTest, HjsonFilesAreRead) {
  const auto file = write("e.hjson",
                          "name: z1\nds_config: {\n  zero_optimization: {stage: 1}\n"
                          "  train_micro_batch_size_per_gpu: 3 # of 4\n}");
  const auto space = plan_files({file});
  ASSERT_EQ(space.members.size(), 1U);
  EXPECT_EQ(space.members[0].planned.experiment.name, "z1");
  EXPECT_EQ(space.members[0].planned.experiment.config.zero_stage, 1);
  EXPECT_EQ(space.members[0].planned.experiment.config.micro_batch, 3);
}

TEST_F(ExperimentFilesTest, EveryProblemHasItsPlace) {
  const auto first = write("a.json",
                           "{\"name\": \"../x\",\n\"num_gpus\": 0,\n\"ds_config\": {"
                           "\"train_micro_batch_size_per_gpu\": 1,\n"
                           "\"zero_optimization\": {\"stage\":\n[1]}}}");
  const auto second = write("b.json", "{\"ds_config\":\n{}}");
  const auto third = write("c.json", "{\"name\": \"c\"}");
  EXPECT_THAT(places({first, second, third, "d.hjson", "none.json"}),
              testing::ElementsAre("1 /name", "2 /num_gpus", "5 /ds_config/zero_optimization/stage",
                                   "1 ", "2 /ds_config", "1 ", "0 ", "0 "));
}

TEST_F(ExperimentFilesTest, GroupsMustFitAndNamesDiffer) {
  machine_ = Machine{{2}};
  const std::string config = R"("ds_config": {"train_micro_batch_size_per_gpu": 1}})";
  const auto large = write("a.json", R"({"name": "a", "num_gpus": 4, )" + config);
  EXPECT_THAT(places({large}), testing::ElementsAre("1 /num_gpus"));
  const auto fits = write("b.json", R"({"name": "b", )" + config);
  const auto same_name =
      write("c.json", R"({"name": "b", "ds_config": {"train_micro_batch_size_per_gpu": 2}})");
  EXPECT_THAT(places({fits, same_name}), testing::ElementsAre("1 /name"));
  EXPECT_EQ(plan_files({fits}).members[0].planned.experiment.shape, (GroupShape{2, 1}));
}

}  // namespace
}  // namespace dstune
