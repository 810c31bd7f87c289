#include "own_step/warm_work.hpp"

#include <gtest/gtest.h>

#include "dstune/device/device.hpp"
#include "dstune/train/executor.hpp"

namespace dstune {
namespace {

class WarmWorkTest : public testing::Test {
 protected:
  WarmWorkTest() {
    model_.hidden_size = 16;
    model_.num_layers = 1;
    model_.num_heads = model_.num_kv_heads = 2;
    model_.head_size = 8;
    model_.intermediate_size = 64;
    model_.vocab_size = 11;
    model_.max_positions = 8;
    config_.sequence_length = 8;
  }

  [[nodiscard]] StepPlan plan(const TrainingConfig& config) const {
    return build_step_plan(model_, config, 2, 0, CpuWorkspaces(device_.kernels()));
  }
  /// The same configuration with something changed.
  template <class Change>
  [[nodiscard]] StepPlan changed(const Change& change) const {
    TrainingConfig config = config_;
    change(config);
    return plan(config);
  }

  CpuDevice device_{1 << 20, 1};
  ModelSpec model_;
  TrainingConfig config_;
};

TEST_F(WarmWorkTest, HoldsWhatHasRun) {
  WarmWork warm;
  EXPECT_FALSE(warm.holds(plan(config_)));
  warm.add(plan(config_));
  EXPECT_TRUE(warm.holds(plan(config_)));
  EXPECT_TRUE(warm.holds(changed([](auto& config) { config.optimizer.learning_rate = 1; })));
}

TEST_F(WarmWorkTest, OtherShapesAndTypesAreNew) {
  WarmWork warm;
  warm.add(plan(config_));
  EXPECT_FALSE(warm.holds(changed([](auto& config) { config.micro_batch = 2; })));
  EXPECT_FALSE(warm.holds(changed([](auto& config) { config.precision = Precision::bf16; })));
  EXPECT_FALSE(warm.holds(changed([](auto& config) { config.accumulation_steps = 2; })))
      << "gradients are added to what is there";
  EXPECT_FALSE(warm.holds(changed([](auto& config) { config.zero_stage = 3; }))) << "gathers";
}

TEST_F(WarmWorkTest, OperationsMayHaveRunInSeveralPlans) {
  WarmWork warm;
  const StepPlan other = changed([](auto& config) { config.zero_stage = 2; });
  warm.add(other);
  warm.add(changed([](auto& config) { config.micro_batch = 2; }));
  EXPECT_TRUE(warm.holds(other));
}

}  // namespace
}  // namespace dstune
