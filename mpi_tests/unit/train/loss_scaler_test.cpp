#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "executor/step_inputs.hpp"

namespace dstune::train {
namespace {

using Verdict = LossScaler::Verdict;

TrainingConfig fp16(int zero_stage) {
  TrainingConfig config;
  config.precision = Precision::fp16;
  config.zero_stage = zero_stage;
  return config;
}

/// DeepSpeed's own scalers, run by loss_scales.py.
void expect_deepspeeds_scales(const char* series, int zero_stage) {
  const json::Document document = json::Document::read(DSTUNE_LOSS_SCALES);
  const json::Value& cases = document.root().at("cases");
  ASSERT_GT(cases.size(), 40U);
  for (const json::Value& each : cases) {
    TrainingConfig config = fp16(zero_stage);
    each.at("initial_scale_power").get_to(config.loss_scale.initial_power);
    each.at("loss_scale_window").get_to(config.loss_scale.window);
    each.at("hysteresis").get_to(config.loss_scale.hysteresis);
    each.at("consecutive_hysteresis").get_to(config.loss_scale.consecutive_hysteresis);
    each.at("min_loss_scale").get_to(config.loss_scale.minimum);
    LossScaler scaler(config);
    std::size_t step = 0;
    for (const json::Value& expected : each.at(series)) {
      const bool overflow = each.at("overflows").at(step) == 1;
      const Verdict verdict = scaler.end_step(overflow);
      if (expected.is_null()) {
        EXPECT_EQ(verdict, Verdict::exhausted) << each.dump() << " step " << step;
      } else {
        EXPECT_EQ(verdict, overflow ? Verdict::skip : Verdict::update);
        EXPECT_EQ(scaler.scale(), expected.get<double>()) << each.dump() << " step " << step;
      }
      ++step;
    }
  }
}

TEST(LossScalerTest, Stage0IsDeepSpeedsFp16Optimizer) {
  expect_deepspeeds_scales("stage_0", 0);
}

TEST(LossScalerTest, TheOtherStagesAreDeepSpeedsDynamicLossScaler) {
  for (const int zero_stage : {1, 2, 3}) expect_deepspeeds_scales("zero", zero_stage);
}

TEST(LossScalerTest, AFixedScaleStaysAndSkips) {
  for (const int zero_stage : {0, 2}) {
    TrainingConfig config = fp16(zero_stage);
    config.loss_scale.fixed = 100;
    config.loss_scale.minimum = 100;
    LossScaler scaler(config);
    for (int step = 0; step < 3000; ++step) {
      EXPECT_EQ(scaler.scale(), 100);
      EXPECT_EQ(scaler.end_step(step < 10), step < 10 ? Verdict::skip : Verdict::update);
    }
  }
}

TEST(LossScalerTest, OtherPrecisionsHaveNone) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    TrainingConfig config = fp16(1);
    config.precision = precision;
    config.loss_scale.fixed = 128;
    EXPECT_EQ(LossScaler(config).scale(), 1);
  }
}

}  // namespace
}  // namespace dstune::train
