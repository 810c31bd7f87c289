#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

std::int64_t fullest(const MemoryTimeline::Memory& memory) {
  std::int64_t most = 0;
  for (const auto& instant : memory.instants)
    most = std::max(most, std::accumulate(instant.begin(), instant.end(), std::int64_t{0}));
  return most;
}

std::vector<std::string> words(const MemoryTimeline& timeline) {
  std::vector<std::string> found;
  for (const MemoryTimeline::Part& part : timeline.parts)
    found.push_back(part.phase.empty() ? part.name : part.name + ", " + part.phase);
  return found;
}

TEST(MemoryTimelineTest, ItsFullestInstantIsThePlansPeak) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
      TrainingConfig config = test::tiny_config(stage);
      config.accumulation_steps = 3;
      config.offload_optimizer = device;
      const StepPlan plan = test::build(test::tiny_gpt2(), config, 2, 0);
      const MemoryTimeline timeline = memory_timeline(plan);
      EXPECT_EQ(fullest(timeline.memories[0]), plan.memory.peak_live_bytes);
      const bool has_host = plan.host_memory.arena_bytes > 0;
      ASSERT_EQ(timeline.memories.size(), has_host ? 2 : 1);
      if (!has_host) continue;
      EXPECT_EQ(fullest(timeline.memories[1]), plan.host_memory.peak_live_bytes);
      EXPECT_EQ(timeline.memories[0].instants.size(), timeline.memories[1].instants.size());
    }
  }
}

TEST(MemoryTimelineTest, BeginsAndEndsWithWhatIsAlwaysThere) {
  const StepPlan plan = test::build(test::tiny_gpt2(), test::tiny_config(2), 2, 0);
  MemoryTimeline::Instant always(num_categories, 0);
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.persistent) always[static_cast<std::size_t>(tensor.category)] += tensor.padded_bytes;
  }
  const MemoryTimeline timeline = memory_timeline(plan);
  EXPECT_EQ(timeline.memories[0].instants.back(), always);
  for (const auto& instant : timeline.memories[0].instants)
    for (std::size_t category = 0; category < always.size(); ++category)
      EXPECT_GE(instant[category], always[category]);
}

TEST(MemoryTimelineTest, NamesThePartsOfAStep) {
  TrainingConfig config = test::tiny_config(1);
  EXPECT_THAT(words(memory_timeline(test::build(test::tiny_gpt2(), config, 2, 0))),
              ElementsAre("micro-step 1, forward", "micro-step 1, backward", "update"));
  config.accumulation_steps = 4;
  EXPECT_THAT(words(memory_timeline(test::build(test::tiny_gpt2(), config, 2, 0))),
              ElementsAre("micro-step 1, forward", "micro-step 1, backward",
                          "micro-steps 2 to 3, forward", "micro-steps 2 to 3, backward",
                          "micro-step 4, forward", "micro-step 4, backward", "update"));
  config = test::tiny_config(3);
  EXPECT_THAT(words(memory_timeline(test::build(test::tiny_gpt2(), config, 2, 0))),
              ElementsAre("first step, micro-step 1, forward", "first step, micro-step 1, backward",
                          "micro-step 1, forward", "micro-step 1, backward", "update"));
}

}  // namespace
}  // namespace dstune
