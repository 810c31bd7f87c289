#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/search/verifying.hpp"
#include "search_fixture.hpp"

namespace dstune {
namespace {

/// Stages 0 to 3, micro-batches 1, 2, 4, 8, two bucket sizes: 32.
PlannedSpace small_grid() {
  PlannedSpace space;
  for (int stage = 0; stage < 4; ++stage)
    for (std::int64_t micro_batch = 1; micro_batch <= 8; micro_batch *= 2)
      for (const std::int64_t bucket : {50'000, 500'000'000})
        add_member(space,
                   {.zero_stage = stage, .micro_batch = micro_batch, .reduce_bucket_size = bucket});
  space.baseline = 0;
  return space;
}

/// The engine's: small buckets cost much, stages something.
double in_engine(const TrainingConfig& config) {
  const auto micro = static_cast<double>(config.micro_batch);
  const double step = 0.01 * micro + 0.02 + 0.004 * config.zero_stage +
                      (config.reduce_bucket_size < 1000000 ? 0.02 : 0);
  return 2 * micro / step;
}

/// What our own step says: buckets cost nothing.
double in_own_step(const TrainingConfig& config) {
  TrainingConfig other = config;
  other.reduce_bucket_size = 500'000'000;
  return in_engine(other);
}

class VerifyingTunerTest : public SpaceTest {
 protected:
  VerifyingTunerTest() { space_ = small_grid(); }

  std::unique_ptr<Tuner> tuner(TuningOptions options = {}) {
    const auto beliefs_of = [this](const std::vector<std::size_t>&) {
      ++asked_;
      std::vector<MemberBelief> beliefs;
      for (const PlannedMember& member : space_.members) {
        beliefs.push_back({member.planned.predicted});
        const TrainingConfig& config = member.planned.experiment.config;
        beliefs.back().prediction.throughput =
            asked_ > 1 && corrects_ ? in_engine(config) : in_own_step(config);
      }
      return beliefs;
    };
    return make_verifying_tuner(space_, options, beliefs_of);
  }

  Observation measured(std::size_t member) const {
    return around(in_engine(config(member)), 0.001);
  }
  std::vector<std::size_t> run(Tuner& tuner) {
    const auto order = run_search(tuner, [this](std::size_t member) { return measured(member); });
    EXPECT_TRUE(are_distinct(order));
    return order;
  }
  double best_of(const std::vector<std::size_t>& order) const {
    double best = 0;
    for (const std::size_t member : order) best = std::max(best, in_engine(config(member)));
    return best;
  }
  double best_of_all() const {
    return largest(space_, [this](std::size_t member) { return in_engine(config(member)); });
  }

  int asked_ = 0;
  bool corrects_ = false;
};

TEST_F(VerifyingTunerTest, BeginsWithTheBaselineAndWhatTheSpaceVaries) {
  const auto order = run(*tuner());
  ASSERT_GE(order.size(), 5U);
  EXPECT_EQ(order.front(), *space_.baseline);
  std::set<int> stages;
  std::set<std::int64_t> buckets, sizes;
  for (std::size_t member = 0; member < 5; ++member) {
    stages.insert(config(order[member]).zero_stage);
    buckets.insert(config(order[member]).reduce_bucket_size);
    sizes.insert(config(order[member]).micro_batch);
  }
  // Of an amount the extremes; a stage is one of words.
  EXPECT_THAT(stages, testing::IsSupersetOf({0, 3}));
  EXPECT_EQ(buckets.size(), 2U);
  EXPECT_THAT(sizes, testing::IsSupersetOf({1, 8}));
}

TEST_F(VerifyingTunerTest, TheFirstOnesAreAShareAndHaveEachStage) {
  Policy policy;
  policy.verifying.min_anchors = 1;
  policy.verifying.anchor_share = 0.01;
  TuningOptions options;
  options.policy = &policy;
  run(*tuner(options));
  EXPECT_EQ(asked_, 5) << "at the beginning, and after one of each of four stages";

  space_ = {};
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block})
    for (const std::int64_t bucket : {50'000, 500'000'000})
      add_member(space_, {.recompute = recompute, .reduce_bucket_size = bucket});
  space_.baseline = 0;
  asked_ = 0;
  run(*tuner(options));
  EXPECT_EQ(asked_, 3) << "one beside the baseline";
  asked_ = 0;
  run(*tuner());
  EXPECT_EQ(asked_, 4) << "two, where each kind of recompute is to be seen";
}

TEST_F(VerifyingTunerTest, TheBestOfTheFirstRunsBeforeTheOthers) {
  const auto order = run(*tuner());
  for (std::size_t place = 2; place < 4; ++place)
    EXPECT_GE(in_own_step(config(order[place - 1])), in_own_step(config(order[place])));
}

TEST_F(VerifyingTunerTest, OfFewMembersAQuarterRunsToTheEnd) {
  const auto one = tuner();
  std::size_t runs = 0;
  // Nothing that is believed comes true, so that the race alone would go on.
  const auto order =
      run_search(*one, [&](std::size_t) { return around(runs++ % 2 == 0 ? 100.0 : 10.0, 0.001); });
  EXPECT_EQ(order.size(), space_.members.size() / 4);
  EXPECT_TRUE(one->is_done());
  const auto skipped = one->skipped();
  EXPECT_EQ(skipped.size(), space_.members.size() - order.size());
  for (const auto& each : skipped) {
    EXPECT_EQ(each.kind, PruneKind::cap);
    EXPECT_THAT(each.reason, testing::HasSubstr("limit of 8 members"));
  }
}

TEST_F(VerifyingTunerTest, WhatWasStoppedIsNotOfTheQuarter) {
  std::size_t runs = 0;
  const auto order = run_search(*tuner(), [&](std::size_t member) {
    Observation seen = around(runs % 2 == 0 ? 100.0 : 10.0, 0.001);
    if (++runs > 4) seen = measured(member), seen.status = Status::raced_out;
    return seen;
  });
  EXPECT_GT(order.size(), space_.members.size() / 4);
}

TEST_F(VerifyingTunerTest, WhatAnotherSearchRanIsNotOfTheQuarter) {
  std::size_t runs = 0;
  const auto surprise = [&](std::size_t) { return around(runs++ % 2 == 0 ? 100.0 : 10.0, 0.001); };
  const auto order = run_search(*tuner(), surprise);
  ASSERT_EQ(order.size(), space_.members.size() / 4);
  space_.run_before = {order.begin(), order.end()};
  const auto again = tuner();
  for (const std::size_t member : order) again->observe(member, surprise(member));
  EXPECT_GT(run_search(*again, surprise).size(), 0U);
}

TEST_F(VerifyingTunerTest, ManyMembersHaveNoSuchLimit) {
  for (const std::int64_t bucket : {1'000'000, 5'000'000})
    for (int stage = 0; stage < 4; ++stage)
      for (std::int64_t micro_batch = 1; micro_batch <= 8; micro_batch *= 2)
        add_member(space_,
                   {.zero_stage = stage, .micro_batch = micro_batch, .reduce_bucket_size = bucket});
  std::size_t runs = 0;
  const auto one = tuner();
  const auto order =
      run_search(*one, [&](std::size_t) { return around(runs++ % 2 == 0 ? 100.0 : 10.0, 0.001); });
  EXPECT_GT(order.size(), space_.members.size() / 4);
}

TEST_F(VerifyingTunerTest, AsksForBeliefsAgainAfterEachOfTheFirst) {
  const auto one = tuner();
  EXPECT_EQ(asked_, 1);
  run(*one);
  EXPECT_EQ(asked_, 5);
}

TEST_F(VerifyingTunerTest, BeliefsOfTheFirstAreTestedToo) {
  corrects_ = true;
  // Eight beliefs have to pass. Were those of the first four not among them, twelve would run.
  EXPECT_THAT(run(*tuner()).size(), testing::AllOf(testing::Ge(8U), testing::Le(11U)));
}

TEST_F(VerifyingTunerTest, FindsTheBestWhereForecastsAreBlind) {
  const auto order = run(*tuner());
  EXPECT_GE(best_of(order), 0.99 * best_of_all());
  EXPECT_LE(order.size(), 12U);
}

TEST_F(VerifyingTunerTest, NeedsFewWhereBeliefsAreCorrectedByThem) {
  corrects_ = true;
  const auto order = run(*tuner());
  EXPECT_GE(best_of(order), 0.99 * best_of_all());
  EXPECT_LE(order.size(), 11U);
}

TEST_F(VerifyingTunerTest, CapOfTrialsCountsTheFirstOnes) {
  TuningOptions options;
  options.num_trials = 3;
  EXPECT_EQ(run(*tuner(options)).size(), 3U);
  options.num_trials = 7;
  EXPECT_LE(run(*tuner(options)).size(), 7U);
}

TEST_F(VerifyingTunerTest, WhatIsKnownIsNotAskedForAgain) {
  const auto order = run(*tuner());
  const auto resumed = tuner();
  const std::set<std::size_t> known(order.begin(), order.begin() + 4);
  for (const std::size_t member : known) resumed->observe(member, measured(member));
  for (const std::size_t member : run(*resumed)) EXPECT_FALSE(known.contains(member));
}

TEST_F(VerifyingTunerTest, BelievesAfterAnInterruptionWhatItWouldHaveBelieved) {
  const auto whole = tuner();
  std::vector<std::size_t> order;
  std::vector<std::optional<double>> chances;
  while (const auto next = whole->next()) {
    order.push_back(*next);
    whole->observe(*next, measured(*next));
    chances.push_back(whole->chance_of_better());
  }
  const auto resumed = tuner();
  const std::size_t known = 7;  // two of them by the choice of race
  for (std::size_t place = 0; place < known; ++place)
    resumed->observe(order[place], measured(order[place]));
  EXPECT_EQ(resumed->chance_of_better(), chances[known - 1]);
  for (std::size_t place = known; place < order.size(); ++place) {
    EXPECT_EQ(resumed->next(), order[place]);
    resumed->observe(order[place], measured(order[place]));
    EXPECT_EQ(resumed->chance_of_better(), chances[place]);
  }
}

TEST_F(VerifyingTunerTest, GoesOnWhereTheFirstOnesFail) {
  std::size_t runs = 0;
  auto order = run_search(*tuner(), [&](std::size_t member) {
    return runs++ < 2 ? ended(Status::failed) : measured(member);
  });
  order.erase(order.begin(), order.begin() + 2);
  EXPECT_GE(best_of(order), 0.9 * best_of_all());
}

}  // namespace
}  // namespace dstune
