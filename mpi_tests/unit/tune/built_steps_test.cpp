// Steps that stay built on a rank: each in memory of its own, one at a time with the device.
#include "worker/built_steps.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "thrown.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

/// A workload that holds so much of the arena in use, writes its number there, and finds it again.
class HoldingWorkload : public Workload {
 public:
  HoldingWorkload(Device& device, std::int64_t bytes, std::vector<std::string>& calls)
      : device_(device), bytes_(bytes), calls_(calls) {}
  ~HoldingWorkload() override {
    if (arena_ != nullptr) arena_->release(0);
  }
  [[nodiscard]] WorkloadTraits traits() const override { return {}; }
  void build() override {
    calls_.emplace_back("build");
    device_.arena().prepare(bytes_);
    device_.arena().acquire(0, bytes_, 0);
    arena_ = &device_.arena();
  }
  void initialize() override { *device_.arena().base() = std::byte(bytes_); }
  void resume(const Waiter&) override { calls_.emplace_back("resume"); }
  StepSample step(std::int64_t step) override {
    calls_.emplace_back("step " + std::to_string(step));
    EXPECT_EQ(*device_.arena().base(), std::byte(bytes_)) << "it has its own memory";
    return {};
  }
  [[nodiscard]] PeakMemory peak_memory() const override {
    PeakMemory peak;
    peak.total_bytes = device_.arena().account().high_water_bytes;
    return peak;
  }
  [[nodiscard]] double flops_per_step() const override { return 0; }

 private:
  Device& device_;
  std::int64_t bytes_;
  std::vector<std::string>& calls_;
  Arena* arena_ = nullptr;
};

class BuiltStepsTest : public testing::Test {
 protected:
  BuiltStep& add(const std::string& name, std::int64_t bytes) {
    BuiltStep& step = steps_.add(name, {}, group_);
    step.workload = std::make_unique<HoldingWorkload>(device_, bytes, calls_);
    return step;
  }
  /// A first run, of one step.
  BuiltStep& built(const std::string& name, std::int64_t bytes) {
    BuiltStep& step = add(name, bytes);
    RunOfBuilt run(steps_, step);
    run.build();
    run.initialize();
    run.step(0);
    step.steps = 1;
    return step;
  }

  CpuDevice device_{1000, 1};
  SelfGroup group_{0};
  std::vector<std::string> calls_;
  BuiltSteps steps_{device_};
};

TEST_F(BuiltStepsTest, EachHasMemoryOfItsOwn) {
  BuiltStep& one = built("one", 100);
  BuiltStep& other = built("other", 200);
  EXPECT_EQ(device_.budget().held_bytes(), 300);
  calls_.clear();

  RunOfBuilt first(steps_, one), second(steps_, other);
  first.step(1);
  first.step(2);
  second.step(1);
  first.step(3);

  EXPECT_THAT(calls_,
              ElementsAre("resume", "step 1", "step 2", "resume", "step 1", "resume", "step 3"));
  EXPECT_EQ(second.peak_memory().total_bytes, 200);
  EXPECT_EQ(first.peak_memory().total_bytes, 100);
}

TEST_F(BuiltStepsTest, TheNextRunTakesTheDeviceUpThoughNobodyElseHadIt) {
  BuiltStep& one = built("one", 100);
  calls_.clear();
  RunOfBuilt(steps_, one).step(1);
  EXPECT_THAT(calls_, ElementsAre("resume", "step 1")) << "its waits end with another attempt";
}

TEST_F(BuiltStepsTest, OthersHaveTheDeviceInBetween) {
  device_.arena().prepare(500);
  BuiltStep& one = built("one", 100);
  EXPECT_EQ(device_.budget().held_bytes(), 100) << "what earlier experiments left is given back";
  steps_.use(nullptr);
  EXPECT_EQ(device_.arena().capacity_bytes(), 0);
  device_.arena().prepare(50);
  device_.arena().acquire(0, 50, 0);
  RunOfBuilt(steps_, one).step(1);
  steps_.use(nullptr);
  device_.arena().release(0);
  steps_.drop_all();
  EXPECT_EQ(device_.budget().held_bytes(), 50);
}

TEST_F(BuiltStepsTest, WhatIsDroppedGivesItsMemoryBack) {
  built("one", 100);
  built("other", 200);
  ASSERT_NE(steps_.find("one", {}, {0}), nullptr);
  steps_.drop("one");
  EXPECT_EQ(steps_.find("one", {}, {0}), nullptr);
  EXPECT_EQ(device_.budget().held_bytes(), 200);
  EXPECT_EQ(steps_.used()->experiment, "other");
  steps_.drop("other");
  EXPECT_EQ(steps_.used(), nullptr);
  EXPECT_EQ(device_.budget().held_bytes(), 0);
}

TEST_F(BuiltStepsTest, OnlyTheSameConfigurationOnTheSameRanksIsFound) {
  built("one", 100);
  TrainingConfig other;
  other.micro_batch = 7;
  EXPECT_EQ(steps_.find("one", other, {0}), nullptr);
  EXPECT_EQ(steps_.find("one", {}, {1}), nullptr);
  EXPECT_EQ(steps_.find("two", {}, {0}), nullptr);
  add("two", 50);
  EXPECT_EQ(steps_.find("two", {}, {0}), nullptr) << "it has made no step";
}

TEST_F(BuiltStepsTest, WithoutMemoryForASecondTheFirstStays) {
  BuiltStep& one = built("one", 600);
  BuiltStep& other = add("other", 600);
  {
    RunOfBuilt run(steps_, other);
    EXPECT_THROW(run.build(), OutOfMemory);
  }
  steps_.drop("other");
  RunOfBuilt(steps_, one).step(1);
  EXPECT_EQ(device_.budget().held_bytes(), 600);
}

}  // namespace
}  // namespace dstune
