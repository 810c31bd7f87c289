/// Plans count DeepSpeed's own work in a step.

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune {
namespace {

/// Overheads of a whole optimizer step.
Overheads count(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  Overheads sum{};
  for (const Segment& segment : test::build(model, config, group_size).cycle)
    for (std::size_t each = 0; each < sum.size(); ++each)
      sum[each] += static_cast<double>(segment.repeat) * segment.overheads[each];
  return sum;
}
double count(const ModelSpec& model, const TrainingConfig& config, Overhead overhead,
             int group_size = 2) {
  Overheads all = count(model, config, group_size);
  return of(all, overhead);
}
double in_gpt2(const TrainingConfig& config, Overhead overhead, int group_size = 2) {
  return count(test::tiny_gpt2(), config, overhead, group_size);
}
double in_llama(const TrainingConfig& config, Overhead overhead, int group_size = 2) {
  return count(test::tiny_llama(), config, overhead, group_size);
}

/// Calls that forward hooks of transformers 5.23 saw in a forward, and again in backward with
/// gradient checkpointing: of GPT-2 7 and 12 a block, of LLaMA and Qwen2 6 and 13 a block.
TEST(OverheadsTest, ModulesAreCalledAsInTransformers) {
  const ModelSpec qwen2 = test::tiny_model(ModelFamily::qwen2);
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    TrainingConfig config = test::tiny_config(stage);
    EXPECT_EQ(in_gpt2(config, Overhead::module_call), 7 + 3 * 12);
    EXPECT_EQ(in_llama(config, Overhead::module_call), 6 + 3 * 13);
    EXPECT_EQ(count(qwen2, config, Overhead::module_call), 6 + 3 * 13);
    config.recompute = Recompute::block;
    EXPECT_EQ(in_gpt2(config, Overhead::module_call), 7 + 3 * (12 + 10));
    EXPECT_EQ(in_llama(config, Overhead::module_call), 6 + 3 * (13 + 12));
    EXPECT_EQ(count(qwen2, config, Overhead::module_call), 6 + 3 * (13 + 12));
    config.accumulation_steps = 5;
    EXPECT_EQ(in_llama(config, Overhead::module_call), 5 * (6 + 3 * (13 + 12)));
  }
}

TEST(OverheadsTest, LeavesCallTheirModulesWithoutHooks) {
  TrainingConfig config = test::tiny_config(3);
  const double calls = in_llama(config, Overhead::module_call);
  const double hooks = in_llama(config, Overhead::gathering_hook);
  config.stage3_module_granularity_threshold = 1'000'000;
  EXPECT_EQ(in_llama(config, Overhead::module_call), calls);
  EXPECT_LT(in_llama(config, Overhead::gathering_hook), hooks);
}

/// A block of LLaMA has 9 parameters; the ends have 3.
TEST(OverheadsTest, GradientsGoToBucketsAsOftenAsTheStageReduces) {
  const double parameters = 3 + 3 * 9;
  for (const std::int64_t steps : {1, 2, 4}) {
    const auto hooks = [&](int stage) {
      TrainingConfig config = test::tiny_config(stage);
      config.accumulation_steps = steps;
      return in_llama(config, Overhead::gradient_hook);
    };
    const auto times = static_cast<double>(steps);
    EXPECT_EQ(hooks(0), 0);
    EXPECT_EQ(hooks(1), parameters);
    EXPECT_EQ(hooks(2), parameters * times);
    EXPECT_EQ(hooks(3), parameters * times);
    for (const int stage : {0, 1, 2, 3}) {
      TrainingConfig config = test::tiny_config(stage);
      config.accumulation_steps = steps;
      const auto elements =
          static_cast<double>(ParameterTable(test::tiny_llama()).total_elements());
      EXPECT_NEAR(in_llama(config, Overhead::stage_2_byte), stage == 2 ? 4 * elements : 0, 8);
    }
  }
}

/// Every module with parameters fetches and releases them in forward and in backward; what forward
/// runs again fetches them, too.
TEST(OverheadsTest, ModulesGatherAtStageThreeAlone) {
  TrainingConfig config = test::tiny_config(3);
  const double modules = 3 + 3 * 9;
  const double plain = in_llama(config, Overhead::gathering_hook);
  EXPECT_EQ(plain, 4 * modules);
  EXPECT_EQ(count(test::tiny_model(ModelFamily::qwen2), config, Overhead::gathering_hook), plain)
      << "its biases belong to the modules that LLaMA has, too";
  config.recompute = Recompute::block;
  EXPECT_GT(in_llama(config, Overhead::gathering_hook), plain);
  EXPECT_EQ(in_llama(config, Overhead::gathering_hook, 1),
            in_llama(config, Overhead::gathering_hook, 2));
  config.zero_stage = 2;
  EXPECT_EQ(in_llama(config, Overhead::gathering_hook), 0);
}

TEST(OverheadsTest, SmallBucketsAreMoreCallsOfAsManyBytes) {
  TrainingConfig config = test::tiny_config(2);
  config.gradient_clipping = 0;
  config.computes_gradient_norm = false;
  config.reduce_bucket_size = 1'000'000;
  const double calls = in_gpt2(config, Overhead::all_reduce_call);
  const double bytes = in_gpt2(config, Overhead::communicated_byte);
  EXPECT_EQ(calls, 1);
  // Gradients are all-reduced, parameters are gathered: fp32, half of each on two ranks.
  const double elements = static_cast<double>(ParameterTable(test::tiny_gpt2()).total_elements());
  EXPECT_NEAR(bytes, 4 * (elements + elements / 2), 4 * 8);
  config.reduce_bucket_size = 1000;
  EXPECT_GT(in_gpt2(config, Overhead::all_reduce_call), 3 * calls);
  EXPECT_NEAR(in_gpt2(config, Overhead::communicated_byte), bytes, 1e-6 * bytes);
}

TEST(OverheadsTest, BytesOfSmallCallsAreCountedUpToALimit) {
  const double limit = 512 * 1024;
  TrainingConfig config = test::tiny_config(0);
  config.gradient_clipping = 0;
  config.computes_gradient_norm = false;
  const double bytes = in_gpt2(config, Overhead::communicated_byte);
  ASSERT_LT(bytes, limit);
  EXPECT_EQ(in_gpt2(config, Overhead::small_call_byte), bytes);
  ModelSpec large = test::tiny_gpt2();
  large.vocab_size = 100'000;
  EXPECT_GT(count(large, config, Overhead::communicated_byte), 2 * limit);
  EXPECT_LE(count(large, config, Overhead::small_call_byte),
            limit * count(large, config, Overhead::all_reduce_call));
}

/// Whole parameters are gathered all at once behind the update: norms and biases here.
TEST(OverheadsTest, WithoutPrefetchingOnlyKeptParametersAreAhead) {
  TrainingConfig config = test::tiny_config(3);
  const double kept = 3 * 8 + 2;
  const double ahead = in_gpt2(config, Overhead::all_gather_ahead);
  const double now = in_gpt2(config, Overhead::all_gather_call);
  EXPECT_GT(ahead, kept);
  config.stage3_prefetch_bucket_size = 0;
  EXPECT_EQ(in_gpt2(config, Overhead::all_gather_ahead), kept);
  EXPECT_GT(in_gpt2(config, Overhead::all_gather_call), now);
}

TEST(OverheadsTest, TheNormAsksTheGroupAndTheLossIsOursAlone) {
  TrainingConfig config = test::tiny_config(2);
  config.reduce_bucket_size = 1'000'000;
  config.gradient_clipping = 0;
  EXPECT_EQ(in_gpt2(config, Overhead::all_reduce_call), 2);
  config.computes_gradient_norm = false;
  EXPECT_EQ(in_gpt2(config, Overhead::all_reduce_call), 1);  // of gradients
  // Stage 3 has no way without it.
  config = test::tiny_config(3);
  config.gradient_clipping = 0;
  config.computes_gradient_norm = false;
  EXPECT_EQ(in_gpt2(config, Overhead::all_reduce_call), 1);
  config.gradient_clipping = 1;
  EXPECT_EQ(in_gpt2(config, Overhead::all_reduce_call), 1);
  config.precision = Precision::fp16;  // the search for overflow tells the norm, too
  EXPECT_EQ(in_gpt2(config, Overhead::all_reduce_call), 1);
}

TEST(OverheadsTest, OffloadCopiesAndSubGroupsAreCounted) {
  TrainingConfig config = test::tiny_config(3);
  EXPECT_EQ(in_gpt2(config, Overhead::offload_copy), 0);
  EXPECT_EQ(in_gpt2(config, Overhead::sub_group), 1);
  config.sub_group_size = 500;
  const double groups = in_gpt2(config, Overhead::sub_group);
  EXPECT_GT(groups, 2);
  config.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(in_gpt2(config, Overhead::sub_group), groups);
  // At least the updated parameters of each come back.
  EXPECT_GE(in_gpt2(config, Overhead::offload_copy), groups);
}

/// Its share is of the whole step, however many micro-steps there are.
TEST(OverheadsTest, RecomputeIsCountedOnceAStep) {
  for (const std::int64_t steps : {1, 4}) {
    TrainingConfig config = test::tiny_config(2);
    config.accumulation_steps = steps;
    EXPECT_EQ(in_gpt2(config, Overhead::recompute), 0);
    config.recompute = Recompute::block;
    EXPECT_EQ(in_gpt2(config, Overhead::recompute), 1);
  }
}

TEST(OverheadsTest, AStepIsOneStep) {
  for (int stage = 0; stage <= 3; ++stage)
    for (const int ranks : {1, 2, 3})
      EXPECT_EQ(in_gpt2(test::tiny_config(stage), Overhead::optimizer_step, ranks), 1);
}

/// A group of one calls nobody, but its modules and hooks run.
TEST(OverheadsTest, OneRankCommunicatesNothing) {
  Overheads all = count(test::tiny_gpt2(), test::tiny_config(2), 1);
  for (std::size_t each = 0; each < all.size(); ++each) {
    if (is_of_network(static_cast<Overhead>(each))) {
      EXPECT_EQ(all[each], 0) << each;
    }
  }
  EXPECT_GT(of(all, Overhead::gradient_hook), 0);
}

}  // namespace
}  // namespace dstune
