/// Effects of knobs of stage 3's gathering on a plan.

#include <array>

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using test::build;
using test::tiny_config;
using test::tiny_gpt2;
using test::tiny_llama;
using test::traffic_of;

constexpr std::int64_t unlimited = 1'000'000'000;

TrainingConfig without_gathers_ahead() {
  TrainingConfig config = tiny_config(3);
  config.overlap_comm = true;
  config.stage3_param_persistence_threshold = 0;
  config.stage3_prefetch_bucket_size = 0;
  config.stage3_max_live_parameters = unlimited;
  config.stage3_max_reuse_distance = 0;
  return config;
}

std::int64_t gathered_bytes(const StepPlan& plan) {
  return plan.memory.categories_at_peak[static_cast<std::size_t>(Category::gathered)];
}

/// Operations on the compute stream between the last gather and the first use of its result: 0
/// where compute waits for every gather at once.
std::int64_t longest_head_start(const StepPlan& plan) {
  std::int64_t longest = 0;
  std::int64_t since = -1;
  for (const Step& step : plan.cycle.front().steps) {
    if (std::holds_alternative<op::AllGather>(step.operation)) {
      since = 0;
    } else if (step.stream == Stream::compute && since >= 0) {
      const bool waits = std::holds_alternative<op::Wait>(step.operation);
      since = waits ? -1 : since + (std::holds_alternative<op::Matmul>(step.operation) ? 1 : 0);
      longest = std::max(longest, since);
    }
  }
  return longest;
}

TEST(Stage3Test, NoMoreIsKeptThanTheModelsThreshold) {
  TrainingConfig config = without_gathers_ahead();
  const StepPlan none = build(tiny_gpt2(), config, 2);
  EXPECT_EQ(traffic_of(none.cycle.back().steps, 2).all_gather, 0);
  config.stage3_param_persistence_threshold = 37;
  // A block's norms, biases of projections, and padded bias of fc; the final norm. Two vectors.
  const std::int64_t all = 3 * (6 * 10 + 30 + 38) + 2 * 10, two = 2 * 10;
  for (const auto& [limit, kept, calls] :
       {std::array<std::int64_t, 3>{unlimited, all, 3 * 8 + 2}, {25, two, 2}}) {
    config.stage3_model_persistence_threshold = limit;
    const StepPlan plan = build(tiny_gpt2(), config, 2);
    std::int64_t elements = 0;
    for (const PlannedTensor& tensor : plan.tensors)
      if (std::string_view(tensor.name) == "kept parameters") elements += tensor.elements;
    EXPECT_EQ(elements, kept);
    const test::Traffic update = traffic_of(plan.cycle.back().steps, 2);
    EXPECT_EQ(update.all_gather, kept);
    EXPECT_EQ(update.calls, calls);
    EXPECT_EQ(traffic_of(none.cycle.front().steps, 2).all_gather -
                  traffic_of(plan.cycle.front().steps, 2).all_gather,
              2 * kept);
  }
}

TEST(Stage3Test, TheFirstMicroStepGathersOnDemandAndKeepsNothing) {
  TrainingConfig config = tiny_config(3);
  config.accumulation_steps = 3;
  const StepPlan plan = build(tiny_gpt2(), config, 2);
  ASSERT_EQ(plan.tracing.size(), 2U);
  TrainingConfig plain = without_gathers_ahead();
  const auto on_demand = traffic_of(build(tiny_gpt2(), plain, 2).cycle.front().steps, 2);
  EXPECT_EQ(traffic_of(plan.tracing[0].steps, 2).all_gather, on_demand.all_gather);
  // The second gathers what is kept from then on, later ones do not.
  EXPECT_GT(traffic_of(plan.tracing[1].steps, 2).all_gather,
            traffic_of(plan.cycle[1].steps, 2).all_gather);
  EXPECT_TRUE(build(tiny_gpt2(), tiny_config(2), 2).tracing.empty());
  EXPECT_TRUE(build(tiny_gpt2(), tiny_config(3), 1).tracing.empty());
}

TEST(Stage3Test, PrefetchStartsGathersBeforeTheyAreNeeded) {
  TrainingConfig config = without_gathers_ahead();
  const StepPlan none = build(tiny_gpt2(), config, 2);
  EXPECT_EQ(longest_head_start(none), 0);
  config.stage3_prefetch_bucket_size = 800;
  const StepPlan some = build(tiny_gpt2(), config, 2);
  EXPECT_GT(longest_head_start(some), 0);
  // Parameters that are there already, so that prefetching passes over them, stay for that use.
  EXPECT_LT(traffic_of(some).all_gather, traffic_of(none).all_gather);
  EXPECT_GT(gathered_bytes(some), gathered_bytes(none));
}

TEST(Stage3Test, LinearLayersHoldWhatForwardGathered) {
  TrainingConfig config = without_gathers_ahead();
  const std::int64_t element = 4;
  const auto more = [&](const ModelSpec& model) {
    config.memory_efficient_linear = true;
    const StepPlan before = build(model, config, 2);
    config.memory_efficient_linear = false;
    const StepPlan after = build(model, config, 2);
    EXPECT_EQ(traffic_of(after).all_gather, traffic_of(before).all_gather);
    return after.memory.peak_live_bytes - before.memory.peak_live_bytes;
  };
  // All matrices of the blocks, without the block that is at work.
  const ModelSpec llama = tiny_llama();
  const ParameterTable table(llama);
  std::int64_t matrices = 0;
  for (const Parameter& parameter : table.all())
    if (parameter.columns > 1 && parameter.unit >= 1 && parameter.unit < llama.num_layers)
      matrices += parameter.elements();
  EXPECT_GE(more(llama), element * matrices);
  // GPT-2's blocks have Conv1D.
  EXPECT_LE(more(tiny_gpt2()), element * 101 * 10 + 512);
  // One block's at a time.
  const std::int64_t whole = more(llama);
  config.recompute = Recompute::block;
  EXPECT_LT(more(llama), whole);
  // Parameters that stay gathered are there once.
  config.recompute = Recompute::none;
  config.stage3_max_reuse_distance = unlimited;
  EXPECT_EQ(more(llama), 0);
}

TEST(Stage3Test, SequentialGathersTakeNoBuffer) {
  TrainingConfig config = without_gathers_ahead();
  // Sequential gathers gather one parameter ahead, whatever the bucket.
  config.stage3_prefetch_bucket_size = 1;
  const StepPlan together = build(tiny_gpt2(), config, 2);
  config.stage3_allgather_sequential = true;
  const StepPlan alone = build(tiny_gpt2(), config, 2);
  EXPECT_EQ(traffic_of(alone).all_gather, traffic_of(together).all_gather);
  EXPECT_GE(traffic_of(alone).calls, traffic_of(together).calls);
  const auto has_buffers = [](const StepPlan& plan) {
    return std::any_of(plan.tensors.begin(), plan.tensors.end(), [](const PlannedTensor& tensor) {
      return std::string_view(tensor.name) == "gathered shards";
    });
  };
  EXPECT_TRUE(has_buffers(together));
  EXPECT_FALSE(has_buffers(alone));
}

TEST(Stage3Test, SubGroupsAreUpdatedOneAfterAnother) {
  TrainingConfig config = tiny_config(3);
  const auto updates = [&] {
    std::vector<std::int64_t> counts;
    for (const auto& update : test::every<op::UpdateParameters>(build(tiny_gpt2(), config, 2)))
      counts.push_back(update.count);
    return counts;
  };
  const std::vector<std::int64_t> whole = updates();
  ASSERT_EQ(whole.size(), 1U);
  // Whole parameters, until they are at least so many elements.
  config.sub_group_size = 600;
  const std::vector<std::int64_t> cut = updates();
  EXPECT_GT(cut.size(), 2U);
  std::int64_t sum = 0;
  for (const std::int64_t count : cut) sum += count;
  EXPECT_EQ(sum, whole.front());
  EXPECT_EQ(cut.front(), 505 + 95);
  for (std::size_t i = 0; i + 1 < cut.size(); ++i) EXPECT_GE(cut[i], 600);
}

}  // namespace
}  // namespace dstune
