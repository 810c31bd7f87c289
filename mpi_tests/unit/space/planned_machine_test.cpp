// The machine that a plan is for: names, counts and sizes of --device and dstune.device, and the
// optimizer that its training brings along.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

class PlannedMachineTest : public SpaceTest {
 protected:
  PlannedMachineTest() {
    overrides_.is_plan = true;
    version_.reset();
  }
};

TEST_F(PlannedMachineTest, IsThisOneWhereNobodyNamesAnother) {
  const JobSpec here = job("{}");
  EXPECT_FALSE(here.cluster);
  EXPECT_FALSE(here.target.on_gpu);
  EXPECT_EQ(here.target.optimizer, TargetOptimizer::of_config);
}

TEST_F(PlannedMachineTest, HasADeviceByNameAndItsUsualNode) {
  const JobSpec read = job(R"({"dstune": {"device": "A100-80GB"}})");
  ASSERT_TRUE(read.cluster && read.cluster->device);
  EXPECT_EQ(read.cluster->device->name, "a100-80gb");
  EXPECT_TRUE(read.target.on_gpu);
  EXPECT_THAT(read.shapes, ElementsAre(GroupShape{8, 1})) << "one usual node";
  EXPECT_FALSE(read.machine) << "groups may be larger";
}

TEST_F(PlannedMachineTest, TheCommandLineComesFirst) {
  overrides_.machine.device = "h100";
  overrides_.machine.num_nodes = 4;
  const JobSpec read = job(R"({"dstune": {"device": {"name": "l4", "gpus_per_node": 4, "nodes": 2,
      "network": "ib-hdr", "host_memory": "1TiB"}}})");
  EXPECT_EQ(read.cluster->device->name, "h100");
  EXPECT_EQ(read.cluster->network->name, "ib-hdr");
  EXPECT_EQ(read.cluster->host_memory_bytes, std::int64_t{1} << 40);
  EXPECT_THAT(read.shapes, ElementsAre(GroupShape{4, 4}));
}

TEST_F(PlannedMachineTest, RefusesUnknownNamesAndGroupsThatDoNotFit) {
  overrides_.machine.device = "a100-80bg";
  EXPECT_THAT([&] { (void)job("{}"); },
              ThrowsMessage<InputError>(HasSubstr("did you mean a100-80gb?")));
  overrides_.machine = {};
  EXPECT_THAT([&] { (void)job(R"({"dstune": {"device": {"network": "carrier-pigeon"}}})"); },
              ThrowsMessage<InputError>(HasSubstr("/dstune/device/network")));
  EXPECT_THAT(
      [&] {
        (void)job(R"({"dstune": {"device": {"name": "h100", "gpus_per_node": 4},
                                 "resources": {"num_gpus": 8}}})");
      },
      ThrowsMessage<InputError>(HasSubstr("groups of 8 ranks")));
  EXPECT_THAT(
      [&] { (void)job(R"({"dstune": {"device": {"name": "h100", "host_memory": 512}}})"); },
      ThrowsMessage<InputError>(HasSubstr("/dstune/device/host_memory: 512 B are too few")));
  overrides_.machine.host_memory_bytes = 1024;
  EXPECT_THAT([&] { (void)job("{}"); },
              ThrowsMessage<InputError>(HasSubstr("--host-memory: 1.00 KiB are too few")));
  overrides_.machine = {};
  overrides_.has_hostfile = true;
  EXPECT_THAT([&] { (void)job(R"({"dstune": {"device": {"nodes": 2}}})"); },
              ThrowsMessage<InputError>(HasSubstr("leave one of the two out")));
}

TEST_F(PlannedMachineTest, IsOfProcessorsWhereTheBackendIs) {
  overrides_.has_hostfile = true;
  EXPECT_TRUE(job("{}").target.on_gpu);
  overrides_.is_on_cpus = true;
  const JobSpec read = job("{}");
  EXPECT_TRUE(read.cluster);
  EXPECT_FALSE(read.target.on_gpu);
}

TEST_F(PlannedMachineTest, IsNotReadInJobs) {
  overrides_.is_plan = false;
  const JobSpec read = job(R"({"dstune": {"device": {"name": "h100", "nodes": 16}}})");
  EXPECT_FALSE(read.cluster);
  EXPECT_FALSE(read.target.on_gpu);
}

TEST_F(PlannedMachineTest, ASilentConfigsOptimizerIsTheFrameworksByRelease) {
  overrides_.machine.device = "h100";
  const auto optimizer = [&](const std::string& text) { return job(text).target.optimizer; };
  using enum TargetOptimizer;
  EXPECT_EQ(optimizer("{}"), adamw_torch_fused);
  EXPECT_THAT(job("{}").assumptions,
              testing::Contains(HasSubstr("the optimizer is adamw_torch_fused")));
  EXPECT_EQ(optimizer(R"({"dstune": {"deepspeed_version": "0.16.9"}})"), adamw_torch);
  EXPECT_EQ(optimizer(R"({"dstune": {"deepspeed_version": "0.17.6"}})"), adamw_torch_fused);
  EXPECT_EQ(optimizer(R"({"dstune": {"target": {"torch": "2.7.1"}}})"), adamw_torch);
  EXPECT_EQ(optimizer(R"({"dstune": {"target": {"optimizer": "adamw_8bit"}}})"), adamw_8bit);
  EXPECT_EQ(optimizer(R"({"optimizer": {"type": "AdamW"}})"), of_config);
  write("train.py", "parser = HfArgumentParser(TrainingArguments)");
  EXPECT_EQ(optimizer(R"({"dstune": {"training_command":
                "torchrun train.py --deepspeed $CONFIG --optim adafactor"}})"),
            adafactor);
  const JobSpec both = job(R"({"optimizer": {"type": "AdamW"},
                               "dstune": {"target": {"optimizer": "lion"}}})");
  EXPECT_EQ(both.target.optimizer, lion);
  EXPECT_THAT(both.warnings, testing::Contains(HasSubstr("leave one of the two out")));
}

TEST_F(PlannedMachineTest, ModelsThatWereBuiltBeforeKeepGatheredWeights) {
  const auto efficient = [&](const std::string& target, const std::string& version) {
    const JobSpec read =
        job(R"({"zero_optimization": {"stage": 3}, "dstune": {"deepspeed_version": ")" + version +
            R"(", "target": {)" + target + "}}}");
    TrainingConfig config;
    config.zero_stage = 3;
    complete_config(read, Recompute::none, config);
    return config.memory_efficient_linear;
  };
  EXPECT_TRUE(efficient("", "0.16.9"));
  EXPECT_FALSE(efficient(R"("zero_init": false)", "0.16.9"));
  EXPECT_TRUE(efficient(R"("zero_init": false)", "0.19.8"));
}

// They do not call PyTorch's linear, which DeepSpeed replaces.
TEST_F(PlannedMachineTest, LayersOfFalconKeepGatheredWeights) {
  JobSpec read = job(R"({"zero_optimization": {"stage": 3}})");
  read.model.family = ModelFamily::falcon;
  read.model.architecture = architecture_of(read.model.family);
  TrainingConfig config;
  config.zero_stage = 3;
  complete_config(read, Recompute::none, config);
  EXPECT_FALSE(config.memory_efficient_linear);
}

TEST_F(PlannedMachineTest, FrozenParametersAreForPlansAndTheUsersOwnTraining) {
  const std::string lora = R"({"dstune": {"trainable": {"rank": 8}}})";
  const JobSpec read = job(lora);
  ASSERT_TRUE(read.target.trainable);
  EXPECT_THAT(read.target.trainable->targets, ElementsAre("all-linear"));
  EXPECT_THAT([&] { (void)job(R"({"dstune": {"trainable": {}}})"); },
              ThrowsMessage<InputError>(HasSubstr("nothing trains")));
  EXPECT_THAT([&] { (void)job(R"({"dstune": {"trainable": {"targets": ["q_proj"]}}})"); },
              ThrowsMessage<InputError>(HasSubstr("add its rank")));
  overrides_.is_plan = false;
  EXPECT_THAT([&] { (void)job(lora); },
              ThrowsMessage<InputError>(HasSubstr("the built-in step trains all parameters")));
}

TEST_F(PlannedMachineTest, PinsWhatTheConfigOrTheReleaseSays) {
  const auto pins = [&](const std::string& section, const std::string& version) {
    const JobSpec read =
        job(R"({"zero_optimization": {"stage": 2, "offload_optimizer": )" + section +
            R"(}, "dstune": {"deepspeed_version": ")" + version + "\"}}");
    return std::pair(read.target.pins_optimizer, read.target.pins_master_copy);
  };
  const std::string silent = R"({"device": "cpu"})";
  EXPECT_EQ(pins(silent, "0.17.6"), std::pair(false, true));
  EXPECT_EQ(pins(silent, "0.18.9"), std::pair(false, false));
  EXPECT_EQ(pins(silent, "0.19.8"), std::pair(true, true));
  EXPECT_EQ(pins(R"({"device": "cpu", "pin_memory": false})", "0.19.8"), std::pair(false, false));
  EXPECT_EQ(pins(R"({"device": "cpu", "pin_memory": true})", "0.18.9"), std::pair(true, true));
  EXPECT_EQ(pins(R"([null, {"device": "cpu", "pin_memory": false}])", "0.19.8"),
            std::pair(false, false));
  EXPECT_EQ(
      pins(R"([{"device": "none"}, {"device": "cpu", "pin_memory": [true, false]}])", "0.18.9"),
      std::pair(true, true));
}

}  // namespace
}  // namespace dstune
