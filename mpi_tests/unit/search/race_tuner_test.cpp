#include <cmath>
#include <random>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::Each;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

/// Stages 0 to 3, micro-batches 1 to 32, two accumulations, recompute, two bucket sizes: 192.
PlannedSpace grid() {
  PlannedSpace space;
  for (int stage = 0; stage < 4; ++stage)
    for (std::int64_t micro_batch = 1; micro_batch <= 32; micro_batch *= 2)
      for (const std::int64_t accumulation : {1, 4})
        for (const auto recompute : {Recompute::none, Recompute::block})
          for (const std::int64_t bucket : {50'000'000, 500'000'000}) {
            PlannedMember& member = add_member(space,
                                               {.zero_stage = stage,
                                                .micro_batch = micro_batch,
                                                .accumulation_steps = accumulation,
                                                .recompute = recompute,
                                                .reduce_bucket_size = bucket},
                                               {4, 1});
            member.planned.predicted.peak_memory_bytes =
                micro_batch * (recompute == Recompute::none ? 1000 : 300) + 5000 / (stage + 1);
          }
  return space;
}

/// Samples a second of a machine where larger batches amortise what a step and a micro-step cost.
double throughput(const TrainingConfig& config) {
  const auto micro = static_cast<double>(config.micro_batch);
  const auto steps = static_cast<double>(config.accumulation_steps);
  const double compute = 0.01 * micro * (config.recompute == Recompute::none ? 1.0 : 1.33);
  const double launch = 0.02;
  const double traffic = 0.03 * (config.zero_stage == 3 ? 1.5 * steps : 1.0) *
                         (config.reduce_bucket_size > 100'000'000 ? 1.0 : 1.04);
  return 4 * micro * steps / (steps * (compute + launch) + traffic);
}

class RaceTunerTest : public SpaceTest {
 protected:
  RaceTunerTest() { space_ = grid(); }
  /// Predictions that are wrong by a factor for each stage and by chance.
  void predict(double wrong_by_stage, double wrong_by_chance) {
    for (auto& one : space_.members) {
      const auto& config = one.planned.experiment.config;
      const double chance = static_cast<double>(random_() % 2001) / 1000 - 1;
      one.planned.predicted.throughput =
          throughput(config) *
          std::exp(0.4 + wrong_by_stage * config.zero_stage + wrong_by_chance * chance);
    }
  }
  Observation measure(std::size_t member) {
    const double noise = 0.005 * (static_cast<double>(random_() % 2001) / 1000 - 1);
    return around(throughput(config(member)) * std::exp(noise));
  }
  [[nodiscard]] double optimum() const {
    return largest(space_, [&](std::size_t member) { return throughput(config(member)); });
  }
  void race(const Measure& measure, const TuningOptions& options = {}, std::size_t slots = 1) {
    search("race", measure, options, slots);
  }
  void race(const TuningOptions& options = {}, std::size_t slots = 1) {
    race([&](std::size_t member) { return measure(member); }, options, slots);
  }
  /// Runs a race among members that are worth this. Returns the best that ran, by the best of all.
  double share_found(const std::function<double(std::size_t)>& truth) {
    race([&](std::size_t member) { return around(truth(member)); });
    return best() / largest(space_, truth);
  }

  /// All members again, on one rank.
  void add_groups_of_one() {
    PlannedSpace both = space_;
    for (const PlannedMember& member : space_.members) {
      both.members.push_back(member);
      both.members.back().planned.experiment.shape = {1, 1};
    }
    both.total = both.planned = both.members.size();
    space_ = both;
  }

  [[nodiscard]] std::int64_t bytes(std::size_t member) const {
    return space_.members[member].planned.predicted.peak_memory_bytes;
  }

  std::mt19937_64 random_{11};
};

TEST_F(RaceTunerTest, ExpectsFewerAsItGoesOnAndNoneAtItsEnd) {
  predict(-0.05, 0.05);
  const auto tuner = make_tuner("race", space_, {});
  std::vector<ExpectedRuns> expected;
  while (const auto member = tuner->next()) {
    expected.push_back(*tuner->expected_left());
    tuner->observe(*member, measure(*member));
  }
  EXPECT_EQ(tuner->expected_left()->high, 0);
  ASSERT_GT(expected.size(), 8U);
  for (std::size_t begun = 1; begun <= expected.size(); ++begun) {
    const ExpectedRuns& left = expected[begun - 1];
    EXPECT_LE(left.low, left.likely);
    EXPECT_GE(left.high, left.likely);
    EXPECT_GE(left.high, 0);
    EXPECT_LE(static_cast<double>(begun) + left.high, 0.35 * 192 + 1) << "the cap";
  }
  EXPECT_GE(expected.front().high, static_cast<double>(expected.size()) - 1);
  EXPECT_LT(expected.back().likely, expected.front().likely);
}

TEST_F(RaceTunerTest, AskingWhatItExpectsChangesNothing) {
  predict(-0.05, 0.05);
  const auto asked = make_tuner("race", space_, {});
  race([&](std::size_t member) { return around(throughput(config(member))); });
  const auto ran = run_search(*asked, [&](std::size_t member) {
    EXPECT_TRUE(asked->expected_left());
    return around(throughput(config(member)));
  });
  EXPECT_EQ(ran, ran_);
}

TEST_F(RaceTunerTest, FindsTheBestWithFewExperiments) {
  predict(-0.05, 0.05);
  std::size_t total = 0;
  for (const std::size_t slots : {1, 4}) {
    for (std::int64_t seed = 0; seed < 5; ++seed) {
      race(seeded(seed), slots);
      EXPECT_GT(best(), 0.985 * optimum()) << "seed " << seed;
      EXPECT_LT(ran_.size(), space_.members.size() * 25 / 100) << "seed " << seed;
      total += ran_.size();
      ASSERT_TRUE(tuner_->chance_of_better());
      EXPECT_LT(*tuner_->chance_of_better(), 0.05);
      EXPECT_THAT(tuner_->skipped(), SizeIs(space_.members.size() - ran_.size()));
      EXPECT_THAT(tuner_->skipped(), Each(SkippedFor("more than 1 % better")));
      EXPECT_THAT(tuner_->skipped(), Each(Field(&Tuner::Skipped::kind, PruneKind::not_chosen)));
    }
  }
  EXPECT_LT(total, 10 * space_.members.size() * 15 / 100);
}

TEST_F(RaceTunerTest, LearnsTheSpaceWithoutPredictions) {
  race(seeded(1));
  EXPECT_GT(best(), 0.98 * optimum());
  EXPECT_LT(ran_.size(), space_.members.size() / 2);
}

TEST_F(RaceTunerTest, TheSameSeedAndAnswersGiveTheSameOrder) {
  predict(0.1, 0.1);
  const auto order = [&] {
    race([&](std::size_t member) { return ok(throughput(config(member))); }, seeded(5), 2);
    return ran_;
  };
  EXPECT_EQ(order(), order());
}

TEST_F(RaceTunerTest, LatencyIsMinimised) {
  predict(0, 0.05);
  TuningOptions latency;
  latency.metric = Metric::latency;
  const auto speed = [&](std::size_t member) {
    return 1e-6 * throughput(config(member)) / static_cast<double>(global_batch(config(member), 4));
  };
  double fastest = 0;
  race(
      [&](std::size_t member) {
        fastest = std::max(fastest, speed(member));
        return ok(1 / speed(member));
      },
      latency);
  EXPECT_GT(1.01 * fastest, largest(space_, speed));
}

TEST_F(RaceTunerTest, WhatNeedsAsMuchMemoryIsNotRunAfterItRanOut) {
  predict(0, 0);
  std::int64_t least_that_ran_out = std::numeric_limits<std::int64_t>::max();
  race([&](std::size_t member) {
    const std::int64_t needed = space_.members[member].planned.predicted.peak_memory_bytes;
    EXPECT_LT(needed, least_that_ran_out);
    if (needed <= 9'000) return measure(member);
    least_that_ran_out = needed;
    return ended(Status::out_of_memory);
  });
  EXPECT_GT(best(), 0);
  EXPECT_THAT(tuner_->skipped(), Contains(SkippedFor("needs no less memory")));
}

// The plan's order of stages may be wrong where nothing has run yet.
TEST_F(RaceTunerTest, WhatAloneRunsIsFoundAlthoughItIsPlannedToNeedALittleMore) {
  predict(0, 0);
  for (PlannedMember& member : space_.members)
    member.planned.predicted.peak_memory_bytes =
        member.planned.experiment.config.zero_stage == 3 ? 12'000 : 10'000;
  race([&](std::size_t member) {
    return config(member).zero_stage == 3 ? measure(member) : ended(Status::out_of_memory);
  });
  EXPECT_GT(best(), 0);
}

TEST_F(RaceTunerTest, AKnobThatAlwaysFailsIsLeftAlone) {
  predict(-0.2, 0);
  race([&](std::size_t member) {
    return config(member).zero_stage != 0 ? measure(member) : ended(Status::failed);
  });
  EXPECT_LE(num_ended(Status::failed), 4);
  EXPECT_THAT(tuner_->skipped(), Contains(SkippedFor("same zero_stage failed")));
  EXPECT_THAT(tuner_->skipped(), Contains(Field(&Tuner::Skipped::kind, PruneKind::excluded)));
}

TEST_F(RaceTunerTest, WhereEverythingFailsEverythingIsTried) {
  race([](std::size_t) { return ended(Status::failed); }, {}, 4);
  EXPECT_THAT(ran_, SizeIs(space_.members.size()));
  EXPECT_FALSE(tuner_->chance_of_better());
}

TEST_F(RaceTunerTest, OneMemberIsRunAndNothingIsLeft) {
  keep_first_members(space_, 1);
  race({}, 2);
  EXPECT_THAT(ran_, SizeIs(1));
  EXPECT_EQ(tuner_->chance_of_better(), 0.0);
  EXPECT_THAT(tuner_->skipped(), IsEmpty());
}

TEST_F(RaceTunerTest, TheCapCountsWhatIsRun) {
  TuningOptions capped;
  capped.num_trials = 3;
  race(capped, 2);
  EXPECT_THAT(ran_, SizeIs(3));
  EXPECT_THAT(tuner_->skipped(), SizeIs(space_.members.size() - 3));
  EXPECT_THAT(tuner_->skipped(), Each(Field(&Tuner::Skipped::kind, PruneKind::cap)));
}

TEST_F(RaceTunerTest, ThePolicyDecides) {
  Policy policy;
  policy.race.min_cap = 4;
  policy.race.cap_share = 0;
  TuningOptions given;
  given.policy = &policy;
  race(given, 2);
  EXPECT_THAT(ran_, SizeIs(4));
}

TEST_F(RaceTunerTest, WhatIsKnownFromTheJournalCounts) {
  predict(0, 0.02);
  const auto tuner = make_tuner("race", space_, {});
  for (std::size_t member = 0; member < space_.members.size(); member += 2)
    tuner->observe(member, measure(member));
  const auto order = run_search(*tuner, [&](std::size_t member) { return measure(member); });
  for (const std::size_t member : order) EXPECT_EQ(member % 2, 1U);
  EXPECT_LT(order.size(), 15U);
}

TEST_F(RaceTunerTest, AResumedSearchBelievesWhatAnUninterruptedOneDoes) {
  predict(-0.05, 0.05);
  const auto uninterrupted = make_tuner("race", space_, {});
  for (;;) {
    // A new job is told what the journal has, and goes on in the same way.
    const auto again = resumed("race", ended_.size());
    ASSERT_EQ(again->chance_of_better().has_value(), uninterrupted->chance_of_better().has_value());
    if (again->chance_of_better()) {
      ASSERT_NEAR(*again->chance_of_better(), *uninterrupted->chance_of_better(), 1e-9)
          << ended_.size() << " are known";
    }
    const auto next = uninterrupted->next();
    ASSERT_EQ(again->next(), next) << ended_.size() << " are known";
    if (!next) break;
    // Every seventh one fails.
    ended_.emplace_back(*next, ended_.size() % 7 == 6 ? ended(Status::failed) : measure(*next));
    uninterrupted->observe(*next, ended_.back().second);
  }
  EXPECT_GT(ended_.size(), 9U);
}

TEST_F(RaceTunerTest, TheTargetsPredictionsDecideWhereThereAreSome) {
  predict(0, 0);
  // By their own steps all are alike; the target likes the last one.
  for (PlannedMember& member : space_.members) {
    member.planned.predicted.throughput = 100;
    member.planned.predicted.target_throughput = 10;
  }
  space_.members.back().planned.predicted.target_throughput = 50;
  EXPECT_EQ(make_tuner("race", space_, {})->next(), space_.members.size() - 1);
}

TEST_F(RaceTunerTest, RevisedValuesAreWhatItLearnsFrom) {
  predict(0, 0.02);
  // In the target's time what has many micro-steps is slow.
  const auto target = [&](std::size_t member) {
    return around(throughput(config(member)) * (config(member).accumulation_steps > 1 ? 0.3 : 1));
  };
  const auto revised = make_tuner("race", space_, {});
  const auto told_at_once = make_tuner("race", space_, {});
  // Of both numbers of micro-steps.
  for (std::size_t member = 0; member < space_.members.size(); member += 7)
    revised->observe(member, around(throughput(config(member))));
  for (std::size_t member = 0; member < space_.members.size(); member += 7) {
    revised->revise(member, target(member));
    told_at_once->observe(member, target(member));
  }
  // Only what was observed counts.
  revised->revise(1, around(1e9));
  for (const auto* const tuner : {&revised, &told_at_once})
    EXPECT_EQ(config(*(*tuner)->next()).accumulation_steps, 1);
  // How far off beliefs were was noted of other values. So the two do not agree to the last digit.
  EXPECT_NEAR(revised->chance_of_better().value(), told_at_once->chance_of_better().value(), 1e-4);
}

TEST_F(RaceTunerTest, AKnobThatIsPredictedToBeBadIsTriedNextToTheBest) {
  predict(0, 0);
  // In truth recompute costs nothing, and what is predicted of it is wrong by half.
  for (PlannedMember& member : space_.members)
    if (member.planned.experiment.config.recompute == Recompute::block)
      *member.planned.predicted.throughput *= 0.7;
  EXPECT_GT(share_found([&](std::size_t member) {
              return throughput(config(member)) *
                     (config(member).recompute == Recompute::none ? 1 : 1.5);
            }),
            0.99);
  EXPECT_LT(ran_.size(), space_.members.size() * 20 / 100);
}

TEST_F(RaceTunerTest, ValuesThatActTogetherAreTriedNextToTheBest) {
  predict(0, 0);
  // One stage is faster with small buckets alone, which nothing predicts.
  EXPECT_GT(share_found([&](std::size_t member) {
              const bool is_small = config(member).reduce_bucket_size < 100'000'000;
              return throughput(config(member)) *
                     (config(member).zero_stage == 1 && is_small ? 1.3 : 1);
            }),
            0.99);
  std::set<int> stages;
  for (const std::size_t member : ran_) stages.insert(config(member).zero_stage);
  EXPECT_THAT(stages, SizeIs(4));
}

TEST_F(RaceTunerTest, AValueIsTriedOnGroupsOfTheBestOnesSize) {
  // On one rank small buckets cost much, as predicted; on four they are faster.
  add_groups_of_one();
  const auto is_small = [&](std::size_t member) {
    return config(member).reduce_bucket_size < 100'000'000;
  };
  const auto of_ranks = [&](std::size_t member) {
    const int ranks = space_.experiment(member).shape.size();
    return throughput(config(member)) * (ranks == 1 ? 0.4 : 1);
  };
  const auto truth = [&](std::size_t member) {
    const bool is_alone = space_.experiment(member).shape.size() == 1;
    return of_ranks(member) * (!is_small(member) ? 1 : is_alone ? 0.6 : 1.15);
  };
  for (const bool is_predicted : {true, false}) {
    for (std::size_t member = 0; member < space_.members.size(); ++member) {
      auto& predicted = space_.members[member].planned.predicted.throughput;
      if (is_predicted)
        predicted = of_ranks(member) * (is_small(member) ? 0.6 : 1);
      else
        predicted.reset();
    }
    EXPECT_GT(share_found(truth), 0.99) << is_predicted;
    EXPECT_LT(ran_.size(), space_.members.size() * 20 / 100) << is_predicted;
  }
}

TEST_F(RaceTunerTest, WithoutPredictionsEachStageRunsOnGroupsOfEachSize) {
  add_groups_of_one();
  for (PlannedMember& member : space_.members) member.planned.predicted.throughput.reset();
  // Stages 1 to 3 are slow on four ranks, which says nothing of one.
  EXPECT_GT(share_found([&](std::size_t member) {
              const bool is_alone = space_.experiment(member).shape.size() == 1;
              return throughput(config(member)) * (is_alone                         ? 0.9
                                                   : config(member).zero_stage == 0 ? 1
                                                                                    : 0.5);
            }),
            0.99);
  std::set<std::pair<int, int>> stages;
  for (const std::size_t member : ran_)
    stages.emplace(config(member).zero_stage, space_.experiment(member).shape.size());
  EXPECT_THAT(stages, SizeIs(8));
  EXPECT_LT(ran_.size(), space_.members.size() * 20 / 100);
}

TEST_F(RaceTunerTest, LessMemoryIsTriedNextToTheBest) {
  predict(0, 0);
  // What needs more than a cache, say, is slower; the prediction does not know it, and all that it
  // promises needs more.
  EXPECT_GT(share_found([&](std::size_t member) {
              return throughput(config(member)) * (bytes(member) > 7'000 ? 0.5 : 1);
            }),
            0.95);
  EXPECT_LT(ran_.size(), space_.members.size() * 36 / 100);
}

TEST_F(RaceTunerTest, WhatNeedsLessThanALimitThatWasSeenIsTried) {
  // What needs more than a limit is much slower. Below it members are much faster than predicted:
  // the best of them wins by it, though many above it are predicted to be faster.
  predict(0, 0);
  for (std::int64_t seed = 0; seed < 3; ++seed) {
    for (const std::int64_t limit_bytes : {5'500, 7'000, 12'000}) {
      const auto truth = [&](std::size_t member) {
        return throughput(config(member)) * (bytes(member) > limit_bytes ? 0.55 : 1);
      };
      race([&](std::size_t member) { return around(truth(member)); }, seeded(seed));
      const std::set<std::size_t> ran(ran_.begin(), ran_.end());
      const auto num_below = std::ranges::count_if(
          ran, [&](std::size_t member) { return bytes(member) <= limit_bytes; });
      if (num_below < 2 || std::ssize(ran) - num_below < 2) continue;
      // A limit that shows: nothing below it is left that would be better than the best, were it
      // as far from its prediction as others there.
      for (std::size_t member = 0; member < space_.members.size(); ++member)
        EXPECT_TRUE(ran.contains(member) || bytes(member) > limit_bytes ||
                    truth(member) < 1.0101 * best())
            << "seed " << seed << ", limit " << limit_bytes;
    }
  }
}

TEST_F(RaceTunerTest, WithoutBeliefsThatHoldItRunsToTheCap) {
  predict(0, 0);
  // Nothing that was measured says how far off the next one is: errors grow and grow.
  int count = 0;
  race([&](std::size_t) {
    const double error = count % 4 == 0 ? 0.5 * std::pow(1.4, count / 4) : 0;
    ++count;
    return around(std::exp(error));
  });
  EXPECT_EQ(ran_.size(), 68U) << "35 % of 192";
}

TEST_F(RaceTunerTest, ManyThatMayBeBetterAreLikelierThanOne) {
  // After one experiment each of the others is better with a chance of its own.
  const auto tuner = make_tuner("race", space_, {});
  tuner->observe(*tuner->next(), around(10));
  ASSERT_TRUE(tuner->chance_of_better());
  EXPECT_GT(*tuner->chance_of_better(), 0.8);
}

TEST_F(RaceTunerTest, MembersThatDoNotRunAreNotChosen) {
  predict(0, 0);
  for (PlannedMember& member : space_.members)
    if (member.planned.experiment.config.micro_batch == 32)
      member.planned.status = PlanStatus::infeasible;
  race();
  for (const std::size_t member : ran_) EXPECT_LT(space_.micro_batch(member), 32);
}

}  // namespace
}  // namespace dstune
