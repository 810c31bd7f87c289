/// Losses against an independent program's, in double precision.

#include "golden.hpp"

#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;
using test::largest_difference;

struct Case {
  const char* model;
  int stage;
};

class GoldenTest : public test::TrainingTest, public testing::WithParamInterface<Case> {
 protected:
  [[nodiscard]] double difference(Precision precision, std::int64_t accumulation_steps) const {
    const Golden golden(GetParam().model);
    TrainingConfig config = golden.on(job().size(), GetParam().stage, accumulation_steps);
    config.precision = precision;
    const int steps = static_cast<int>(golden.losses.size());
    return largest_difference(train(golden.model, config, steps, golden.seed), golden.losses);
  }
};

// So that any two ways to train differ by less than 1e-5. ReLU's slope jumps: what rounds to the
// other side of 0 changes a gradient, in PyTorch's fp32 as here.
TEST_P(GoldenTest, LossesInFp32AreDoublePrecisions) {
  const bool jumps = Golden(GetParam().model).model.architecture.activation == Activation::relu;
  const double tolerance = jumps ? 1e-5 : 2e-6;
  EXPECT_LT(difference(Precision::fp32, 3), tolerance);
  EXPECT_LT(difference(Precision::fp32, 1), tolerance);
}

// docs/reference-step.md, section 7, states this tolerance.
TEST_P(GoldenTest, LossesInBf16AreWithinTheTolerance) {
  EXPECT_LT(difference(Precision::bf16, 3), 1e-3);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const char* model : {"gpt2", "llama", "bert"})
    for (const int stage : {0, 1, 2, 3}) result.push_back({model, stage});
  // The others are made of the same parts and others; stages change nothing about parts.
  for (const char* model : {"mistral", "qwen2", "qwen3", "phi3", "opt", "gpt_neox"})
    for (const int stage : {1, 3}) result.push_back({model, stage});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(cases()), [](const auto& test_case) {
  return std::string(test_case.param.model) + "_stage" + std::to_string(test_case.param.stage);
});

}  // namespace
}  // namespace dstune
