#include <functional>

#include <gtest/gtest.h>

#include "dstune/predict/step_predictor.hpp"
#include "profiles.hpp"

namespace dstune {
namespace {

using test::build;
using test::formula_profile;
using test::formula_step_s;

double step_s(const StepPlan& plan, const DeviceProfile& profile) {
  OperationTimes times(profile, {plan.group_size, 1});
  return cycle_time(plan, times).step_s(plan.config.accumulation_steps);
}

/// The sum over all work of a kind in a cycle.
double sum_of(const StepPlan& plan, WorkKind kind, const std::function<double(const Work&)>& time) {
  double sum = 0;
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto work = work_of(plan, step.operation);
      if (work && work->kind == kind) sum += static_cast<double>(segment.repeat) * time(*work);
    }
  }
  return sum;
}

TEST(StepTimeTest, AddsUpWhatWasMeasured) {
  for (int stage = 0; stage <= 3; ++stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.accumulation_steps = 4;
    config.overlap_comm = true;
    const StepPlan plan = build(test::tiny_gpt2(), config, 2);
    // Streams in one thread hide nothing.
    EXPECT_NEAR(step_s(plan, formula_profile(test::tiny_gpt2(), {config}, {2, 1})),
                formula_step_s(plan), 1e-9)
        << stage;
  }
}

TEST(StepTimeTest, OtherSizesFollowFromTheMeasuredOnes) {
  const ModelSpec model = test::tiny_llama();
  TrainingConfig config = test::tiny_config(2);
  std::vector<TrainingConfig> known;
  for (const std::int64_t micro_batch : {1, 8}) {
    config.micro_batch = micro_batch;
    known.push_back(config);
  }
  config.micro_batch = 3;
  config.accumulation_steps = 5;
  known[1].accumulation_steps = 2;
  const StepPlan plan = build(model, config, 2);
  EXPECT_NEAR(step_s(plan, formula_profile(model, known, {2, 1})), formula_step_s(plan),
              1e-3 * formula_step_s(plan));
}

TEST(StepTimeTest, AProductAndWhatIsBesideItMayHaveBeenMeasuredApart) {
  Work activated{.kind = WorkKind::matmul_activation_forward};
  activated.set(WorkFlag::bias);
  activated.set(WorkFlag::gelu_tanh);
  Work gradients{.kind = WorkKind::matmul_bias_backward};
  gradients.set(WorkFlag::transpose_a);
  gradients.set(WorkFlag::accumulate);
  const auto curve = [](Work work, double seconds) {
    const std::int64_t size = work.size;
    work.size = 0;
    return TimeCurve{work, {{size, seconds}}};
  };
  for (Work fused : {activated, gradients}) {
    fused.width = 30;
    fused.depth = 20;
    fused.size = 10;
    const auto [product, other] = *parts_of(fused);
    DeviceProfile profile;
    profile.kernels = {curve(product, 5e-3), curve(other, 2e-3)};
    EXPECT_NEAR(OperationTimes(profile, {1, 1}).seconds(fused), 7e-3, 1e-9);
    profile.kernels.push_back(curve(fused, 6e-3));
    EXPECT_NEAR(OperationTimes(profile, {1, 1}).seconds(fused), 6e-3, 1e-9);
    fused.width *= 2;
    EXPECT_NEAR(OperationTimes(profile, {1, 1}).seconds(fused), 12e-3, 1e-9);
  }
}

// A part of a group is a group: what was measured of one of its shape holds.
TEST(StepTimeTest, CollectivesOverPartsTakeWhatGroupsOfTheirShapeTake) {
  const auto curve = [](double seconds_per_byte) {
    Work work{.kind = WorkKind::all_gather};
    return TimeCurve{
        work, {{1 << 10, seconds_per_byte * (1 << 10)}, {1 << 20, seconds_per_byte * (1 << 20)}}};
  };
  DeviceProfile profile;
  profile.groups = {
      {{1, 2}, 1, {curve(8e-9)}}, {{2, 1}, 1, {curve(1e-9)}}, {{2, 2}, 1, {curve(6e-9)}}};
  OperationTimes times(profile, {2, 2});
  Work work{.kind = WorkKind::all_gather};
  work.size = 1 << 20;
  EXPECT_NEAR(times.seconds(work), 6e-9 * (1 << 20), 1e-9);
  work.width = 2;
  work.depth = 1;  // neighbours on a node
  EXPECT_NEAR(times.seconds(work), 1e-9 * (1 << 20), 1e-9);
  work.depth = 2;  // one on each node
  EXPECT_NEAR(times.seconds(work), 8e-9 * (1 << 20), 1e-9);
  // Measured in the group itself.
  TimeCurve own = curve(2e-9);
  own.work.width = 2;
  own.work.depth = 1;
  profile.groups.back().collectives.push_back(own);
  OperationTimes with_own(profile, {2, 2});
  work.depth = 1;
  EXPECT_NEAR(with_own.seconds(work), 2e-9 * (1 << 20), 1e-9);
  // Neither: the group's own, of which less travels.
  profile.groups = {{{2, 2}, 1, {curve(6e-9)}}};
  OperationTimes of_group(profile, {2, 2});
  EXPECT_NEAR(of_group.seconds(work), 6e-9 * (1 << 20) * (1.0 / 2) / (3.0 / 4), 1e-9);
}

TEST(StepTimeTest, ConcurrentStreamsHideWhatOverlaps) {
  TrainingConfig config = test::tiny_config(2);
  const StepPlan plain = build(test::tiny_gpt2(), config, 2);
  config.overlap_comm = true;
  const StepPlan overlapped = build(test::tiny_gpt2(), config, 2);
  DeviceProfile profile =
      formula_profile(test::tiny_gpt2(), {test::tiny_config(2), config}, {2, 1});
  profile.concurrent_streams = true;
  const double without_s = step_s(plain, profile);
  const double with_s = step_s(overlapped, profile);
  EXPECT_NEAR(without_s, formula_step_s(plain), 1e-9);
  EXPECT_LT(with_s, without_s);

  profile.overlap_slowdown = 0.5;
  const double slowed_s = step_s(overlapped, profile);
  EXPECT_GT(slowed_s, with_s);
  EXPECT_LT(slowed_s, without_s);
}

TEST(StepTimeTest, TransfersHideBehindTheUpdateWhereverTheyMay) {
  // The rest of a machine whose streams do not run beside each other.
  TrainingConfig config = test::tiny_config(3);
  config.offload_optimizer = OffloadDevice::nvme;
  config.sub_group_size = 1;  // several on the disk
  config.disk.optimizer_buffers = 12;
  const StepPlan plain = build(test::wide_gpt2(), config, 2);
  const DeviceProfile profile = formula_profile(test::wide_gpt2(), {config}, {2, 1});
  config.disk.pipeline_read = config.disk.pipeline_write = true;
  const StepPlan pipelined = build(test::wide_gpt2(), config, 2);
  const double waits_s = step_s(plain, profile);
  const double hides_s = step_s(pipelined, profile);
  EXPECT_LT(hides_s, waits_s);
  const auto transfers_s = [](const StepPlan& plan) {
    return sum_of(plan, WorkKind::disk_read, test::formula_s) +
           sum_of(plan, WorkKind::disk_write, test::formula_s);
  };
  EXPECT_NEAR(transfers_s(pipelined), transfers_s(plain), 1e-9);
  EXPECT_GT(hides_s, waits_s - transfers_s(plain));
}

TEST(StepTimeTest, AppliesTheGroupsSlowdownAndTheConstant) {
  const TrainingConfig config = test::tiny_config(0);
  const StepPlan plan = build(test::tiny_gpt2(), config, 2);
  DeviceProfile profile = formula_profile(test::tiny_gpt2(), {config}, {2, 1}, 1.5);
  profile.step_constant_s = 2;
  EXPECT_NEAR(step_s(plan, profile), 1.5 * formula_step_s(plan) + 2, 1e-9);
}

TEST(StepTimeTest, AnUnmeasuredShapeTakesTheNearestOnesCollectives) {
  const TrainingConfig config = test::tiny_config(0);
  const ModelSpec model = test::tiny_gpt2();
  DeviceProfile profile = formula_profile(model, {config}, {2, 1});
  const DeviceProfile larger = formula_profile(model, {config}, {4, 1});
  profile.groups.push_back(larger.groups.at(0));
  const auto all_reduce_s = [&](int ranks) {
    OperationTimes times(profile, {ranks, 1});
    return sum_of(build(model, config, ranks), WorkKind::all_reduce,
                  [&](const Work& work) { return times.seconds(work); });
  };
  // (N − 1)/N of every byte travel.
  EXPECT_NEAR(all_reduce_s(8) / all_reduce_s(4), (7.0 / 8) / (3.0 / 4), 1e-9);
  EXPECT_NEAR(all_reduce_s(4), all_reduce_s(2), 1e-12);  // the formula's, measured both
}

TEST(StepTimeTest, WithoutAnyGroupCollectivesGoAtTheMemorysSpeed) {
  const TrainingConfig config = test::tiny_config(0);
  const ModelSpec model = test::tiny_gpt2();
  const DeviceProfile alone = formula_profile(model, {config}, {1, 1});
  OperationTimes times(alone, {2, 1});
  EXPECT_GT(sum_of(build(model, config, 2), WorkKind::all_reduce,
                   [&](const Work& work) { return times.seconds(work); }),
            0);
}

Experiment experiment_of(std::int64_t micro_batch, int stage = 1, std::int64_t accumulation = 0) {
  Experiment experiment;
  experiment.shape = {2, 1};
  experiment.config = test::tiny_config(stage);
  experiment.config.micro_batch = micro_batch;
  if (accumulation > 0) experiment.config.accumulation_steps = accumulation;
  return experiment;
}

class StepPredictorTest : public testing::Test {
 protected:
  /// check(predictor, experiment) of each stage, with several numbers of micro-steps.
  template <class Check>
  void for_each(const std::optional<DeviceProfile>& profile, Check&& check) const {
    for (int stage = 0; stage <= 3; ++stage) {
      StepPredictor predictor(model_, profile, workspaces_);
      for (const std::int64_t accumulation : {7, 1, 2, 3, 12})
        check(predictor, experiment_of(2, stage, accumulation));
    }
  }

  const ModelSpec model_ = test::tiny_gpt2();
  const test::SomeWorkspaces workspaces_;
  const DeviceProfile profile_ = formula_profile(model_, {test::tiny_config(1)}, {2, 1});
};

TEST_F(StepPredictorTest, LearnsFromWhatWasMeasured) {
  StepPredictor predictor(model_, profile_, workspaces_);
  const double before_s = predictor.predict(experiment_of(4));
  std::vector<double> model_s;
  for (const std::int64_t micro_batch : {1, 2, 3})
    model_s.push_back(predictor.predict(experiment_of(micro_batch)));
  for (const std::int64_t micro_batch : {1, 2, 3})
    predictor.observe(experiment_of(micro_batch),
                      1.2 * model_s[static_cast<std::size_t>(micro_batch) - 1]);
  EXPECT_NEAR(predictor.predict(experiment_of(4)) / before_s, 1.19, 0.03);
}

TEST_F(StepPredictorTest, FoldsMicroStepsAsThePlanDoes) {
  const DeviceProfile profile = formula_profile(model_, {test::tiny_config(1)}, {2, 1}, 1.5);
  OperationTimes times(profile, {2, 1});
  for_each(profile, [&](StepPredictor& predictor, const Experiment& experiment) {
    const CycleTime cycle = cycle_time(build(model_, experiment.config, 2), times);
    const double exact_s = cycle.step_s(experiment.config.accumulation_steps);
    EXPECT_NEAR(predictor.predict(experiment), exact_s, 1e-9 * exact_s);
  });
}

TEST_F(StepPredictorTest, CountsOverheadsAsThePlanDoes) {
  for_each(std::nullopt, [&](StepPredictor& predictor, const Experiment& experiment) {
    Overheads exact{};
    for (const Segment& segment : build(model_, experiment.config, 2).cycle)
      for (std::size_t each = 0; each < exact.size(); ++each)
        exact[each] += static_cast<double>(segment.repeat) * segment.overheads[each];
    EXPECT_EQ(predictor.overheads(experiment), exact) << experiment.config.zero_stage;
  });
}

TEST_F(StepPredictorTest, RatesOfTheOptimizerTakeNoTime) {
  StepPredictor predictor(model_, profile_, workspaces_);
  Experiment other = experiment_of(2);
  other.config.optimizer.learning_rate = 0.5;
  EXPECT_EQ(predictor.predict(other), predictor.predict(experiment_of(2)));
}

}  // namespace
}  // namespace dstune
