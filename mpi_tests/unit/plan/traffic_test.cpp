#include "traffic.hpp"

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

TEST_P(TrafficTest, Stage1ReducesOnceAndGathersTheParameters) {
  for (const bool overlap : {false, true}) {
    TrainingConfig stage1 = config(1);
    stage1.overlap_comm = overlap;
    const Traffic traffic = traffic_of(build(test::tiny_gpt2(), stage1, group_size()));
    EXPECT_EQ(traffic.all_reduce, parameters_);
    EXPECT_EQ(traffic.all_gather, round_up(parameters_, 2 * group_size()));
    stage1.use_multi_rank_bucket_allreduce = false;
    const Traffic owners = traffic_of(build(test::tiny_gpt2(), stage1, group_size()));
    EXPECT_EQ(owners.all_reduce, 0);
    EXPECT_EQ(owners.reduce, parameters_);
    stage1.reduce_scatter = false;
    EXPECT_EQ(traffic_of(build(test::tiny_gpt2(), stage1, group_size())).all_reduce, parameters_);
  }
}

TEST_P(TrafficTest, Stage2ReducesInEveryMicroStep) {
  const Traffic traffic = traffic_of(build(test::tiny_gpt2(), config(2), group_size()));
  EXPECT_EQ(traffic.all_reduce, accumulation() * parameters_);
  EXPECT_EQ(traffic.all_gather, round_up(parameters_, 2 * group_size()));
}

TEST_P(TrafficTest, Stage3GathersTwiceAndScattersInEveryMicroStep) {
  for (const bool tied : {true, false}) {
    const ModelSpec model = test::tiny_llama(tied);
    const ParameterTable table(model);
    std::int64_t once = 0;
    for (int unit = 0; unit < table.num_units(); ++unit)
      once += padded_elements(table, unit, group_size());
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
    stage3.reduce_scatter = false;
    EXPECT_EQ(traffic_of(build(model, stage3, group_size())).all_reduce, accumulation() * once);
    // What stays from forward to backward is gathered once.
    stage3.stage3_max_reuse_distance = 1'000'000'000;
    traffic = traffic_of(build(model, stage3, group_size()));
    EXPECT_EQ(traffic.all_gather, accumulation() * once);
    // What is kept is gathered by the update alone.
    stage3.stage3_param_persistence_threshold = 1'000'000;
    const StepPlan plan = build(model, stage3, group_size());
    EXPECT_EQ(traffic_of(plan).all_gather, once);
    EXPECT_EQ(traffic_of(plan.cycle.back().steps, group_size()).all_gather, once);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, TrafficTest,
                         testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 2, 3, 7)));

}  // namespace
}  // namespace dstune
