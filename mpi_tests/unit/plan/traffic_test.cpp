#include "traffic.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using test::build;
using test::padded_elements;
using test::round_up;
using test::Traffic;
using test::traffic_of;

class TrafficTest : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  [[nodiscard]] int group_size() const { return std::get<0>(GetParam()); }
  [[nodiscard]] std::int64_t accumulation() const { return std::get<1>(GetParam()); }
  [[nodiscard]] TrainingConfig config(int stage) const {
    TrainingConfig result = test::tiny_config(stage);
    result.accumulation_steps = accumulation();
    return result;
  }
  const std::int64_t parameters_ = parameter_count(test::tiny_gpt2());
};

TEST_P(TrafficTest, Stage0ReducesEachGradientOnce) {
  const Traffic traffic = traffic_of(build(test::tiny_gpt2(), config(0), group_size()));
  EXPECT_EQ(traffic.all_reduce, parameters_);
  EXPECT_EQ(traffic.all_gather + traffic.reduce + traffic.reduce_scatter, 0);
}

TEST_P(TrafficTest, Stage3GathersTwiceAndScattersInEveryMicroStep) {
  for (const bool tied : {true, false}) {
    const ModelSpec model = test::tiny_llama(tied);
    const ParameterTable table(model);
    const std::int64_t once = padded_elements(table, group_size());
    TrainingConfig stage3 = config(3);
    stage3.stage3_param_persistence_threshold = 0;
    stage3.stage3_prefetch_bucket_size = 0;
    stage3.stage3_max_reuse_distance = 0;
    // Forward and backward; a tied table in the head, too.
    const std::int64_t table_elements = padded_elements(table, 0, group_size());
    Traffic traffic = traffic_of(build(model, stage3, group_size()));
    EXPECT_EQ(traffic.all_gather, accumulation() * 2 * (once + (tied ? table_elements : 0)));
    EXPECT_EQ(traffic.reduce_scatter, accumulation() * once);
    EXPECT_EQ(traffic.all_reduce, 0);
    // Only what fits into the buffer is all-reduced, and without the padding of shards.
    stage3.reduce_scatter = false;
    std::int64_t alone = 0, shared = 0;
    for (const Parameter& parameter : table.all())
      (parameter.elements() > stage3.reduce_bucket_size ? alone : shared) += parameter.elements();
    traffic = traffic_of(build(model, stage3, group_size()));
    EXPECT_EQ(traffic.all_reduce, accumulation() * shared);
    EXPECT_GE(traffic.reduce_scatter, accumulation() * alone);
    EXPECT_LT(traffic.reduce_scatter, accumulation() * (alone + 4 * group_size()));
    stage3.contiguous_gradients = false;
    traffic = traffic_of(build(model, stage3, group_size()));
    EXPECT_EQ(traffic.all_reduce, 0);
    EXPECT_EQ(traffic.reduce_scatter, accumulation() * once);
    // Parameters that stay from forward to backward are gathered once.
    stage3.stage3_max_reuse_distance = 1'000'000'000;
    traffic = traffic_of(build(model, stage3, group_size()));
    EXPECT_EQ(traffic.all_gather, accumulation() * once);
    // Kept parameters are gathered by the update alone.
    stage3.stage3_param_persistence_threshold = 1'000'000;
    const StepPlan plan = build(model, stage3, group_size());
    EXPECT_EQ(traffic_of(plan).all_gather, once);
    EXPECT_EQ(traffic_of(plan.cycle.back().steps, group_size()).all_gather, once);
  }
}

// Whatever stages 1 and 2 are told, they move P gradients a reduction and gather P parameters.
TEST_P(TrafficTest, FlagsOfStages1And2ChangeHowNotHowMuch) {
  for (int bits = 0; bits < 256; ++bits) {
    TrainingConfig flags = config(1 + (bits & 1));
    flags.overlap_comm = (bits & 2) != 0;
    flags.contiguous_gradients = (bits & 4) != 0;
    flags.reduce_scatter = (bits & 8) != 0;
    flags.use_multi_rank_bucket_allreduce = (bits & 16) != 0;
    flags.round_robin_gradients = (bits & 32) != 0;
    if ((bits & 64) != 0) flags.offload_optimizer = OffloadDevice::cpu;
    if ((bits & 128) != 0) flags.reduce_bucket_size = 500'000'000;
    const std::int64_t reductions = flags.zero_stage == 2 ? accumulation() : 1;
    const bool is_contiguous = flags.contiguous_gradients || is_optimizer_offloaded(flags);
    const bool to_owners =
        flags.reduce_scatter && is_contiguous && !flags.use_multi_rank_bucket_allreduce;
    const Traffic traffic = traffic_of(build(test::tiny_gpt2(), flags, group_size()));
    EXPECT_EQ(traffic.all_reduce, to_owners ? 0 : reductions * parameters_) << bits;
    EXPECT_EQ(traffic.reduce, to_owners ? reductions * parameters_ : 0) << bits;
    EXPECT_EQ(traffic.all_gather, round_up(parameters_, 2 * group_size())) << bits;
    EXPECT_EQ(traffic.reduce_scatter, 0) << bits;
  }
}

// Every rank takes part in the same collectives in the same order, or the group hangs.
TEST_P(TrafficTest, RanksCallAlike) {
  for (int bits = 0; bits < 64; ++bits) {
    TrainingConfig flags = config(bits & 3);
    flags.overlap_comm = (bits & 4) != 0;
    flags.use_multi_rank_bucket_allreduce = (bits & 8) != 0;
    flags.round_robin_gradients = (bits & 16) != 0;
    flags.reduce_scatter = (bits & 32) != 0;
    flags.stage3_use_all_reduce_for_fetch_params = flags.round_robin_gradients;
    const auto calls = [&](int rank) {
      std::vector<std::array<std::int64_t, 3>> result;
      for (const Segment& segment : build(test::tiny_llama(), flags, group_size(), rank).cycle) {
        for (const Step& step : segment.steps) {
          const auto kind = static_cast<std::int64_t>(step.operation.index());
          if (const auto call = collective_of(step.operation, group_size()))
            result.push_back({kind, call->count, call->root});
        }
      }
      return result;
    };
    for (int rank = 1; rank < group_size(); ++rank) EXPECT_EQ(calls(rank), calls(0)) << bits;
  }
}

// A block that is computed again is gathered again, unless it stayed.
TEST_P(TrafficTest, RecomputationGathersBlocksAgain) {
  TrainingConfig stage3 = config(3);
  stage3.stage3_param_persistence_threshold = 0;
  stage3.stage3_prefetch_bucket_size = 0;
  stage3.stage3_max_reuse_distance = 0;
  const std::int64_t twice = traffic_of(build(test::tiny_llama(), stage3, group_size())).all_gather;
  stage3.recompute = Recompute::block;
  const std::int64_t again = traffic_of(build(test::tiny_llama(), stage3, group_size())).all_gather;
  EXPECT_GT(again, twice);
  EXPECT_LE(again, twice * 3 / 2);
  stage3.stage3_max_reuse_distance = 1'000'000'000;
  EXPECT_EQ(traffic_of(build(test::tiny_llama(), stage3, group_size())).all_gather, twice / 2);
}

// The type changes, what is sent does not.
TEST_P(TrafficTest, AnotherTypeOfReductionsMovesTheSameElements) {
  for (int stage = 0; stage <= 3; ++stage) {
    TrainingConfig own = config(stage);
    TrainingConfig other = own;
    other.communication_data_type = CommunicationType::bf16;
    const StepPlan plan = build(test::tiny_gpt2(), other, group_size());
    const Traffic before = traffic_of(build(test::tiny_gpt2(), own, group_size()));
    const Traffic after = traffic_of(plan);
    EXPECT_EQ(before, after);
    for (const auto& all : test::every<op::AllReduceAverage>(plan))
      EXPECT_EQ(test::tensor_of(plan, all.data).dtype, DType::bf16);
    for (const auto& own_part : test::every<op::ReduceScatterAverage>(plan))
      EXPECT_EQ(test::tensor_of(plan, own_part.in).dtype, DType::bf16);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, TrafficTest,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 4)));

}  // namespace
}  // namespace dstune
