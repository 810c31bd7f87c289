/// Losses under what releases of DeepSpeed do otherwise: docs/inside/memory.md, "Releases of
/// DeepSpeed".

#include <vector>

#include "dstune/core/deepspeed_version.hpp"
#include "golden.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;
using test::tolerance_of;

constexpr int steps = 4;

class ReleaseTest : public test::TrainingTest {
 protected:
  [[nodiscard]] TrainingConfig config(int stage, Precision precision,
                                      const Version& version = {0, 19, 8}) const {
    TrainingConfig result = golden_.on(job().size(), stage, 3);
    result.precision = precision;
    result.loss_scale.initial_power = 12;
    result.reduce_bucket_size = 20'000;
    result.switches = switches_of(version);
    return result;
  }
  [[nodiscard]] Course run(const TrainingConfig& config) const {
    return course(golden_.model, config, steps, golden_.seed);
  }
  [[nodiscard]] static bool is_alone() { return job().size() == 1; }

  Golden golden_{"gpt2"};
};

constexpr Precision halves[] = {Precision::bf16, Precision::fp16};

TEST_F(ReleaseTest, Fp32SumsAtStage2AreNearThoseOfStage1) {
  for (const Precision precision : halves) {
    TrainingConfig first = config(1, precision);
    first.fp32_gradient_accumulation = true;
    const Course expected = run(first);
    for (const bool overlap : {false, true}) {
      TrainingConfig second = config(2, precision);
      second.fp32_gradient_accumulation = true;
      second.overlap_comm = overlap;
      const Course found = run(second);
      EXPECT_TRUE(are_near(found, expected, tolerance_of(precision))) << found << expected;
      // Sums of 16 bits are others.
      TrainingConfig rounded = second;
      rounded.fp32_gradient_accumulation = false;
      EXPECT_NE(run(rounded), found);
    }
  }
}

TEST_F(ReleaseTest, BucketsInFp32ChangeNoBitAtStage1) {
  TrainingConfig variant = config(1, Precision::fp16, {0, 19, 6});
  variant.fp32_gradient_accumulation = true;
  const Course expected = run(variant);
  variant.switches = switches_of({0, 19, 8});
  for (const std::int64_t bucket : {1, 5'000, 500'000'000}) {
    for (const bool contiguous : {true, false}) {
      for (const bool overlap : {false, true}) {
        variant.reduce_bucket_size = bucket;
        variant.contiguous_gradients = contiguous;
        variant.overlap_comm = overlap;
        const Course found = run(variant);
        // Alone, the older release rounds nothing.
        if (is_alone())
          EXPECT_TRUE(are_near(found, expected, tolerance_of(Precision::fp16)))
              << found << expected;
        else
          EXPECT_EQ(found, expected) << bucket << contiguous << overlap;
      }
    }
  }
}

TEST_F(ReleaseTest, Fp32SumsOfAnOffloadedOptimizerAreThoseOnTheDevice) {
  for (const Precision precision : halves) {
    for (const int stage : {1, 2}) {
      TrainingConfig variant = config(stage, precision);
      variant.fp32_gradient_accumulation = true;
      const Course expected = run(variant);
      variant.offload_optimizer = OffloadDevice::cpu;
      for (const bool overlap : {false, true}) {
        variant.overlap_comm = overlap;
        const Course found = run(variant);
        // Alone, nothing is rounded on the way where the optimizer is on the device.
        if (is_alone())
          EXPECT_TRUE(are_near(found, expected, tolerance_of(precision))) << found << expected;
        else
          EXPECT_EQ(found, expected) << "stage " << stage << ", overlap " << overlap;
      }
    }
  }
}

TEST_F(ReleaseTest, WhatIsCopiedOtherwiseChangesNoBit) {
  for (const Precision precision : halves) {
    for (const int stage : {1, 2, 3}) {
      for (const bool overlap : {false, true}) {
        TrainingConfig variant = config(stage, precision, {0, 16, 9});
        variant.offload_optimizer = OffloadDevice::cpu;
        variant.overlap_comm = overlap;
        variant.reduce_bucket_size = 5'000;
        variant.sub_group_size = 10'000;
        variant.offload_ratio = stage == 3 ? 0.5 : 1;
        const Course expected = run(variant);
        for (const Version& version : {Version{0, 18, 9}, Version{0, 19, 8}}) {
          variant.switches = switches_of(version);
          EXPECT_EQ(run(variant), expected) << "stage " << stage << ", overlap " << overlap;
        }
      }
    }
  }
}

TEST_F(ReleaseTest, Bf16OptimizerIsTheSameAtStage0AndWhateverItFrees) {
  TrainingConfig variant = config(1, Precision::bf16, {0, 19, 6});
  variant.fp32_gradient_accumulation = true;
  const Course expected = run(variant);
  variant.immediate_grad_update = true;
  EXPECT_EQ(run(variant), expected);
  variant.switches = switches_of({0, 19, 8});
  EXPECT_EQ(run(variant), expected);
  variant.zero_stage = 0;
  variant.switches = switches_of({0, 16, 9});
  EXPECT_EQ(run(variant), expected);
}

TEST_F(ReleaseTest, NeitherPaddingNorTheNormChangesABit) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    for (const int stage : {1, 2}) {
      TrainingConfig variant = config(stage, precision);
      variant.gradient_clipping = 0;
      const Course expected = run(variant);
      variant.computes_gradient_norm = false;
      EXPECT_EQ(run(variant), expected);
      variant.checks_overflow = false;
      EXPECT_EQ(run(variant), expected);
      variant.aligns_parameters = true;
      EXPECT_EQ(run(variant), expected);
      variant.round_robin_gradients = true;
      EXPECT_EQ(run(variant), expected);
    }
  }
}

}  // namespace
}  // namespace dstune
