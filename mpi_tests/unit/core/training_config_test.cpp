#include "dstune/core/training_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

TEST(TrainingConfigTest, AnEmptyConfigHasDeepSpeedsDefaults) {
  const TrainingConfig config = accepted("{}");
  EXPECT_EQ(config, TrainingConfig());
  EXPECT_EQ(config.zero_stage, 0);
  EXPECT_EQ(config.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.gradient_clipping, 1.0);
}

TEST(TrainingConfigTest, ReadsWhatIsMeasured) {
  const TrainingConfig config = accepted(R"({
    "bf16": {"enabled": true},
    "gradient_clipping": 0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.8, 0.95], "eps": 1e-6,
                                              "weight_decay": 0.1}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7, "overlap_comm": true,
                          "reduce_scatter": false, "contiguous_gradients": false,
                          "use_multi_rank_bucket_allreduce": false}})");
  TrainingConfig expected;
  expected.precision = Precision::bf16;
  expected.gradient_clipping = 0;
  expected.optimizer = {OptimizerKind::adamw, 1e-4, 0.8, 0.95, 1e-6, 0.1};
  expected.zero_stage = 2;
  expected.reduce_bucket_size = 50'000'000;
  expected.overlap_comm = true;
  expected.reduce_scatter = false;
  expected.contiguous_gradients = false;
  expected.use_multi_rank_bucket_allreduce = false;
  EXPECT_EQ(config, expected);
}

TEST(TrainingConfigTest, OverlapIsOnByDefaultAtStage3Alone) {
  for (int stage = 0; stage < 4; ++stage) {
    const std::string text = R"("stage": )" + std::to_string(stage);
    EXPECT_EQ(accepted(zero_with(text)).overlap_comm, stage == 3);
    EXPECT_EQ(accepted(zero_with(text + R"(, "overlap_comm": "auto")")).overlap_comm, stage == 3);
    EXPECT_FALSE(accepted(zero_with(text + R"(, "overlap_comm": false)")).overlap_comm);
    EXPECT_TRUE(accepted(zero_with(text + R"(, "overlap_comm": true)")).overlap_comm);
  }
}

TEST(TrainingConfigTest, AnAutoOptimizerIsTheDefault) {
  EXPECT_EQ(accepted(R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto",
                         "eps": "auto", "weight_decay": "auto"}}})"),
            TrainingConfig());
}

TEST(TrainingConfigTest, AdamIsAdamWUnlessItsModeSaysOtherwise) {
  const auto kind = [](const std::string& type, const std::string& params) {
    return accepted(R"({"optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}}")
        .optimizer.kind;
  };
  EXPECT_EQ(kind("Adam", ""), OptimizerKind::adamw);
  EXPECT_EQ(kind("adam", R"("adam_w_mode": false)"), OptimizerKind::adam);
  EXPECT_EQ(kind("ADAMW", R"("adam_w_mode": false)"), OptimizerKind::adamw);
}

TEST(TrainingConfigTest, EveryOptimizerHasItsDefaults) {
  const auto optimizer = [](const std::string& type) {
    return accepted(R"({"optimizer": {"type": ")" + type + R"("}})").optimizer;
  };
  EXPECT_EQ(optimizer("Lion"), (OptimizerConfig{.kind = OptimizerKind::lion}));
  EXPECT_EQ(optimizer("SGD"), (OptimizerConfig{.kind = OptimizerKind::sgd}));
  EXPECT_EQ(
      optimizer("ADAGRAD"),
      (OptimizerConfig{.kind = OptimizerKind::adagrad, .learning_rate = 0.01, .epsilon = 1e-10}));
  EXPECT_EQ(accepted(R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}})").optimizer,
            (OptimizerConfig{.kind = OptimizerKind::sgd, .momentum = 0.9}));
}

TEST(TrainingConfigTest, PyTorchsAdamWDecaysByDefault) {
  const auto decay = [](const std::string& type, const std::string& params) {
    return accepted(R"({"optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}}")
        .optimizer.weight_decay;
  };
  EXPECT_EQ(decay("AdamW", R"("torch_adam": true)"), 0.01);
  EXPECT_EQ(decay("AdamW", R"("torch_adam": true, "weight_decay": 0)"), 0);
  EXPECT_EQ(decay("AdamW", R"("torch_adam": false)"), 0);
  EXPECT_EQ(decay("Adam", R"("torch_adam": true, "adam_w_mode": false)"), 0);
}

TEST(TrainingConfigTest, ReadsAsLenientlyAsPydanticWhereDeepSpeedDoes) {
  EXPECT_TRUE(accepted(zero_with(R"("overlap_comm": "yes")")).overlap_comm);
  EXPECT_FALSE(accepted(zero_with(R"("reduce_scatter": "Off")")).reduce_scatter);
  EXPECT_FALSE(accepted(zero_with(R"("reduce_scatter": 0)")).reduce_scatter);
  EXPECT_EQ(accepted(zero_with(R"("stage": "2")")).zero_stage, 2);
  EXPECT_EQ(accepted(zero_with(R"("stage": 2.0)")).zero_stage, 2);
  EXPECT_EQ(accepted(zero_with(R"("stage": true)")).zero_stage, 1);
  EXPECT_EQ(accepted(R"({"zero_optimization": true})").zero_stage, 1);
  EXPECT_EQ(accepted(R"({"zero_optimization": false})").zero_stage, 0);
  EXPECT_EQ(accepted(zero_with(R"("reduce_bucket_size": 5e8)")).reduce_bucket_size, 500'000'000);
  EXPECT_EQ(accepted(zero_with(R"("reduce_bucket_size": " +700 ")")).reduce_bucket_size, 700);
  EXPECT_THAT(refusal(zero_with(R"("reduce_bucket_size": "5e8")")),
              HasSubstr("expected an integer of at least 1, got \"5e8\""));
  EXPECT_THAT(refusal(zero_with(R"("reduce_bucket_size": 1.5)")), HasSubstr("got 1.5"));
  EXPECT_THAT(refusal(zero_with(R"("reduce_bucket_size": "")")), HasSubstr("expected an integer"));
  EXPECT_EQ(accepted(zero_with(R"("reduce_bucket_size": true)")).reduce_bucket_size, 1);
  EXPECT_EQ(accepted(zero_with(R"("reduce_bucket_size": "7.00")")).reduce_bucket_size, 7);
  EXPECT_EQ(accepted(zero_with(R"("reduce_bucket_size": "7_000")")).reduce_bucket_size, 7000);
  EXPECT_THAT(refusal(zero_with(R"("reduce_bucket_size": "7_")")), HasSubstr("expected"));
  EXPECT_THAT(refusal(zero_with(R"("reduce_bucket_size": 0)")), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(zero_with(R"("overlap_comm": " true")")), HasSubstr("expected true"));
  EXPECT_THAT(refusal(R"({"fp16": {"loss_scale": true}})"), HasSubstr("expected a number"));
  EXPECT_EQ(accepted(R"({"fp16": {"loss_scale": "0.5", "hysteresis": true}})"), TrainingConfig());
  EXPECT_THAT(refusal(zero_with(R"("overlap_comm": 2)")), HasSubstr("expected true or false"));
  EXPECT_THAT(refusal(R"({"gradient_clipping": "1"})"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"lr": "1e-4"}}})"),
              HasSubstr("/optimizer/params/lr: expected a number"));
}

TEST(TrainingConfigTest, ReadsFp16WithItsLossScale) {
  const TrainingConfig plain = accepted(R"({"fp16": {"enabled": true}})");
  EXPECT_EQ(plain.precision, Precision::fp16);
  EXPECT_EQ(plain.loss_scale, LossScale());
  const TrainingConfig full = accepted(R"({"bf16": {"enabled": false}, "fp16": {"enabled": true,
      "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
      "consecutive_hysteresis": true, "min_loss_scale": 4, "auto_cast": false}})");
  EXPECT_EQ(full.precision, Precision::fp16);
  EXPECT_EQ(full.loss_scale, (LossScale{0, 12, 500, 3, true, 4}));
  EXPECT_EQ(accepted(R"({"fp16": {"enabled": true, "loss_scale": 1024.5}})").loss_scale,
            (LossScale{.fixed = 1024.5}));
}

TEST(TrainingConfigTest, Fp16IsOffByDefault) {
  for (const char* text :
       {R"({"fp16": {"enabled": "auto"}})", R"({"fp16": {}})",
        R"({"fp16": {"enabled": false, "loss_scale": 128, "hysteresis": 5}})",
        R"({"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 100}})"})
    EXPECT_EQ(accepted(text), TrainingConfig()) << text;
  EXPECT_EQ(accepted(R"({"bf16": {"enabled": true}, "fp16": {"enabled": false}})").precision,
            Precision::bf16);
  EXPECT_EQ(accepted(R"({"bf16": {"enabled": true}, "fp16": {"enabled": "auto"}})").precision,
            Precision::bf16);
}

TEST(TrainingConfigTest, RefusesStagesThatDoNotExist) {
  EXPECT_EQ(refusal(zero_with(R"("stage": 4)")),
            "/zero_optimization/stage: expected an integer from 0 to 3, got 4");
  EXPECT_THAT(refusal(zero_with(R"("stage": "all")")), HasSubstr("got \"all\""));
  EXPECT_THAT(refusal(zero_with(R"("stage": [1, 2])")), HasSubstr("got a list"));
}

TEST(TrainingConfigTest, RefusesUnknownKeysWhereDeepSpeedDoes) {
  EXPECT_EQ(refusal(zero_with(R"("reduce_buckt_size": 1)")),
            "/zero_optimization/reduce_buckt_size: unknown key: did you mean "
            "\"reduce_bucket_size\"?");
  EXPECT_THAT(refusal(zero_with(R"("grad_hooks": true)")), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(R"({"bf16": {"enable": true}})"), HasSubstr("\"enabled\""));
  EXPECT_THAT(refusal(zero_with(R"("offload_param": {"devise": "none"})")),
              HasSubstr("\"device\""));
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"moment": 0.9}}})"), HasSubstr("unknown key"));
  EXPECT_EQ(accepted(R"({"my_own_key": [1, 2], "autotuning": {"enabled": true},
                         "dstune": {"x": 1}, "aio": {"other": 1}})"),
            TrainingConfig());
}

TEST(TrainingConfigTest, ReadsBatchKeysByTheirRowsAndLeavesThemToTheCaller) {
  EXPECT_EQ(accepted(R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3,
                         "gradient_accumulation_steps": "auto"})"),
            TrainingConfig());
  EXPECT_EQ(refusal(R"({"train_batch_size": -5})"),
            "/train_batch_size: expected an integer from 1 to 16777216, got -5");
  EXPECT_EQ(refusal(R"({"gradient_accumulation_steps": "x"})"),
            "/gradient_accumulation_steps: expected an integer from 1 to 16777216, got \"x\"");
}

TEST(TrainingConfigTest, ReportsEveryProblemAtOnceWithItsLine) {
  const ReadConfig read = read_config(R"({
    "zero_optimization": {
      "stage": 7,
      "reduce_bucket_size": -1,
      "unknown": 1
    },
    "fp16": {"fp16_master_weights_and_grads": true}
  })");
  std::vector<int> lines;
  for (const Problem& problem : read.problems) {
    EXPECT_EQ(problem.file, "space.json");
    lines.push_back(problem.line);
  }
  EXPECT_THAT(lines, testing::UnorderedElementsAre(3, 4, 5, 7));
}

TEST(TrainingConfigTest, BetasAreTwoNumbersBelowOne) {
  const auto betas = [](const std::string& value) {
    return refusal(R"({"optimizer": {"params": {"betas": )" + value + "}}}");
  };
  EXPECT_EQ(betas("[0.9]"), "/optimizer/params/betas: expected a list of 2 numbers, got 1");
  EXPECT_THAT(betas("[0.9, 1.5]"), HasSubstr("/optimizer/params/betas/1: expected a number"));
  EXPECT_THAT(betas("[1, 0.9]"), HasSubstr("/optimizer/params/betas/0: must be below 1"));
  EXPECT_THAT(betas("0.9"), HasSubstr("expected a list"));
}

TEST(TrainingConfigTest, RefusesARootThatIsNoObject) {
  EXPECT_EQ(refusal("[1]"), ": expected an object, got a list");
}

TEST(TrainingConfigTest, CountsSamplesOfTheWholeGroup) {
  TrainingConfig config;
  config.micro_batch = 3;
  config.accumulation_steps = 4;
  EXPECT_EQ(global_batch(config, 5), 60);
}

}  // namespace
}  // namespace dstune
