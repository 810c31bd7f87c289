#include <cmath>

#include <gtest/gtest.h>

#include "dstune/predict/step_predictor.hpp"

namespace dstune {
namespace {

TrainingConfig config_of(int stage, std::int64_t micro_batch) {
  TrainingConfig config;
  config.zero_stage = stage;
  config.micro_batch = micro_batch;
  return config;
}

TEST(PredictionCorrectionTest, KnowsNothingAtFirst) {
  EXPECT_DOUBLE_EQ(PredictionCorrection().at(config_of(2, 4), 2), 1);
}

TEST(PredictionCorrectionTest, FindsAStagesOwnFactor) {
  PredictionCorrection correction;
  for (const std::int64_t micro_batch : {1, 2, 4, 8}) {
    for (int stage = 0; stage <= 2; ++stage)
      correction.observe(config_of(stage, micro_batch), 2, 1.0, stage == 2 ? 1.08 : 1.0);
  }
  EXPECT_NEAR(correction.at(config_of(2, 16), 2), 1.08, 0.015);
  EXPECT_NEAR(correction.at(config_of(0, 16), 2), 1.0, 0.015);
}

TEST(PredictionCorrectionTest, KnowsThatInAGroupOfOneStagesAreAlike) {
  PredictionCorrection correction;
  for (const std::int64_t micro_batch : {1, 2, 4, 8})
    correction.observe(config_of(2, micro_batch), 1, 1.0, 1.08);
  for (const int stage : {0, 1, 2, 3})
    EXPECT_DOUBLE_EQ(correction.at(config_of(stage, 4), 1), correction.at(config_of(0, 4), 1));
  TrainingConfig offloads = config_of(2, 4);
  offloads.offload_optimizer = OffloadDevice::cpu;
  const double before = correction.at(offloads, 1);
  correction.observe(offloads, 1, 1.0, 0.8);
  EXPECT_LT(correction.at(offloads, 1), before);
  offloads.zero_stage = 1;
  EXPECT_GT(correction.at(offloads, 1), 0.85);
}

TEST(PredictionCorrectionTest, FollowsTheMicroBatch) {
  PredictionCorrection correction;
  for (const std::int64_t micro_batch : {1, 2, 4, 8, 16})
    correction.observe(config_of(0, micro_batch), 1, 1.0,
                       std::exp(0.02 * std::log2(static_cast<double>(micro_batch))));
  EXPECT_NEAR(std::log(correction.at(config_of(0, 64), 1)), 0.12, 0.02);
}

TEST(PredictionCorrectionTest, SaysLittleOfWhatResemblesNothingMeasured) {
  PredictionCorrection correction;
  for (const std::int64_t micro_batch : {1, 2, 4, 8})
    for (const int stage : {0, 2})
      correction.observe(config_of(stage, micro_batch), 2, 1.0, stage == 2 ? 1.2 : 1.0);
  EXPECT_GT(correction.at(config_of(2, 4), 2), 1.15);
  EXPECT_NEAR(correction.at(config_of(3, 4), 2), correction.at(config_of(0, 4), 2), 1e-12);
}

TEST(PredictionCorrectionTest, OneOutlierMovesItLittle) {
  PredictionCorrection correction;
  for (int i = 0; i < 8; ++i) correction.observe(config_of(0, 4), 1, 1.0, 1.0);
  correction.observe(config_of(0, 4), 1, 1.0, 1.5);
  EXPECT_LT(correction.at(config_of(0, 4), 1), 1.06);
}

}  // namespace
}  // namespace dstune
