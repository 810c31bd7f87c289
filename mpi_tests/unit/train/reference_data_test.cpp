#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <gmock/gmock.h>

#include "dstune/kernels/kernels.hpp"
#include "dstune/train/executor.hpp"
#include "executor/step_inputs.hpp"

namespace dstune {
namespace {

TEST(ReferenceTokenTest, IsTheDocumentedFormula) {
  EXPECT_EQ(kernels::counter_hash(0, 0, 0), 0xE220A8397B1DCDAFU);
  for (const std::int64_t vocabulary : {1LL, 257LL, 50257LL, 2147483647LL}) {
    for (std::int64_t position = 0; position < 200; ++position) {
      const auto index = (std::uint64_t{5} << 32) + static_cast<std::uint64_t>(position);
      const auto stream = (std::uint64_t{1} << 32) + 3;
      const auto u = static_cast<long double>(kernels::counter_hash(7, stream, index) >> 43);
      // 73 bits: exact in a long double's 64 only as this quotient of exact factors.
      const long double share = u * u / 4398046511104.0L;
      const auto token = reference_token(7, 3, 5, position, vocabulary);
      EXPECT_NEAR(static_cast<double>(token),
                  static_cast<double>(share * static_cast<long double>(vocabulary)), 1.0);
      EXPECT_LE(static_cast<long double>(token), share * static_cast<long double>(vocabulary));
      EXPECT_LT(token, vocabulary);
      EXPECT_GE(token, 0);
    }
  }
}

// From scripts/tools/reference_step.py: tokens_of_step(7, 3, 2, 5, 50257).
TEST(ReferenceTokenTest, AgreesWithTheScript) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t sample = 0; sample < 2; ++sample) {
    for (std::int64_t position = 0; position < 6; ++position)
      tokens.push_back(reference_token(7, 3, sample, position, 50257));
  }
  EXPECT_THAT(tokens, testing::ElementsAreArray({29281, 39763, 5321, 16192, 10533, 19685, 34666,
                                                 173, 697, 49329, 6240, 32527}));
}

TEST(ReferenceTokenTest, SmallNumbersAreMoreFrequent) {
  int below_a_quarter = 0;
  for (std::int64_t position = 0; position < 10000; ++position)
    below_a_quarter += reference_token(0, 0, 0, position, 1000) < 250 ? 1 : 0;
  EXPECT_NEAR(below_a_quarter, 5000, 200);
}

TEST(ReferenceMaskTest, HasOnePositionInEachPart) {
  for (const std::int64_t length : {7, 20, 128, 511}) {
    const std::int64_t count = std::max<std::int64_t>(1, length * 15 / 100);
    for (std::int64_t sample = 0; sample < 30; ++sample) {
      for (std::int64_t number = 0; number < count; ++number) {
        const std::int64_t position =
            reference_masked_position(3, 2, sample, number, count, length);
        EXPECT_GE(position, number * length / count);
        EXPECT_LT(position, (number + 1) * length / count);
      }
    }
  }
}

// From scripts/tools/reference_step.py: masked_positions(7, 3, 2, 20).
TEST(ReferenceMaskTest, AgreesWithTheScript) {
  std::vector<std::int64_t> positions;
  for (std::int64_t sample = 0; sample < 2; ++sample)
    for (std::int64_t number = 0; number < 3; ++number)
      positions.push_back(reference_masked_position(7, 3, sample, number, 3, 20));
  EXPECT_THAT(positions, testing::ElementsAreArray({1, 6, 13, 1, 7, 15}));
}

// From scripts/tools/reference_step.py: labels_of_step(7, 3, 2, 4, 1000).
TEST(ReferenceLabelTest, AgreesWithTheScript) {
  std::vector<std::int32_t> labels;
  for (std::int64_t sample = 0; sample < 2; ++sample)
    for (std::int64_t number = 0; number < 4; ++number)
      labels.push_back(reference_label(7, 3, sample, number, 1000));
  EXPECT_THAT(labels, testing::ElementsAreArray({815, 640, 932, 410, 63, 944, 165, 935}));
}

StepPlan plan_of(int group_size, int group_rank, std::int64_t micro_batch) {
  StepPlan plan;
  plan.group_size = group_size;
  plan.group_rank = group_rank;
  plan.config.micro_batch = micro_batch;
  plan.config.sequence_length = 5;
  plan.model.vocab_size = 999;
  return plan;
}

/// A micro-batch with its tokens.
class Batch {
 public:
  Batch(const StepPlan& plan, std::uint64_t seed, std::int64_t step, std::int64_t micro_step) {
    const train::MicroBatch batch(plan, seed);
    tokens.resize(static_cast<std::size_t>(batch.rows()));
    targets.resize(tokens.size());
    batch.fill(step, micro_step, {tokens.data(), targets.data()});
  }
  std::vector<std::int32_t> tokens, targets;
};

TEST(MicroBatchTest, RanksAndMicroStepsShareTheGlobalBatch) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t micro_step = 0; micro_step < 2; ++micro_step) {
    for (int rank = 0; rank < 3; ++rank) {
      const Batch batch(plan_of(3, rank, 2), 4, 9, micro_step);
      tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
    }
  }
  EXPECT_EQ(tokens.size(), 60U);
  EXPECT_EQ(tokens, Batch(plan_of(1, 0, 12), 4, 9, 0).tokens);
}

TEST(MicroBatchTest, TargetsAreTheNextTokens) {
  const Batch batch(plan_of(2, 1, 1), 0, 0, 1);
  for (std::size_t position = 0; position < 4; ++position)
    EXPECT_EQ(batch.targets[position], batch.tokens[position + 1]);
  EXPECT_EQ(batch.targets[4], reference_token(0, 0, 3, 5, 999));
}

TEST(MicroBatchTest, MaskedTokensAreTheLastNumberAndAloneHaveTargets) {
  StepPlan plan = plan_of(1, 0, 3);
  plan.config.sequence_length = 20;
  const Batch plain(plan, 4, 2, 0);
  plan.model.architecture = architecture_of(ModelFamily::bert);
  const Batch masked(plan, 4, 2, 0);
  for (std::size_t sample = 0; sample < 3; ++sample) {
    int targets = 0;
    for (std::size_t row = sample * 20; row < (sample + 1) * 20; ++row) {
      if (masked.targets[row] < 0) {
        EXPECT_EQ(masked.tokens[row], plain.tokens[row]);
        continue;
      }
      ++targets;
      EXPECT_EQ(masked.targets[row], plain.tokens[row]);
      EXPECT_EQ(masked.tokens[row], 998);
    }
    EXPECT_EQ(targets, 3);
  }
}

}  // namespace
}  // namespace dstune
