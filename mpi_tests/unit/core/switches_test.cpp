#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config_cases.hpp"
#include "dstune/core/deepspeed_switches.hpp"
#include "dstune/core/deepspeed_version.hpp"

namespace dstune {
namespace {

/// The switches that are on.
std::set<std::string> names_on(const Version& version) {
  std::set<std::string> names;
  const DeepSpeedSwitches switches = switches_of(version);
  for_each_switch(switches, [&](const char* name, bool is_on) {
    if (is_on) names.insert(name);
  });
  return names;
}

TEST(SwitchesTest, EachReleaseHasItsOwn) {
  using Names = std::set<std::string>;
  const Names oldest{"stage_0_partitions_bf16"};
  EXPECT_EQ(names_on({0, 14, 5}), oldest);
  EXPECT_EQ(names_on({0, 16, 9}), oldest);
  EXPECT_EQ(names_on({0, 17, 6}), Names{"parameters_return_by_buffer"});
  const Names middle{"parameters_return_by_buffer", "twin_flow_keeps_last_part"};
  for (const Version& version :
       {Version{0, 18, 9}, Version{0, 19, 0}, Version{0, 19, 6}, Version{0, 19, 7}})
    EXPECT_EQ(names_on(version), middle);
  Names newest = middle;
  newest.insert({"fp32_sums_at_stage_2", "fp32_sums_are_averaged", "fp32_sums_stay_on_device",
                 "offload_waits_for_copies", "immediate_update_frees_gradients"});
  EXPECT_EQ(names_on({0, 19, 8}), newest);
  EXPECT_EQ(names_on({0, 20, 0}), newest);
}

TEST(SwitchesTest, AReleaseBetweenTwoKnownOnesBehavesAsTheOlder) {
  EXPECT_EQ(switches_of({0, 17, 5}), switches_of({0, 16, 9}));
  EXPECT_EQ(switches_of({0, 18, 8}), switches_of({0, 17, 6}));
  EXPECT_EQ(switches_of({0, 13, 0}), switches_of({0, 14, 5}));
}

TEST(SwitchesTest, TheDefaultsAreThoseOf0196) {
  EXPECT_EQ(DeepSpeedSwitches(), switches_of({0, 19, 6}));
}

TEST(SwitchesTest, NamesEveryMember) {
  DeepSpeedSwitches switches;
  int members = 0;
  for_each_switch(switches, [&](const char*, bool& member) {
    member = !member;
    ++members;
  });
  EXPECT_EQ(sizeof(DeepSpeedSwitches), static_cast<std::size_t>(members));
}

TrainingConfig config_under(const Version& version, const std::string& text) {
  return read_config(text, knob_table(version)).config;
}

TEST(SwitchesTest, DecideWhereSumsAreInFp32) {
  const auto sums = [](const Version& version, int stage, const std::string& type,
                       const std::string& mode = "bf16") {
    const std::string key =
        type.empty() ? "" : R"("data_types": {"grad_accum_dtype": ")" + type + R"("},)";
    const std::string text = "{" + key + '"' + mode + R"(": {"enabled": true},
        "zero_optimization": {"stage": )" +
                             std::to_string(stage) + "}}";
    return config_under(version, text).fp32_gradient_accumulation;
  };
  EXPECT_FALSE(sums({0, 19, 6}, 2, "fp32", "fp16"));
  EXPECT_TRUE(sums({0, 19, 8}, 2, "fp32", "fp16"));
  EXPECT_TRUE(sums({0, 19, 6}, 1, "fp32", "fp16"));
  EXPECT_FALSE(sums({0, 19, 6}, 2, "fp32"));
  EXPECT_TRUE(sums({0, 19, 8}, 2, "fp32"));
  EXPECT_FALSE(sums({0, 19, 8}, 2, ""));
  EXPECT_TRUE(sums({0, 19, 6}, 1, "fp32"));
  EXPECT_TRUE(sums({0, 16, 9}, 0, ""));
  EXPECT_FALSE(sums({0, 16, 9}, 0, "bf16"));
  EXPECT_FALSE(sums({0, 17, 6}, 0, ""));
}

TEST(SwitchesTest, AStepAtStage0ThatPartitionsIsThatOfStage1) {
  const TrainingConfig config = config_under({0, 16, 9}, R"({"bf16": {"enabled": true}})");
  EXPECT_EQ(config.zero_stage, 0);
  EXPECT_TRUE(is_bf16_optimizer(config));
  EXPECT_EQ(as_partitioned(config).zero_stage, 1);
  const TrainingConfig newer = config_under({0, 19, 6}, R"({"bf16": {"enabled": true}})");
  EXPECT_FALSE(is_bf16_optimizer(newer));
  EXPECT_EQ(as_partitioned(newer), newer);
}

}  // namespace
}  // namespace dstune
