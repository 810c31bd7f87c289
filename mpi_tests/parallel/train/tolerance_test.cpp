/// The tolerances that a GPU's losses are held to tell trainings that are the same from others.

#include <cmath>
#include <functional>
#include <vector>

#include "golden.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;
using test::tolerance_of;

class ToleranceTest : public test::TrainingTest, public testing::WithParamInterface<Precision> {
 protected:
  static constexpr int steps = 8;

  [[nodiscard]] Course losses(const std::function<void(TrainingConfig&)>& change) const {
    TrainingConfig config = golden_.on(job().size(), 2, 2);
    config.precision = GetParam();
    config.loss_scale.initial_power = 12;
    change(config);
    return processors_course(golden_.model, config, steps, golden_.seed);
  }

  Golden golden_{"gpt2"};
};

/// A training that differs in one thing, and how far off its losses are at least.
struct Other {
  const char* what;
  double min_difference;
  std::function<void(TrainingConfig&)> change;
};

TEST_P(ToleranceTest, TellsOtherTrainings) {
  const std::vector<Other> others{
      {"learning rate", 1.5e-3, [](auto& c) { c.optimizer.learning_rate *= 1.2; }},
      {"momentum", 3e-4, [](auto& c) { c.optimizer.beta1 = 0.8; }},
      {"clipping", 2e-5, [](auto& c) { c.gradient_clipping = 1e-3; }},
      {"decay", 1.1e-5, [](auto& c) { c.optimizer.weight_decay = 0; }},
      {"a micro-step less", 1.5e-3, [](auto& c) { --c.accumulation_steps; }},
  };
  const double tolerance = tolerance_of(GetParam());
  const Course expected = losses([](auto&) {});
  for (const Other& other : others) {
    if (other.min_difference < tolerance) continue;
    EXPECT_FALSE(are_near(losses(other.change), expected, tolerance)) << other.what;
  }
}

TEST_P(ToleranceTest, AcceptsAnotherWayToTheSame) {
  const Course expected = losses([](auto&) {});
  const Course found = losses([](auto& c) {
    c.zero_stage = 0;
    c.micro_batch *= c.accumulation_steps;
    c.accumulation_steps = 1;
  });
  EXPECT_NE(found, expected);
  EXPECT_TRUE(are_near(found, expected, tolerance_of(GetParam()))) << found << expected;
}

TEST_P(ToleranceTest, TellsWhatIsNoNumberAndOtherSkips) {
  const Course expected = losses([](auto&) {});
  Course found = expected;
  EXPECT_TRUE(are_near(found, expected, 0));
  found.losses.back() = NAN;
  EXPECT_FALSE(are_near(found, expected, tolerance_of(GetParam())));
  found = expected;
  found.skipped_steps.push_back(0);
  EXPECT_FALSE(are_near(found, expected, tolerance_of(GetParam())));
}

/// Whether each of the first updates is skipped, up to the first that is not, where gradients are
/// so many times as large.
class SkippedUpdatesTest : public test::TrainingTest {
 protected:
  static std::vector<bool> skips(const Golden& golden, TrainingConfig config, double times) {
    std::vector<bool> are_skipped;
    for (int step = 0; are_skipped.empty() || are_skipped.back(); ++step) {
      config.loss_scale.fixed = times * std::exp2(test::skipping.initial_power - step);
      CpuDevice device(256 << 20, 1);
      const StepPlan plan = plan_of(golden.model, config, device.kernels());
      const std::unique_ptr<ProcessGroup> group = job().join();
      Executor executor(plan, device, *group, test::skipping_seed(golden.seed));
      // Until then no update has changed a weight.
      executor.initialize();
      are_skipped.push_back(executor.step(step).skipped);
    }
    return are_skipped;
  }
};

// NCCL sums in an order of its own and rounds at every step: that moves a sum of four numbers in
// fp16 by less than a five-hundredth.
TEST_F(SkippedUpdatesTest, AreNoCloseCalls) {
  for (const char* const model : {"gpt2", "llama", "bert"}) {
    const Golden golden(model);
    for (const int stage : {0, 1, 2, 3}) {
      for (const std::int64_t accumulation_steps : {1, 2, 3}) {
        TrainingConfig config = golden.on(job().size(), stage, accumulation_steps);
        config.precision = Precision::fp16;
        SCOPED_TRACE(std::string(model) + ", stage " + std::to_string(stage) + ", " +
                     std::to_string(accumulation_steps) + " micro-steps");
        const std::vector<bool> expected = skips(golden, config, 1);
        EXPECT_GE(expected.size(), 3U) << "two are skipped";
        for (const double times : {0.99, 1.01}) EXPECT_EQ(skips(golden, config, times), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ToleranceTest,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& test) { return std::string(to_text(test.param)); });

}  // namespace
}  // namespace dstune
