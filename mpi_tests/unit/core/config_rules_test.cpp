#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

TEST(ConfigRulesTest, BothPrecisionsAreRefused) {
  const ReadConfig read = read_config(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})");
  ASSERT_EQ(read.problems.size(), 1U);
  EXPECT_EQ(read.problems[0].pointer, "/fp16/enabled");
  EXPECT_THAT(read.problems[0].message, HasSubstr("can not both be enabled"));
  EXPECT_THAT(refusal(R"({"bf16": {}, "bfloat16": {"enabled": true}})"), HasSubstr("same section"));
  EXPECT_EQ(accepted(R"({"bfloat16": {"enabled": true}, "fp16": {"enabled": false}})").precision,
            Precision::bf16);
}

TEST(ConfigRulesTest, AllgatherBucketsAreEvenAndOtherwiseKept) {
  EXPECT_EQ(refusal(zero_with(R"("stage": 1, "allgather_bucket_size": 5)")),
            "/zero_optimization/allgather_bucket_size: must be even: DeepSpeed refuses odd sizes");
  EXPECT_EQ(accepted(zero_with(R"("allgather_bucket_size": 6)")), TrainingConfig());
  EXPECT_EQ(accepted(zero_with(R"("allgather_bucket_size": 5)")), TrainingConfig());
}

TEST(ConfigRulesTest, TheOptimizerIsOffloadedFromStage1On) {
  const auto offloaded = [](const std::string& members) {
    return accepted(zero_with(members)).offload_optimizer == OffloadDevice::cpu;
  };
  for (const char* stage : {"1", "2", "3"}) {
    const std::string at_stage = std::string("\"stage\": ") + stage;
    EXPECT_TRUE(offloaded(at_stage + R"(, "offload_optimizer": {"device": "cpu"})"));
    EXPECT_TRUE(offloaded(at_stage + R"(, "cpu_offload": true)"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "offload_optimizer": {"device": "none"})"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "offload_optimizer": null)"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "cpu_offload": false)"));
  }
  // There a disk is taken for the host.
  EXPECT_TRUE(offloaded(R"("stage": 2, "offload_optimizer": {"device": "nvme"})"));
  EXPECT_THAT(refusal(zero_with(R"("stage": 3, "offload_optimizer": {"device": "nvme"})")),
              HasSubstr("/offload_optimizer/device: nvme is not built"));
  EXPECT_THAT(refusal(zero_with(R"("stage": 0, "offload_optimizer": {"device": "cpu"})")),
              HasSubstr("/offload_optimizer/device: fails in DeepSpeed at stage 0"));
  EXPECT_THAT(
      refusal(zero_with(R"("stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5})")),
      HasSubstr("/offload_optimizer/ratio: below 1 is not built"));
}

TEST(ConfigRulesTest, OffloadingTurnsContiguousGradientsOnBelowStage3) {
  for (const auto& [stage, kept] : {std::pair{1, true}, std::pair{2, true}, std::pair{3, false}}) {
    const std::string members = "\"stage\": " + std::to_string(stage) +
                                R"(, "contiguous_gradients": false,
                                   "offload_optimizer": {"device": "cpu"})";
    EXPECT_EQ(accepted(zero_with(members)).contiguous_gradients, kept);
  }
}

TEST(ConfigRulesTest, OffloadIsRefusedByNameUnlessItsDeviceIsNone) {
  EXPECT_THAT(refusal(zero_with(R"("stage": 3, "offload_param": {"device": "nvme"})")),
              HasSubstr("not built"));
  EXPECT_THAT(refusal(zero_with(R"("offload_param": {"device": "gpu"})")),
              HasSubstr("expected one of none, cpu, nvme, got \"gpu\""));
  EXPECT_EQ(accepted(zero_with(R"("offload_optimizer": {"device": "none", "pin_memory": true},
                                  "offload_param": null)")),
            TrainingConfig());
  EXPECT_THAT(refusal(zero_with(R"("stage": 2, "offload_optimizer": {"ratio": 0.5})")),
              HasSubstr("only stage 3"));
}

TEST(ConfigRulesTest, DeprecatedKeysNameTheirMend) {
  EXPECT_EQ(accepted(zero_with(R"("cpu_offload": false, "cpu_offload_use_pin_memory": true)")),
            TrainingConfig());
  for (const char* section : {"{}", "null"})
    EXPECT_THAT(
        refusal(zero_with(R"("cpu_offload": false, "offload_optimizer": )" + std::string(section))),
        HasSubstr("deprecated name of offload_optimizer"));
  EXPECT_EQ(accepted(zero_with(R"("cpu_offload": "auto", "offload_optimizer": {})")),
            TrainingConfig());
  EXPECT_EQ(accepted(zero_with(R"("stage3_gather_fp16_weights_on_model_save": true)")),
            TrainingConfig());
  EXPECT_THAT(refusal(zero_with(R"("stage3_gather_fp16_weights_on_model_save": true,
                                   "gather_16bit_weights_on_model_save": true)")),
              HasSubstr("deprecated name"));
  EXPECT_THAT(refusal(zero_with(R"("stage": 1, "legacy_stage1": true)")),
              HasSubstr("removed this path"));
}

TEST(ConfigRulesTest, TwoNamesOfOneFieldAreRefused) {
  EXPECT_THAT(refusal(zero_with(R"("prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 1)")),
              HasSubstr("/prefetch_bucket_size: is another name of stage3_prefetch_bucket_size"));
  EXPECT_EQ(accepted(zero_with(R"("prefetch_bucket_size": 1)")).stage3_prefetch_bucket_size, 1);
}

TEST(ConfigRulesTest, ReduceScatterForbidsScaledReductionsFromStage2On) {
  const auto config = [](int stage, const std::string& scatter) {
    return R"({"prescale_gradients": true, "gradient_predivide_factor": 2,
               "zero_optimization": {"stage": )" +
           std::to_string(stage) + R"(, "reduce_scatter": )" + scatter + "}}";
  };
  EXPECT_EQ(read_config(config(1, "true")).problems.size(), 0U);
  EXPECT_EQ(read_config(config(2, "true")).problems.size(), 2U);
  EXPECT_EQ(read_config(config(3, "true")).problems.size(), 2U);
  EXPECT_EQ(read_config(config(3, "false")).problems.size(), 0U);
}

TEST(ConfigRulesTest, OtherOptimizersAreRefusedByName) {
  EXPECT_EQ(refusal(R"({"optimizer": {"type": "Lamb"}})"),
            "/optimizer/type: \"Lamb\" is not built in dstune-mpi yet: write Adam or AdamW");
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"max_grad_norm": 1.0}}})"),
              HasSubstr("write gradient_clipping"));
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"bias_correction": false}}})"),
              HasSubstr("not built"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": 5}})"), HasSubstr("expected a text"));
}

TEST(ConfigRulesTest, MicsIsRefusedFromOneOn) {
  EXPECT_THAT(refusal(zero_with(R"("mics_shard_size": 4)")), HasSubstr("MiCS is not built"));
  EXPECT_EQ(accepted(zero_with(R"("mics_shard_size": 0)")), TrainingConfig());
}

TEST(ConfigRulesTest, SchedulersNeedTheirParameters) {
  const auto config = [](const std::string& type, const std::string& params) {
    return R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
  };
  EXPECT_THAT(refusal(config("WarmupDecayLR", "")), HasSubstr("needs total_num_steps"));
  EXPECT_EQ(accepted(config("WarmupDecayLR", R"("total_num_steps": "auto")")), TrainingConfig());
  EXPECT_EQ(read_config(config("OneCycle", "")).problems.size(), 2U);
  EXPECT_EQ(accepted(config("WarmupLR", R"("warmup_num_steps": 10)")), TrainingConfig());
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR"}})"), HasSubstr("needs the section"));
}

TEST(ConfigRulesTest, SchedulersRefuseWhatTheyDoNotTake) {
  const auto config = [](const std::string& type, const std::string& params) {
    return R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
  };
  EXPECT_THAT(refusal(config("WarmupLR", R"("cycle_min_lr": 0.1)")),
              HasSubstr("/scheduler/params/cycle_min_lr: WarmupLR does not take it"));
  EXPECT_THAT(refusal(config("WarmupLR", R"("warmup": 1)")), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(config("warmuplr", "")), HasSubstr("expected one of"));
  EXPECT_EQ(accepted(config("StepLR", R"("step_size": 10)")), TrainingConfig());
  EXPECT_THAT(refusal(R"({"bf16": {"enabled": true},
                          "scheduler": {"type": "StepLR", "params": {"step_size": 1}}})"),
              HasSubstr("at stage 0 in fp32 alone"));
}

TEST(ConfigRulesTest, EachAdamTakesItsOwnArguments) {
  const auto config = [](const std::string& params) {
    return R"({"optimizer": {"type": "AdamW", "params": {)" + params + "}}}";
  };
  EXPECT_THAT(refusal(config(R"("fused": true)")), HasSubstr("PyTorch's optimizer alone"));
  EXPECT_TRUE(read_config(config(R"("fused": true, "torch_adam": true)")).problems.empty());
  EXPECT_THAT(refusal(config(R"("set_grad_none": true, "torch_adam": true)")),
              HasSubstr("does not take it"));
}

TEST(ConfigRulesTest, TypesOfDataFollowTheMode) {
  const auto config = [](const std::string& types) {
    return R"({"bf16": {"enabled": true}, "data_types": {)" + types + "}}";
  };
  EXPECT_TRUE(read_config(config(R"("param_dtype": "bfloat16")")).problems.empty());
  EXPECT_THAT(refusal(config(R"("param_dtype": "fp32")")), HasSubstr("type of the mode"));
  EXPECT_THAT(refusal(config(R"("grad_accum_dtype": "float")")), HasSubstr("at stage 0"));
}

TEST(ConfigRulesTest, SectionsWantWhatDeepSpeedTakesOutOfThem) {
  EXPECT_THAT(refusal(R"({"amp": {"opt_level": "O1"}})"), HasSubstr("needs enabled"));
  EXPECT_EQ(accepted(R"({"amp": {"enabled": false, "opt_level": "O1"}})"), TrainingConfig());
  EXPECT_THAT(refusal(R"({"compression_training": {"row_pruning": {}}})"),
              HasSubstr("needs different_groups"));
}

TEST(ConfigRulesTest, ContiguousCheckpointsNeedTheirPartners) {
  EXPECT_THAT(refusal(R"({"activation_checkpointing": {"contiguous_memory_optimization": true}})"),
              HasSubstr("needs partition_activations and number_checkpoints"));
  EXPECT_EQ(accepted(R"({"activation_checkpointing": {"contiguous_memory_optimization": true,
                         "partition_activations": true, "number_checkpoints": 4}})"),
            TrainingConfig());
}

TEST(ConfigRulesTest, DynamicLossScalesNeedAWindow) {
  const auto on = [](const std::string& members) {
    return R"({"fp16": {"enabled": true, )" + members + "}}";
  };
  EXPECT_THAT(refusal(on(R"("loss_scale_window": 0)")), HasSubstr("must be above 0"));
  EXPECT_THAT(refusal(on(R"("min_loss_scale": 0)")), HasSubstr("must be above 0"));
  EXPECT_THAT(refusal(on(R"("initial_scale_power": 64)")), HasSubstr("at most 63"));
  EXPECT_EQ(accepted(on(R"("initial_scale_power": 63)")).loss_scale.initial_power, 63);
  // As in DeepSpeed, the others are not looked at where they say nothing.
  const std::string broken = R"("loss_scale_window": 0, "min_loss_scale": 0)";
  EXPECT_EQ(accepted(on(broken + R"(, "loss_scale": 128)")).loss_scale, (LossScale{.fixed = 128}));
  EXPECT_EQ(accepted(R"({"fp16": {)" + broken + "}}"), TrainingConfig());
}

}  // namespace
}  // namespace dstune
