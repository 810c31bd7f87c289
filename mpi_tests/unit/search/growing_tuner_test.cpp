// race where nobody knows how large micro-batches may be, on simulated trainings with a limit of
// memory.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

/// All up to 16, then eight until they have doubled, as the product of a space has them.
std::vector<std::int64_t> searched_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes = {1};
  for (std::int64_t step = 1; sizes.back() < largest;) {
    while (16 * step <= sizes.back()) step *= 2;
    sizes.push_back(std::min(largest, sizes.back() + step));
  }
  return sizes;
}

/// Stages, recompute and buckets, each with its sizes.
PlannedSpace unplanned_space(std::int64_t largest = 1024,
                             const std::vector<GroupShape>& shapes = {{2, 1}}) {
  PlannedSpace space;
  space.is_unplanned = true;
  space.baseline = 0;
  space.baseline_grows = true;
  std::uint64_t chain = 0;
  for (const GroupShape& shape : shapes)
    for (int stage = 0; stage < 4; ++stage)
      for (const auto recompute : {Recompute::none, Recompute::block})
        for (const std::int64_t bucket : {500'000'000, 50'000'000}) {
          for (const std::int64_t size : searched_sizes(largest))
            add_member(space,
                       {.zero_stage = stage,
                        .micro_batch = size,
                        .recompute = recompute,
                        .reduce_bucket_size = bucket},
                       shape, chain);
          ++chain;
        }
  return space;
}

/// A training whose memory and time are known.
struct Training {
  double step_s = 0.03;      ///< whatever the size is
  double sample_s = 0.002;   ///< of a micro-batch's samples
  double limit_bytes = 1e6;  ///< of a rank

  [[nodiscard]] static double bytes(const TrainingConfig& config) {
    const double states = 20'000.0 / (1 + config.zero_stage);
    return 5'000 + states + static_cast<double>(config.reduce_bucket_size) * 1e-6 +
           static_cast<double>(config.micro_batch) *
               (config.recompute == Recompute::none ? 1'000 : 400);
  }
  [[nodiscard]] bool fits(const TrainingConfig& config) const {
    return bytes(config) <= limit_bytes;
  }
  [[nodiscard]] double throughput(const Experiment& experiment) const {
    const TrainingConfig& config = experiment.config;
    const auto size = static_cast<double>(config.micro_batch);
    const double of_group = experiment.shape.size() == 1 ? 1 : 1.3;
    const double time_s =
        of_group * (step_s * (1 + 0.15 * config.zero_stage) +
                    sample_s * size * (config.recompute == Recompute::none ? 1 : 1.3) +
                    (config.reduce_bucket_size < 100'000'000 ? 0.004 : 0));
    return size * experiment.shape.size() / time_s;
  }
};

class GrowingTunerTest : public SpaceTest {
 protected:
  GrowingTunerTest() { space_ = unplanned_space(); }

  Observation measure(std::size_t member) {
    const Experiment& experiment = space_.experiment(member);
    if (!training_.fits(experiment.config)) return ended(Status::out_of_memory);
    const auto noise = [&] { return 0.01 * (static_cast<double>(random_() % 2001) / 1000 - 1); };
    Observation observation = around(training_.throughput(experiment) * std::exp(noise()));
    observation.device_bytes =
        static_cast<std::int64_t>(Training::bytes(experiment.config) * (1 + noise()));
    return observation;
  }
  void search(const Measure& measure, const TuningOptions& options = {}, std::size_t slots = 1) {
    SpaceTest::search("race", measure, options, slots);
    EXPECT_THAT(tuner_->skipped(), SizeIs(space_.members.size() - ran_.size()));
    EXPECT_THAT(tuner_->skipped(), Each(Field(&Tuner::Skipped::reason, Not(IsEmpty()))));
  }
  void search(const TuningOptions& options = {}, std::size_t slots = 1) {
    search([&](std::size_t member) { return measure(member); }, options, slots);
  }

  [[nodiscard]] std::vector<std::int64_t> sizes(std::size_t count) const {
    std::vector<std::int64_t> all;
    for (std::size_t place = 0; place < std::min(count, ran_.size()); ++place)
      all.push_back(config(ran_[place]).micro_batch);
    return all;
  }
  [[nodiscard]] double optimum() const {
    return largest(space_, [&](std::size_t member) {
      return training_.fits(config(member)) ? training_.throughput(space_.experiment(member)) : 0;
    });
  }
  /// Of the fastest that ran.
  [[nodiscard]] double found() const {
    double best = 0;
    for (const auto& [member, observation] : ended_)
      if (observation.status == Status::ok)
        best = std::max(best, training_.throughput(space_.experiment(member)));
    return best;
  }

  Training training_;
  std::mt19937_64 random_{5};
};

TEST_F(GrowingTunerTest, SizesDoubleFromTheSmallestToThePlateau) {
  search();
  // 256 is the first that brings less than 5 % over half of it.
  EXPECT_THAT(sizes(9), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256));
  for (std::size_t place = 0; place < 9; ++place) EXPECT_EQ(config(ran_[place]).zero_stage, 0);
  EXPECT_GT(found(), 0.98 * optimum());
  EXPECT_THAT(tuner_->skipped(), Contains(SkippedFor("over a smaller micro-batch")));
  ASSERT_TRUE(tuner_->chance_of_better());
  // 5 % by beliefs, and what they do not foresee after eight errors.
  EXPECT_LT(*tuner_->chance_of_better(), 1 - 0.95 * (1 - 0.025));
}

TEST_F(GrowingTunerTest, NoSizeIsMoreThanTwiceAsLargeAsWhatRan) {
  space_ = unplanned_space(128);
  for (const std::size_t slots : {1, 3}) {
    training_.limit_bytes = 80'000;
    std::int64_t largest = 0;
    search(
        [&](std::size_t member) {
          const std::int64_t size = config(member).micro_batch;
          // Idle ranks go one step further.
          EXPECT_LE(size, std::max<std::int64_t>(1, largest * (slots == 1 ? 2 : 4)));
          Observation observation = measure(member);
          if (observation.value) largest = std::max(largest, size);
          return observation;
        },
        seeded(1), slots);
    EXPECT_GE(largest, 64);
  }
}

TEST_F(GrowingTunerTest, FindsTheBestAtTheLimitOfMemory) {
  space_ = unplanned_space(128);
  for (const double limit_bytes : {40'000.0, 80'000.0})
    for (std::int64_t seed = 0; seed < 2; ++seed) {
      training_.limit_bytes = limit_bytes;
      space_.device_memory_bytes = static_cast<std::int64_t>(limit_bytes);
      search(seeded(seed));
      EXPECT_GT(found(), 0.97 * optimum()) << limit_bytes << " bytes, seed " << seed;
      EXPECT_LT(ran_.size(), space_.members.size() * 36 / 100) << limit_bytes << ", seed " << seed;
      EXPECT_LT(num_ended(Status::out_of_memory), 35) << limit_bytes << " bytes, seed " << seed;
    }
}

TEST_F(GrowingTunerTest, WhatSurelyRunsOutIsNotStarted) {
  space_ = unplanned_space(128);
  training_.limit_bytes = 80'000;
  space_.device_memory_bytes = 80'000;
  search();
  // The user's configuration has room for 54, and 32 and smaller ones say so.
  EXPECT_THAT(sizes(6), ElementsAre(1, 2, 4, 8, 16, 32));
  for (const std::size_t member : ran_)
    EXPECT_FALSE(space_.members[member].micro_batch_chain == 0 && config(member).micro_batch >= 64);
  EXPECT_THAT(tuner_->skipped(),
              Contains(AllOf(SkippedFor("needs about"), SkippedFor("but the device has"))));
}

TEST_F(GrowingTunerTest, WhatRanOutTeachesWhatNeedsNoLess) {
  space_ = unplanned_space(128);
  training_.limit_bytes = 80'000;  // which nobody knows
  search();
  EXPECT_EQ(config(ran_[6]).micro_batch, 64);
  EXPECT_EQ(ended_[6].second.status, Status::out_of_memory);
  std::vector<std::size_t> ran_out;
  for (const auto& [member, observation] : ended_) {
    for (const std::size_t other : ran_out) {
      const TrainingConfig& small = config(other);
      const TrainingConfig& large = config(member);
      EXPECT_FALSE(large.zero_stage == small.zero_stage && large.micro_batch >= small.micro_batch &&
                   large.recompute <= small.recompute &&
                   large.reduce_bucket_size >= small.reduce_bucket_size);
    }
    if (observation.status == Status::out_of_memory) ran_out.push_back(member);
  }
  EXPECT_GT(found(), 0.95 * optimum());
  EXPECT_THAT(tuner_->skipped(), Contains(SkippedFor("needs no less memory than")));
}

TEST_F(GrowingTunerTest, AKeyThatNobodyKnowsMayNeedLess) {
  // Members are alike but for a key that no table has.
  keep_first_members(space_, 2);
  for (PlannedMember& member : space_.members) {
    member.planned.experiment.config.micro_batch = 1;
    member.planned.experiment.ds_config = {{"train_micro_batch_size_per_gpu", 1}};
  }
  space_.members[1].planned.experiment.ds_config["torch_autocast"] = {{"enabled", true}};
  space_.members[1].micro_batch_chain = 1;
  search([](std::size_t member) { return member == 0 ? ended(Status::out_of_memory) : ok(1); });
  EXPECT_THAT(ran_, ElementsAre(0, 1));
}

TEST_F(GrowingTunerTest, ASmallestSizeThatFailsIsNotTheEnd) {
  search([&](std::size_t member) {
    return config(member).micro_batch < 2 ? ended(Status::failed) : measure(member);
  });
  EXPECT_THAT(sizes(4), ElementsAre(1, 2, 4, 8));
  EXPECT_GT(found(), 0.98 * optimum());
}

TEST_F(GrowingTunerTest, ASizeThatFailsEndsTheGrowth) {
  // The data has no larger batch, say.
  search([&](std::size_t member) {
    return config(member).micro_batch > 50 ? ended(Status::failed) : measure(member);
  });
  EXPECT_LE(num_ended(Status::failed), 3);
  EXPECT_THAT(tuner_->skipped(), Contains(SkippedFor("ended as failed")));
}

TEST_F(GrowingTunerTest, AConfigurationThatNeverRunsIsLeft) {
  search([&](std::size_t member) {
    return config(member).zero_stage == 0 ? ended(Status::failed) : measure(member);
  });
  EXPECT_GT(found(), 0);
  EXPECT_LT(ran_.size(), space_.members.size() / 10);
}

TEST_F(GrowingTunerTest, WhereNothingRunsItEnds) {
  search([](std::size_t) { return ended(Status::out_of_memory); });
  // Each stage with recompute and small buckets, and what may need less than those before.
  EXPECT_LE(ran_.size(), 16U);
  EXPECT_FALSE(tuner_->chance_of_better());
}

TEST_F(GrowingTunerTest, TheCapCountsWhatIsRun) {
  for (const int trials : {1, 2, 5, 14}) {
    TuningOptions options;
    options.num_trials = trials;
    search(options);
    EXPECT_THAT(ran_, SizeIs(static_cast<std::size_t>(trials)));
  }
}

TEST_F(GrowingTunerTest, TheBaselineIsTheLargestThatRan) {
  space_ = unplanned_space(128);
  training_.limit_bytes = 80'000;
  search();
  ASSERT_TRUE(tuner_->baseline());
  std::int64_t largest = 0;
  for (const auto& [member, observation] : ended_)
    if (observation.status == Status::ok && space_.members[member].micro_batch_chain == 0)
      largest = std::max(largest, config(member).micro_batch);
  EXPECT_EQ(config(*tuner_->baseline()).micro_batch, largest);
  EXPECT_EQ(space_.members[*tuner_->baseline()].micro_batch_chain, 0U);
  // One that the user has written stays.
  space_.baseline_grows = false;
  search();
  EXPECT_EQ(tuner_->baseline(), 0U);
}

TEST_F(GrowingTunerTest, GroupsOfOtherSizesAreMeasuredOnce) {
  space_ = unplanned_space(64, {{2, 1}, {1, 1}});
  search();
  EXPECT_THAT(sizes(7), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_EQ(space_.experiment(ran_[7]).shape.size(), 1);
  EXPECT_EQ(config(ran_[7]).micro_batch, 64);
  EXPECT_GT(found(), 0.98 * optimum());
}

TEST_F(GrowingTunerTest, LatencyIsMinimised) {
  TuningOptions options;
  options.metric = Metric::latency;
  double best = HUGE_VAL;
  const auto latency = [&](std::size_t member) {
    const double value = 1e6 * static_cast<double>(global_batch(config(member), 2)) /
                         training_.throughput(space_.experiment(member));
    best = std::min(best, value);
    return ok(value);
  };
  search(latency, options);
  EXPECT_LT(best, 1.02 * 1e6 * 2 / training_.throughput(space_.experiment(0)));
  EXPECT_LT(ran_.size(), 40U);
}

TEST_F(GrowingTunerTest, AResumedSearchGoesOnAsAnUninterruptedOne) {
  space_ = unplanned_space(16);
  training_.limit_bytes = 40'000;
  space_.device_memory_bytes = 40'000;
  const auto uninterrupted = make_tuner("race", space_, {});
  for (;;) {
    const auto again = resumed("race", ended_.size());
    const auto next = uninterrupted->next();
    ASSERT_EQ(again->next(), next) << ended_.size() << " are known";
    if (!next) break;
    ended_.emplace_back(*next, measure(*next));
    uninterrupted->observe(*next, ended_.back().second);
    ASSERT_EQ(again->baseline().has_value(), uninterrupted->baseline().has_value());
  }
  EXPECT_GT(ended_.size(), 10U);
}

TEST_F(GrowingTunerTest, AJobThatWasInterruptedBesideOthersRepeatsNothing) {
  space_ = unplanned_space(64);
  training_.limit_bytes = 80'000;
  search(seeded(3), 3);
  for (const std::size_t kept : {1UL, 4UL, ended_.size() / 2, ended_.size()}) {
    std::set<std::size_t> known;
    for (std::size_t place = 0; place < kept; ++place) known.insert(ended_[place].first);
    const auto tuner = resumed("race", kept);
    for (const std::size_t member :
         run_search(*tuner, [&](std::size_t each) { return measure(each); }))
      EXPECT_FALSE(known.contains(member));
  }
}

TEST_F(GrowingTunerTest, StatedChancesComeTrue) {
  // What is fast differs from search to search, and so do limits.
  space_ = unplanned_space(128);
  int num_sure = 0, num_missed = 0;
  std::size_t num_run = 0, num_members = 0;
  for (std::int64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 draw(static_cast<std::uint64_t>(seed));
    const auto uniform = [&] { return static_cast<double>(draw() >> 11) * 0x1p-53; };
    training_.step_s = 0.003 * std::pow(30, uniform());
    training_.sample_s = 0.001 * std::pow(3, uniform());
    training_.limit_bytes = 30'000 * std::pow(10, uniform());
    space_.device_memory_bytes =
        seed % 2 == 0 ? static_cast<std::int64_t>(training_.limit_bytes) : 0;
    search(seeded(seed));
    num_run += ran_.size();
    num_members += space_.members.size();
    if (*tuner_->chance_of_better() >= 0.05) continue;
    ++num_sure;
    if (found() < optimum() / 1.01) ++num_missed;
  }
  EXPECT_GE(num_sure, 3);
  EXPECT_LE(num_missed, 1);
  EXPECT_LT(num_run, num_members / 4);
}

TEST_F(GrowingTunerTest, AKeyThatNobodyKnowsIsTried) {
  // It is worth more than all else, and nothing else tells its members apart.
  space_ = unplanned_space(64);
  PlannedSpace with_key = space_;
  for (PlannedMember& member : space_.members)
    member.planned.experiment.ds_config = {{"torch_autocast", {{"enabled", false}}}};
  for (PlannedMember& member : with_key.members) {
    member.planned.experiment.ds_config = {{"torch_autocast", {{"enabled", true}}}};
    member.planned.experiment.name += "_autocast";
    *member.micro_batch_chain += 100;
    space_.members.push_back(member);
  }
  const auto has_key = [&](std::size_t member) { return member >= with_key.members.size(); };
  search([&](std::size_t member) {
    Observation observation = measure(member);
    if (!has_key(member)) return observation;
    MetricValue& value = *observation.value;
    value = {value.value * 1.2, value.ci_low * 1.2, value.ci_high * 1.2};
    return observation;
  });
  double best = 0;
  for (const std::size_t member : ran_)
    best = std::max(best,
                    training_.throughput(space_.experiment(member)) * (has_key(member) ? 1.2 : 1));
  EXPECT_GT(best, 0.98 * 1.2 * optimum());
}

TEST_F(GrowingTunerTest, OfMembersThatTeachAlikeTheCheaperIsExplored) {
  // Listed sizes: nothing grows, nothing is known.
  for (PlannedMember& member : space_.members) member.micro_batch_chain.reset();
  keep_members(space_, [](const PlannedMember& member) {
    const std::int64_t size = member.planned.experiment.config.micro_batch;
    return size == 1 || size == 32 || size == 1024;
  });
  search();
  // The second one is the first to be explored: another stage and all else, but not the largest.
  ASSERT_GE(ran_.size(), 2U);
  EXPECT_LT(config(ran_[1]).micro_batch, 1024);
}

}  // namespace
}  // namespace dstune
