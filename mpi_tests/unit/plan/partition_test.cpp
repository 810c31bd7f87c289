#include <gtest/gtest.h>

#include "plan_fixtures.hpp"
#include "traffic.hpp"
#include "zero/layout.hpp"

namespace dstune {
namespace {

using plan::Partition;
using plan::partition_of;
using test::every;

TrainingConfig hpz(int size) {
  TrainingConfig config = test::tiny_config(3);
  config.zero_hpz_partition_size = size;
  return config;
}

TrainingConfig mics(int size, int ranks_per_node = 0) {
  TrainingConfig config = test::tiny_config(3);
  config.mics_shard_size = size;
  config.mics_hierarchical_params_gather = ranks_per_node > 0;
  config.ranks_per_node = ranks_per_node;
  return config;
}

/// Nothing stays, and nothing is gathered for another reason than its use.
TrainingConfig plain(TrainingConfig config) {
  config.stage3_param_persistence_threshold = 0;
  config.stage3_prefetch_bucket_size = 0;
  config.stage3_max_reuse_distance = 0;
  return config;
}

TEST(PartitionTest, WithoutBlocksAllRanksShareOneCopy) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Partition partition = partition_of(test::tiny_config(stage), 6, 4);
    EXPECT_EQ(partition.size, 6);
    EXPECT_EQ(partition.rank, 4);
    EXPECT_EQ(partition.replicas, 1);
    EXPECT_EQ(partition.shards, RankRange());
    EXPECT_EQ(partition.secondary_size, 0);
  }
  TrainingConfig stage2 = mics(2);
  stage2.zero_hpz_partition_size = 2;
  stage2.zero_stage = 2;
  EXPECT_EQ(partition_of(stage2, 6, 4).size, 6);
  EXPECT_EQ(partition_of(stage2, 6, 4).secondary_size, 0);
}

TEST(PartitionTest, BlocksAreOfConsecutiveRanks) {
  const Partition second = partition_of(hpz(4), 8, 6);
  EXPECT_EQ(second.size, 8);
  EXPECT_EQ(second.shards, RankRange());
  EXPECT_EQ(second.secondary_size, 4);
  EXPECT_EQ(second.secondary_rank, 2);
  EXPECT_EQ(second.secondary, (RankRange{4, 1, 4}));

  const Partition copies = partition_of(mics(4), 8, 6);
  EXPECT_EQ(copies.size, 4);
  EXPECT_EQ(copies.rank, 2);
  EXPECT_EQ(copies.replicas, 2);
  EXPECT_EQ(copies.shards, (RankRange{4, 1, 4}));
  EXPECT_EQ(copies.across, (RankRange{2, 4, 2}));
  // DeepSpeed takes no more ranks for the second copy than there are.
  EXPECT_EQ(partition_of(hpz(16), 8, 6).secondary_size, 8);
  EXPECT_EQ(partition_of(hpz(16), 8, 6).secondary, RankRange());
}

TEST(PartitionTest, HierarchicalGathersGoAcrossNodesFirst) {
  const Partition partition = partition_of(mics(6, 2), 12, 9);  // of the second copy, node 1
  EXPECT_EQ(partition.ranks_of_node, 2);
  EXPECT_EQ(partition.across_nodes, (RankRange{7, 2, 3}));
  EXPECT_EQ(partition.node, (RankRange{8, 1, 2}));
}

// The machine is measured by groups of one, whose plans there are for every configuration.
TEST(PartitionTest, AGroupOfOneHasNoParts) {
  const StepPlan plain_plan = test::build(test::tiny_gpt2(), test::tiny_config(3), 1);
  for (const TrainingConfig& config : {hpz(2), mics(2), mics(4, 2)}) {
    const StepPlan plan = test::build(test::tiny_gpt2(), config, 1);
    EXPECT_EQ(plan.memory.arena_bytes, plain_plan.memory.arena_bytes);
  }
}

// The first gather of a step is over all ranks, every other one over the block. The second
// partition is filled as the weights are: the first step gathers from it alone.
TEST(PartitionTest, HpzGathersOverAllRanksOnceAStep) {
  TrainingConfig config = plain(hpz(2));
  config.accumulation_steps = 3;
  const ModelSpec model = test::tiny_llama();
  const StepPlan plan = test::build(model, config, 4, 3);
  const std::int64_t once = test::padded_elements(ParameterTable(model), 4);
  const auto gathered = [](const Segment& segment) {
    std::int64_t over_all = 0, over_block = 0;
    for (const auto& gather : every<op::AllGather>(segment.steps)) {
      const bool is_over_all = gather.among == RankRange();
      EXPECT_TRUE(is_over_all || gather.among == (RankRange{2, 1, 2}));
      (is_over_all ? over_all : over_block) += gather.count_per_rank;
    }
    return std::pair(4 * over_all, 2 * over_block);
  };
  for (const Segment& segment : plan.cycle) {
    const bool is_first = segment.kind == Segment::Kind::first_micro;
    const std::int64_t uses = segment.kind == Segment::Kind::update ? 0 : 2;
    EXPECT_EQ(gathered(segment), std::pair(is_first * once, (uses - is_first) * once));
  }
  EXPECT_FALSE(plan.tracing.empty());
  for (const Segment& segment : plan.tracing) EXPECT_EQ(gathered(segment).first, 0);
}

// The factor that clips comes from the block, on other ranks than the first as well.
TEST(PartitionTest, MicsTakesTheNormOfItsBlock) {
  const StepPlan plan = test::build(test::tiny_gpt2(), plain(mics(2)), 4, 3);
  const auto factors = every<op::ClipFactor>(plan);
  ASSERT_EQ(factors.size(), 1U);
  EXPECT_EQ(factors.front().among, (RankRange{2, 1, 2}));
  for (const auto& o : every<op::AllReduceAverage>(plan)) EXPECT_EQ(o.among, (RankRange{1, 2, 2}));
}

TEST(PartitionTest, HpzHoldsTheParametersOnceMore) {
  for (const int size : {2, 4}) {
    const StepPlan without = test::build(test::tiny_gpt2(), plain(test::tiny_config(3)), 4);
    const StepPlan with = test::build(test::tiny_gpt2(), plain(hpz(size)), 4);
    const auto parameters = [](const StepPlan& plan) {
      std::int64_t elements = 0;
      for (const PlannedTensor& tensor : plan.tensors)
        if (tensor.persistent && tensor.category == Category::parameters)
          elements += tensor.elements;
      return elements;
    };
    const std::int64_t shards = parameters(without);
    EXPECT_EQ(parameters(with), shards + shards * 4 / size);
  }
}

}  // namespace
}  // namespace dstune
