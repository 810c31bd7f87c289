/// Where states live must not change the losses.

#include <string>
#include <vector>

#include "golden.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;

constexpr int steps = 6;

struct Case {
  const char* model;
  int stage;
  Precision precision;
};

class OffloadTest : public test::TrainingTest, public testing::WithParamInterface<Case> {
 protected:
  [[nodiscard]] TrainingConfig config(std::int64_t accumulation_steps) const {
    TrainingConfig result = golden_.on(job().size(), GetParam().stage, accumulation_steps);
    result.precision = GetParam().precision;
    result.reduce_bucket_size = 20'000;
    return result;
  }
  [[nodiscard]] Course course_of(const TrainingConfig& config) const {
    return course(golden_.model, config, steps, golden_.seed);
  }
  /// In a group of one the gradients of all micro-steps are added up inside the kernels unless they
  /// leave the device after each.
  [[nodiscard]] bool adds_up_alike(const TrainingConfig& config) const {
    return job().size() > 1 || config.accumulation_steps == 1 || config.zero_stage == 1;
  }
  void expect_equal(const TrainingConfig& config) const {
    TrainingConfig offloaded = config;
    offloaded.offload_optimizer = OffloadDevice::cpu;
    const Course expected = course_of(config);
    const Course found = course_of(offloaded);
    EXPECT_EQ(found.skipped_steps, expected.skipped_steps);
    if (adds_up_alike(config)) {
      EXPECT_EQ(found.losses, expected.losses);
    } else {
      const double tolerance = config.precision == Precision::fp32 ? 1e-5 : 1e-3;
      EXPECT_LT(test::largest_difference(found.losses, expected.losses), tolerance);
    }
  }

  Golden golden_{GetParam().model};
};

TEST_P(OffloadTest, TheOptimizerOnTheHostChangesNoBit) {
  for (const std::int64_t accumulation_steps : {1, 3}) {
    SCOPED_TRACE(std::to_string(accumulation_steps) + " micro-steps");
    expect_equal(config(accumulation_steps));
  }
}

TEST_P(OffloadTest, NeitherWithClipping) {
  for (const double clipping : {0.0, 0.05}) {
    TrainingConfig variant = config(3);
    variant.gradient_clipping = clipping;
    SCOPED_TRACE(clipping);
    expect_equal(variant);
  }
}

TEST_P(OffloadTest, NeitherWithOverlapAndOtherWaysToReduce) {
  for (bool TrainingConfig::*member :
       {&TrainingConfig::overlap_comm, &TrainingConfig::reduce_scatter,
        &TrainingConfig::contiguous_gradients, &TrainingConfig::use_multi_rank_bucket_allreduce}) {
    TrainingConfig variant = config(3);
    variant.*member = !(variant.*member);
    expect_equal(variant);
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int stage : {1, 2, 3}) {
    result.push_back({"gpt2", stage, Precision::fp32});
    result.push_back({"gpt2", stage, Precision::bf16});
    result.push_back({"llama", stage, Precision::fp16});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadTest, testing::ValuesIn(cases()),
                         [](const auto& test_case) {
                           return std::string(test_case.param.model) + "_" +
                                  std::string(to_text(test_case.param.precision)) + "_stage" +
                                  std::to_string(test_case.param.stage);
                         });

}  // namespace
}  // namespace dstune
