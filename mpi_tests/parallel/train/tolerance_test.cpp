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
  double least_difference;
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
    if (other.least_difference < tolerance) continue;
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

INSTANTIATE_TEST_SUITE_P(Precisions, ToleranceTest,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& test) { return std::string(to_text(test.param)); });

}  // namespace
}  // namespace dstune
