#include "dstune/train/executor.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "dstune/base/error.hpp"
#include "thread_group.hpp"

namespace dstune {
namespace {

using testing::Each;
using testing::ElementsAre;

/// A plan written by hand: a few persistent tensors of 4 floats one after the other.
class ExecutorTest : public testing::Test {
 protected:
  static constexpr std::int64_t elements = 4;

  TensorId tensor(bool persistent, std::int64_t place) {
    PlannedTensor planned{.name = "t"};
    planned.elements = elements;
    planned.padded_bytes = tensor_alignment_bytes;
    planned.offset_bytes = place * tensor_alignment_bytes;
    planned.persistent = persistent;
    plan_.tensors.push_back(planned);
    plan_.memory.arena_bytes =
        std::max(plan_.memory.arena_bytes, planned.offset_bytes + planned.padded_bytes);
    return static_cast<TensorId>(plan_.tensors.size()) - 1;
  }
  static Step fill(TensorId tensor, float value) {
    return {Stream::compute, op::Fill{{tensor}, value, elements}};
  }
  static Step add(TensorId y, TensorId x) { return {Stream::compute, op::Add{{y}, {x}, elements}}; }
  void cycle(Segment::Kind kind, std::int64_t repeat, std::vector<Step> steps) {
    plan_.cycle.push_back({kind, repeat, std::move(steps)});
  }
  static std::vector<float> values(const Executor& executor, TensorId tensor) {
    const auto* begin = static_cast<const float*>(executor.address(tensor));
    return {begin, begin + elements};
  }
  /// An executor of the plan, initialized.
  Executor& start(Guard guard = Guard::none) {
    executor_.emplace(plan_, device_, group_, 0, guard);
    executor_->initialize();
    return *executor_;
  }
  void SetUp() override {
    plan_.config.micro_batch = 1;
    plan_.config.sequence_length = 1;
    plan_.model.vocab_size = 3;
  }

  StepPlan plan_;
  CpuDevice device_{1 << 20, 1};
  test::Rendezvous rendezvous_{1};
  test::ThreadGroup group_{rendezvous_, 0, 1};
  std::optional<Executor> executor_;
};

TEST_F(ExecutorTest, RepeatsTheMiddleMicroStep) {
  const TensorId sum = tensor(true, 0);
  const TensorId one = tensor(true, 1);
  plan_.initialize = {fill(sum, 0), fill(one, 1)};
  cycle(Segment::Kind::first_micro, 1, {add(sum, one)});
  cycle(Segment::Kind::middle_micro, 3, {add(sum, one)});
  cycle(Segment::Kind::last_micro, 1, {add(sum, one)});
  cycle(Segment::Kind::update, 1, {add(sum, sum)});
  Executor& executor = start();
  executor.step(0);
  EXPECT_THAT(values(executor, sum), Each(10.0F));
  executor.step(1);
  EXPECT_THAT(values(executor, sum), Each(30.0F));
}

TEST_F(ExecutorTest, TheArenasAccountSeesOneWholeCycle) {
  const TensorId kept = tensor(true, 0);
  const TensorId first = tensor(false, 1);
  const TensorId second = tensor(false, 2);
  plan_.tensors[static_cast<std::size_t>(first)].category = Category::gathered;
  plan_.tensors[static_cast<std::size_t>(second)].category = Category::gathered;
  plan_.initialize = {fill(kept, 0)};
  cycle(Segment::Kind::only_micro, 1,
        {{Stream::compute, op::Acquire{first}}, {Stream::compute, op::Release{first}}});
  cycle(Segment::Kind::update, 1,
        {{Stream::compute, op::Acquire{second}}, {Stream::compute, op::Release{second}}});
  Executor& executor = start();
  EXPECT_EQ(device_.arena().account().high_water_bytes, 256);
  executor.step(0);
  const Arena::Account& account = device_.arena().account();
  EXPECT_EQ(account.high_water_bytes, plan_.memory.arena_bytes);
  EXPECT_EQ(account.peak_live_bytes, 512);
  EXPECT_EQ(account.categories_at_peak[static_cast<std::size_t>(Category::gathered)], 256);
}

TEST_F(ExecutorTest, GivesBackWhatItHeldHoweverItEnds) {
  const TensorId lost = tensor(false, 0);
  tensor(true, 1);
  cycle(Segment::Kind::only_micro, 1,
        {{Stream::compute, op::Acquire{lost}}, {Stream::compute, op::Acquire{lost}}});
  {
    Executor executor(plan_, device_, group_, 0);
    executor.initialize();
    EXPECT_THROW(executor.step(0), LogicError);
  }
  EXPECT_NO_THROW(Executor(plan_, device_, group_, 0));
  EXPECT_NO_THROW(device_.arena().prepare(1024));
}

TEST_F(ExecutorTest, SurvivesAnArenaThatWasLeaked) {
  tensor(true, 0);
  {
    Executor executor(plan_, device_, group_, 0);
    device_.arena().leak();
  }
  EXPECT_NO_THROW(Executor(plan_, device_, group_, 0));
}

TEST_F(ExecutorTest, RedZonesShowWhatIsWrittenBeyondATensor) {
  const TensorId kept = tensor(true, 0);
  const TensorId passing = tensor(false, 1);
  plan_.tensors[static_cast<std::size_t>(passing)].name = "passing";
  plan_.tensors[static_cast<std::size_t>(passing)].layer = 3;
  Step beyond = fill(passing, 1);
  std::get<op::Fill>(beyond.operation).count = elements + 1;
  plan_.initialize = {fill(kept, 0)};
  cycle(Segment::Kind::only_micro, 1,
        {{Stream::compute, op::Acquire{passing}},
         fill(passing, 1),
         {Stream::compute, op::Release{passing}}});
  for (const bool is_damaged : {false, true}) {
    if (is_damaged) plan_.cycle[0].steps[1] = beyond;
    Executor executor(plan_, device_, group_, 0, Guard::red_zones);
    executor.initialize();
    for (int step = 0; step < 3; ++step) executor.step(step);
    EXPECT_EQ(device_.arena().account().high_water_bytes, plan_.memory.arena_bytes);
    if (is_damaged) {
      EXPECT_THAT(executor.damage(), testing::Contains("passing of layer 3"));
    } else {
      EXPECT_THAT(executor.damage(), testing::IsEmpty());
    }
  }
  Executor executor(plan_, device_, group_, 0, Guard::red_zones);
  auto* const bytes = static_cast<std::byte*>(executor.address(kept));
  bytes[2 * tensor_alignment_bytes - 1] = std::byte{0};
  EXPECT_THAT(executor.damage(), ElementsAre("t"));
}

TEST_F(ExecutorTest, WithRedZonesReadsOfWhatIsNotThereAreNoNumbers) {
  const TensorId sum = tensor(true, 0);
  const TensorId passing = tensor(false, 1);
  plan_.initialize = {fill(sum, 0)};
  const Step acquire{Stream::compute, op::Acquire{passing}};
  const Step release{Stream::compute, op::Release{passing}};
  for (const std::vector<Step>& steps :
       {std::vector<Step>{acquire, add(sum, passing), release},
        std::vector<Step>{acquire, fill(passing, 1), release, add(sum, passing)}}) {
    plan_.cycle = {{Segment::Kind::only_micro, 1, steps}};
    Executor& executor = start(Guard::red_zones);
    executor.step(0);
    EXPECT_THAT(values(executor, sum), Each(testing::IsNan()));
  }
}

TEST_F(ExecutorTest, APlanBeyondTheBudgetIsOutOfMemory) {
  tensor(true, 1 << 20);
  EXPECT_THROW(Executor(plan_, device_, group_, 0), OutOfMemory);
}

TEST_F(ExecutorTest, CopiesBetweenTwoMemories) {
  const TensorId here = tensor(true, 0);
  const TensorId there = tensor(true, 0);  // the same place in the other arena
  plan_.tensors[static_cast<std::size_t>(there)].memory = Memory::host;
  plan_.host_memory.arena_bytes = tensor_alignment_bytes;
  plan_.initialize = {fill(here, 3), {Stream::compute, op::Copy{{there}, {here}, elements}}};
  cycle(Segment::Kind::only_micro, 1, {fill(here, 5)});
  Executor& executor = start();
  executor.step(0);
  EXPECT_THAT(values(executor, here), Each(5.0F));
  EXPECT_THAT(values(executor, there), Each(3.0F));
  EXPECT_EQ(device_.host_arena().account().high_water_bytes, tensor_alignment_bytes);
}

TEST_F(ExecutorTest, WhatTheHostDoesNotHoldIsOutOfMemoryAndTheDeviceIsFreeAgain) {
  tensor(true, 0);
  plan_.host_memory.arena_bytes = 4096;
  device_.host_budget().set_limit_bytes(4095);
  EXPECT_THROW(Executor(plan_, device_, group_, 0), OutOfMemory);
  device_.host_budget().set_limit_bytes(4096);
  EXPECT_NO_THROW(Executor(plan_, device_, group_, 0));
}

TEST_F(ExecutorTest, RefusesThePlanOfAnotherRank) {
  plan_.group_size = 2;
  EXPECT_THROW(Executor(plan_, device_, group_, 0), LogicError);
}

/// One parameter with the gradient 3 in each of its 4 elements, whose norm is 6.
class ExecutorUpdateTest : public ExecutorTest {
 protected:
  void SetUp() override {
    ExecutorTest::SetUp();
    parameter_ = tensor(true, 0);
    gradient_ = tensor(true, 1);
    m_ = tensor(true, 2);
    v_ = tensor(true, 3);
    plan_.initialize = {fill(parameter_, 1), fill(gradient_, 3), fill(m_, 0), fill(v_, 0)};
    plan_.config.optimizer = {OptimizerKind::adamw, 0.5, 0.9, 0.99, 0, 0};
  }
  void clip(double limit) {
    cycle(Segment::Kind::update, 1,
          {{Stream::compute, op::AccumulateSquares{{gradient_}, elements}},
           {Stream::compute, op::ClipFactor{limit, true}},
           {Stream::compute,
            op::UpdateParameters{{parameter_}, {m_}, {v_}, {gradient_}, {}, elements}}});
  }
  TensorId parameter_{}, gradient_{}, m_{}, v_{};
};

TEST_F(ExecutorUpdateTest, ClipsAsDeepSpeed) {
  clip(2);
  Executor& executor = start();
  const StepOutcome outcome = executor.step(0);
  EXPECT_DOUBLE_EQ(outcome.gradient_norm, 6.0);
  EXPECT_THAT(values(executor, m_), Each(testing::FloatNear(0.1F * 3 * 2 / 6, 1e-6F)));
}

TEST_F(ExecutorUpdateTest, LeavesSmallGradientsAsTheyAre) {
  clip(6.1);
  Executor& executor = start();
  executor.step(0);
  EXPECT_THAT(values(executor, m_), Each(testing::FloatNear(0.3F, 1e-7F)));
}

TEST_F(ExecutorUpdateTest, BiasCorrectionCountsUpdates) {
  clip(100);
  Executor& executor = start();
  // A gradient that never changes makes corrected moments of its own size, so steps of the rate.
  for (const std::int64_t step : {6, 7, 20}) executor.step(step);
  EXPECT_THAT(values(executor, parameter_), Each(testing::FloatNear(1 - 3 * 0.5F, 1e-5F)));
  executor.initialize();
  executor.step(0);
  EXPECT_THAT(values(executor, parameter_), Each(testing::FloatNear(0.5F, 1e-5F)));
}

/// The same in fp16, with gradients that a test sets: those of a loss times the loss scale.
class ExecutorLossScaleTest : public ExecutorUpdateTest {
 protected:
  void SetUp() override {
    ExecutorUpdateTest::SetUp();
    plan_.config.precision = Precision::fp16;
    plan_.config.zero_stage = 1;
    plan_.config.loss_scale.hysteresis = 1;
    plan_.config.loss_scale.initial_power = 3;
    cycle(Segment::Kind::update, 1,
          {{Stream::compute, op::AccumulateSquares{{gradient_}, elements}},
           {Stream::compute, op::CheckOverflow{true}}});
    cycle(Segment::Kind::guarded_update, 1,
          {{Stream::compute, op::ClipFactor{2, false}},
           {Stream::compute,
            op::UpdateParameters{{parameter_}, {m_}, {v_}, {gradient_}, {}, elements}}});
  }
  /// A step with these gradients before the scale.
  StepOutcome step(Executor& executor, std::vector<float> gradients) {
    auto* to = static_cast<float*>(executor.address(gradient_));
    for (std::size_t i = 0; i < gradients.size(); ++i)
      to[i] = gradients[i] * static_cast<float>(scale_);
    const StepOutcome outcome = executor.step(step_++);
    EXPECT_EQ(outcome.loss_scale, scale_);
    return outcome;
  }

  double scale_ = 8;
  std::int64_t step_ = 0;
};

TEST_F(ExecutorLossScaleTest, TakesTheScaleOutAgainAndClipsWhatIsLeft) {
  Executor& executor = start();
  const StepOutcome outcome = step(executor, {3, 3, 3, 3});
  EXPECT_FALSE(outcome.skipped);
  EXPECT_DOUBLE_EQ(outcome.gradient_norm, 6.0);
  EXPECT_THAT(values(executor, m_), Each(testing::FloatNear(0.1F * 3 * 2 / 6, 1e-6F)));
}

TEST_F(ExecutorLossScaleTest, AnOverflowLeavesTheUpdateOutAndHalvesTheScale) {
  Executor& executor = start();
  for (const float broken : {INFINITY, -INFINITY, NAN}) {
    const StepOutcome outcome = step(executor, {3, broken, 3, 3});
    EXPECT_TRUE(outcome.skipped);
    EXPECT_FALSE(outcome.scale_exhausted);
    EXPECT_EQ(outcome.gradient_norm, 0);
    EXPECT_THAT(values(executor, parameter_), Each(1.0F));
    EXPECT_THAT(values(executor, m_), Each(0.0F));
    scale_ /= 2;
  }
  // The first update that is made is number one, whatever the step's number.
  EXPECT_FALSE(step(executor, {1, 1, 1, 1}).skipped);
  EXPECT_THAT(values(executor, parameter_), Each(testing::FloatNear(0.5F, 1e-5F)));
}

TEST_F(ExecutorLossScaleTest, TheLowestScaleEndsTheTraining) {
  Executor& executor = start();
  for (; scale_ > 1; scale_ /= 2) EXPECT_FALSE(step(executor, {INFINITY, 1, 1, 1}).scale_exhausted);
  EXPECT_TRUE(step(executor, {INFINITY, 1, 1, 1}).scale_exhausted);
}

TEST_F(ExecutorLossScaleTest, TheStepThatRaisesTheScaleDividesByTheRaisedOne) {
  plan_.config.loss_scale.window = 1;
  Executor& executor = start();
  step(executor, {0, 0, 0, 0});
  const StepOutcome outcome = step(executor, {1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(outcome.gradient_norm, 1.0);
  EXPECT_THAT(values(executor, m_), Each(testing::FloatNear(0.1F * 0.5F, 1e-7F)));
}

TEST_F(ExecutorLossScaleTest, BeginsAnewWithATraining) {
  Executor& executor = start();
  step(executor, {INFINITY, 1, 1, 1});
  executor.initialize();
  step(executor, {1, 1, 1, 1});
}

TEST_F(ExecutorTest, ASkippedCycleDoesNotCloseTheAccount) {
  const TensorId gradient = tensor(true, 0);
  const TensorId late = tensor(false, 1);
  plan_.config.precision = Precision::fp16;
  plan_.initialize = {fill(gradient, INFINITY)};
  cycle(Segment::Kind::update, 1,
        {{Stream::compute, op::AccumulateSquares{{gradient}, elements}},
         {Stream::compute, op::CheckOverflow{false}}});
  cycle(Segment::Kind::guarded_update, 1,
        {{Stream::compute, op::Acquire{late}}, {Stream::compute, op::Release{late}}});
  Executor& executor = start();
  EXPECT_TRUE(executor.step(0).skipped);
  EXPECT_EQ(device_.arena().account().high_water_bytes, 256);
  auto* begin = static_cast<float*>(executor.address(gradient));
  std::fill(begin, begin + elements, 1.0F);
  EXPECT_FALSE(executor.step(1).skipped);
  EXPECT_EQ(device_.arena().account().high_water_bytes, plan_.memory.arena_bytes);
}

TEST_F(ExecutorTest, TheStepsLossIsTheMeanOverTheGlobalBatch) {
  const TensorId losses = tensor(true, 0);
  plan_.initialize = {fill(losses, 2)};
  const Step accumulate{Stream::compute, op::AccumulateLoss{{losses}, elements}};
  cycle(Segment::Kind::first_micro, 1, {accumulate});
  cycle(Segment::Kind::last_micro, 1, {accumulate});
  cycle(Segment::Kind::update, 1, {{Stream::compute, op::FinishLoss{32}}});
  Executor& executor = start();
  EXPECT_DOUBLE_EQ(executor.step(0).loss, 0.5);
  EXPECT_DOUBLE_EQ(executor.step(1).loss, 0.5);
}

TEST_F(ExecutorTest, MarksDivideTheStepsTime) {
  cycle(Segment::Kind::only_micro, 1, {{Stream::compute, op::Mark{Phase::backward}}});
  cycle(Segment::Kind::update, 1, {{Stream::compute, op::Mark{Phase::update}}});
  Executor executor(plan_, device_, group_, 0);
  const StepOutcome outcome = executor.step(0);
  for (double phase_s : outcome.phase_s) {
    EXPECT_GT(phase_s, 0);
    EXPECT_LT(phase_s, 1);
  }
}

}  // namespace
}  // namespace dstune
