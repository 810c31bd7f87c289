#include <gtest/gtest.h>

#include "dstune/core/experiment.hpp"
#include "plan_fixtures.hpp"
#include "replay.hpp"
#include "traffic.hpp"
#include "zero/layout.hpp"

namespace dstune {
namespace {

TrainingConfig quantized_weights() {
  TrainingConfig config = test::tiny_config(3);
  config.zero_quantized_weights = true;
  return config;
}

TrainingConfig quantized_gradients(GroupShape shape) {
  TrainingConfig config = test::tiny_config(3);
  config.zero_quantized_gradients = true;
  config.communication_data_type = CommunicationType::fp16;
  place_on(shape, config);
  return config;
}

// DeepSpeed counts up from as many scales as runs of 8000 would have.
TEST(QuantizationTest, RunsAreThoseThatDeepSpeedFindsByCounting) {
  for (std::int64_t elements = 8; elements < 300'000; elements += elements < 40'000 ? 8 : 1'736) {
    std::int64_t scales = (elements + 7'999) / 8'000;
    while (elements % (8 * scales) != 0) ++scales;
    ASSERT_EQ(plan::weights_of_a_scale(elements), elements / scales) << elements;
  }
  EXPECT_EQ(plan::weights_of_a_scale(8 * 8'009), 8);  // a prime
  EXPECT_EQ(plan::weights_of_a_scale(std::int64_t{8'000} * 1'000'003), 8'000);
}

TEST(QuantizationTest, MicsKnowsNothingOfIt) {
  TrainingConfig config = quantized_weights();
  config.mics_shard_size = 4;
  TrainingConfig plain = config;
  plain.zero_quantized_weights = false;
  const StepPlan plan = test::build(test::even_gpt2(4), config, 4);
  EXPECT_TRUE(test::every<op::Quantize>(plan).empty());
  EXPECT_EQ(plan.memory.arena_bytes, test::build(test::even_gpt2(4), plain, 4).memory.arena_bytes);
}

TEST(QuantizationTest, OnOneNodeGradientsAreReducedAsTheyAre) {
  TrainingConfig plain = test::tiny_config(3);
  plain.communication_data_type = CommunicationType::fp16;
  EXPECT_EQ(quantized_gradients({4, 1}), plain);
  EXPECT_NE(quantized_gradients({2, 2}), plain);
  TrainingConfig stage2 = quantized_gradients({2, 2});
  stage2.zero_stage = 2;
  place_on({2, 2}, stage2);
  EXPECT_FALSE(stage2.zero_quantized_gradients);
}

TEST(QuantizationTest, WhatDoesNotFallIntoEvenPartsIsReducedAsItIs) {
  const ParameterTable table(test::even_gpt2(4));
  const plan::Layout on_four(table, 3, {.size = 4});
  const plan::Layout on_sixty(table, 3, {.size = 60});
  for (const plan::Piece& piece : on_four.pieces()) {
    const bool is_matrix = table.all()[static_cast<std::size_t>(piece.parameter)].columns > 1;
    EXPECT_EQ(plan::is_gradient_quantized(on_four, piece), is_matrix);
    EXPECT_FALSE(plan::is_gradient_quantized(on_sixty, piece));  // no multiple of 120
  }
}

TEST(QuantizationTest, PlansReplayWithoutAProblem) {
  for (const bool overlap : {false, true}) {
    for (const std::int64_t bucket : {100, 4'000, 1'000'000}) {
      for (const Precision precision : {Precision::fp32, Precision::fp16}) {
        TrainingConfig config = quantized_gradients({2, 2});
        config.zero_quantized_weights = true;
        config.overlap_comm = overlap;
        config.reduce_bucket_size = bucket;
        config.precision = precision;
        config.accumulation_steps = 3;
        config.contiguous_gradients = bucket != 4'000 || overlap;
        if (bucket == 100) config.offload_optimizer = OffloadDevice::cpu;
        for (const std::int64_t hpz : {1, 2}) {
          config.zero_hpz_partition_size = hpz;
          for (const std::int64_t kept : {0, 40}) {
            config.stage3_param_persistence_threshold = kept;
            const StepPlan plan = test::build(test::even_gpt2(4), config, 4, 1);
            const test::Replay replay(plan);
            EXPECT_EQ(replay.problems(), std::vector<std::string>());
            test::expect_same_memory(replay.figures(), plan.memory);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dstune
