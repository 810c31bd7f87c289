/// Losses against an independent program's, in double precision.

#include "golden.hpp"

#include <string_view>

#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;
using test::largest_difference;

/// docs/inside/reference-step.md, section 7.
constexpr double fp16_tolerance = 1e-4;

struct Case {
  const char* model;
  int stage;
  int steps = 20;
};

class GoldenTest : public test::TrainingTest, public testing::WithParamInterface<Case> {
 protected:
  /// One of the families that stand for the others, with AdamW.
  [[nodiscard]] static bool is_whole_family() {
    const std::string_view name = GetParam().model;
    return name == "gpt2" || name == "llama" || name == "bert";
  }
  [[nodiscard]] double difference(Precision precision, std::int64_t accumulation_steps) const {
    const Golden golden(GetParam().model);
    TrainingConfig config = golden.on(job().size(), GetParam().stage, accumulation_steps);
    config.precision = precision;
    // A rank's part of a batch may be one target, whose gradient is 1: no scale above fits 16 bits.
    config.loss_scale.initial_power = 12;
    return difference(golden, config);
  }

  [[nodiscard]] static double difference(const Golden& golden, const TrainingConfig& config) {
    const std::vector<double> expected(golden.losses.begin(),
                                       golden.losses.begin() + GetParam().steps);
    return largest_difference(train(golden.model, config, GetParam().steps, golden.seed), expected);
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

// docs/inside/reference-step.md, section 7, states this tolerance.
TEST_P(GoldenTest, LossesInBf16AreWithinTheTolerance) {
  EXPECT_LT(difference(Precision::bf16, 3), 1e-3);
}

// Likewise. At this scale nothing overflows here.
TEST_P(GoldenTest, LossesInFp16AreWithinTheTolerance) {
  EXPECT_LT(difference(Precision::fp16, 3), fp16_tolerance);
}

// Of one micro-step and of several; the key changes where sums are rounded, not what is trained.
TEST_P(GoldenTest, SumsOfGradientsInFp32AreWithinTheTolerance) {
  const Golden golden(GetParam().model);
  if (!is_whole_family()) GTEST_SKIP() << "of one more family or optimizer";
  if (GetParam().stage != 1 && GetParam().stage != 3) GTEST_SKIP() << "they stay in 16 bits";
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const bool immediately : {false, true}) {
      TrainingConfig config = golden.on(job().size(), GetParam().stage, 3);
      config.precision = precision;
      config.loss_scale.initial_power = 12;
      config.fp32_gradient_accumulation = true;
      config.immediate_grad_update = immediately && is_bf16_optimizer(config);
      EXPECT_LT(difference(golden, config), precision == Precision::bf16 ? 1e-3 : fp16_tolerance);
    }
  }
}

// Master weights and moments of 16 bits, on the device and on the host.
TEST_P(GoldenTest, StatesIn16BitsAreTheReferences) {
  if (GetParam().stage == 0 || std::string_view(GetParam().model) != "gpt2") GTEST_SKIP();
  const Golden golden("gpt2-bf16-states");
  for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
    TrainingConfig config = golden.on(job().size(), GetParam().stage, 3);
    config.precision = Precision::bf16;
    config.offload_optimizer = device;
    EXPECT_LT(difference(golden, config), 1e-3);
  }
}

// A scale so high that steps are skipped until it has fallen, and again after each raise: which
// ones and what that does to the losses is the reference program's, too. Where a batch is split,
// parts of it may overflow though the whole does not; so this is of one rank with one micro-step.
TEST_P(GoldenTest, SkipsTheUpdatesThatTheReferenceSkips) {
  if (job().size() > 1 || std::string_view(GetParam().model) != "gpt2") GTEST_SKIP();
  const Golden golden("gpt2-fp16");
  const TrainingConfig config = golden.on(1, GetParam().stage, 1);
  const Course result =
      course(golden.model, config, static_cast<int>(golden.losses.size()), golden.seed);
  EXPECT_GT(golden.skipped_steps.size(), 3U);
  EXPECT_EQ(result.skipped_steps, golden.skipped_steps);
  EXPECT_LT(largest_difference(result.losses, golden.losses), fp16_tolerance);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const char* model : {"gpt2", "llama", "bert"})
    for (const int stage : {0, 1, 2, 3}) result.push_back({model, stage});
  // The others are made of the same parts and others; stages change nothing about parts. A few
  // updates show a wrong gradient.
  constexpr int few = 6;
  for (const char* model : {"mistral", "qwen2", "qwen3", "phi3", "opt", "gpt_neox", "olmo2",
                            "smollm3", "granite", "gemma2", "gemma3_text", "falcon", "distilbert"})
    for (const int stage : {1, 3}) result.push_back({model, stage, few});
  // Optimizers beside AdamW.
  for (const char* name : {"gpt2-sgd", "bert-sgd", "llama-lion", "gpt2-adagrad"})
    for (const int stage : {0, 1, 3}) result.push_back({name, stage, few});
  for (const char* name : {"llama-lion-host", "gpt2-adagrad-host"})
    for (const int stage : {1, 2, 3}) result.push_back({name, stage, few});
  // Scaled rotations and windows; norms of their own for parallel branches.
  for (const char* model :
       {"llama_rope", "mistral_window", "qwen2_window", "phi3_longrope", "falcon_two_norms"})
    result.push_back({model, 2, few});
  // Other heads of encoders.
  for (const char* model : {"bert_sequence_class", "bert_token_class", "bert_spans",
                            "distilbert_sequence_class", "distilbert_spans"})
    for (const int stage : {1, 3}) result.push_back({model, stage, few});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(cases()), [](const auto& test_case) {
  std::string name = test_case.param.model;
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "_stage" + std::to_string(test_case.param.stage);
});

}  // namespace
}  // namespace dstune
