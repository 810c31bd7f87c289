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
  EXPECT_THAT(places({fits, fits}), testing::ElementsAre("1 /name"));
  EXPECT_EQ(plan_files({fits}).members[0].planned.experiment.shape, (GroupShape{2, 1}));
}

}  // namespace
}  // namespace dstune
