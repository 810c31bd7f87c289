#include <cmath>
#include <functional>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/search/tuner.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
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
            PlannedMember member;
            Experiment& experiment = member.planned.experiment;
            experiment.name = "member" + std::to_string(space.members.size());
            experiment.shape = {4, 1};
            experiment.config.zero_stage = stage;
            experiment.config.micro_batch = micro_batch;
            experiment.config.accumulation_steps = accumulation;
            experiment.config.recompute = recompute;
            experiment.config.reduce_bucket_size = bucket;
            member.planned.predicted.peak_memory_bytes =
                micro_batch * (recompute == Recompute::none ? 1000 : 300) + 5000 / (stage + 1);
            space.members.push_back(member);
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

struct Outcome {
  std::vector<std::size_t> order;
  double best = 0;
};

/// Runs a tuner to its end, `slots` at a time, in a world where `measured` says what comes out.
Outcome run(Tuner& tuner, std::size_t slots,
            const std::function<Observation(std::size_t)>& measured) {
  Outcome outcome;
  std::vector<std::size_t> running;
  while (!tuner.is_done() || !running.empty()) {
    while (running.size() < slots) {
      const auto next = tuner.next();
      if (!next) break;
      running.push_back(*next);
      outcome.order.push_back(*next);
    }
    if (running.empty()) break;
    const std::size_t ended = running.front();
    running.erase(running.begin());
    const Observation observation = measured(ended);
    if (observation.status == Status::ok)
      outcome.best = std::max(outcome.best, observation.value->value);
    tuner.observe(ended, observation);
  }
  return outcome;
}

class RaceTunerTest : public testing::Test {
 protected:
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
    const double value =
        throughput(space_.members[member].planned.experiment.config) * std::exp(noise);
    return {Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
  }
  [[nodiscard]] double optimum() const {
    double best = 0;
    for (const auto& one : space_.members)
      best = std::max(best, throughput(one.planned.experiment.config));
    return best;
  }
  TuningOptions options(std::int64_t seed) {
    TuningOptions all;
    all.seed = seed;
    return all;
  }

  PlannedSpace space_ = grid();
  std::mt19937_64 random_{11};
};

TEST_F(RaceTunerTest, FindsTheBestWithFewExperiments) {
  predict(-0.05, 0.05);
  std::size_t total = 0;
  for (const std::size_t slots : {1, 4}) {
    for (std::int64_t seed = 0; seed < 5; ++seed) {
      const auto tuner = make_tuner("race", space_, options(seed));
      const Outcome outcome = run(*tuner, slots, [&](auto member) { return measure(member); });
      EXPECT_GT(outcome.best, 0.985 * optimum()) << "seed " << seed;
      EXPECT_LT(outcome.order.size(), space_.members.size() * 25 / 100) << "seed " << seed;
      total += outcome.order.size();
      ASSERT_TRUE(tuner->chance_of_better());
      EXPECT_LT(*tuner->chance_of_better(), 0.05);
      EXPECT_THAT(tuner->skipped(), SizeIs(space_.members.size() - outcome.order.size()));
      EXPECT_THAT(tuner->skipped(),
                  Each(Field(&Tuner::Skipped::reason, HasSubstr("more than 1 % better"))));
    }
  }
  EXPECT_LT(total, 10 * space_.members.size() * 15 / 100);
}

TEST_F(RaceTunerTest, LearnsTheSpaceWithoutPredictions) {
  const auto tuner = make_tuner("race", space_, options(1));
  const Outcome outcome = run(*tuner, 1, [&](auto member) { return measure(member); });
  EXPECT_GT(outcome.best, 0.98 * optimum());
  EXPECT_LT(outcome.order.size(), space_.members.size() / 2);
}

TEST_F(RaceTunerTest, TheSameSeedAndAnswersGiveTheSameOrder) {
  predict(0.1, 0.1);
  const auto measured = [&](std::size_t member) {
    const double value = throughput(space_.members[member].planned.experiment.config);
    return Observation{Status::ok, MetricValue{value, value, value}};
  };
  const auto order = [&](std::int64_t seed) {
    return run(*make_tuner("race", space_, options(seed)), 2, measured).order;
  };
  EXPECT_EQ(order(5), order(5));
}

TEST_F(RaceTunerTest, LatencyIsMinimised) {
  predict(0, 0.05);
  TuningOptions latency;
  latency.metric = Metric::latency;
  const auto tuner = make_tuner("race", space_, latency);
  double best = 1e9;
  run(*tuner, 1, [&](std::size_t member) {
    const TrainingConfig& config = space_.members[member].planned.experiment.config;
    const double value = 1e6 * static_cast<double>(global_batch(config, 4)) / throughput(config);
    best = std::min(best, value);
    return Observation{Status::ok, MetricValue{value, value, value}};
  });
  double optimum = 1e9;
  for (const auto& one : space_.members) {
    const TrainingConfig& config = one.planned.experiment.config;
    optimum =
        std::min(optimum, 1e6 * static_cast<double>(global_batch(config, 4)) / throughput(config));
  }
  EXPECT_LT(best, 1.01 * optimum);
}

TEST_F(RaceTunerTest, WhatNeedsAsMuchMemoryIsNotRunAfterItRanOut) {
  predict(0, 0);
  std::int64_t least_that_ran_out = std::numeric_limits<std::int64_t>::max();
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 1, [&](std::size_t member) {
    const std::int64_t needed = space_.members[member].planned.predicted.peak_memory_bytes;
    EXPECT_LT(needed, least_that_ran_out);
    if (needed <= 9'000) return measure(member);
    least_that_ran_out = needed;
    return Observation{Status::out_of_memory, std::nullopt};
  });
  EXPECT_GT(outcome.best, 0);
  EXPECT_THAT(tuner->skipped(),
              testing::Contains(Field(&Tuner::Skipped::reason, HasSubstr("needs no less memory"))));
}

// The plan's order of stages may be wrong where nothing has run yet.
TEST_F(RaceTunerTest, WhatAloneRunsIsFoundAlthoughItIsPlannedToNeedALittleMore) {
  predict(0, 0);
  const auto stage_of = [&](std::size_t member) {
    return space_.members[member].planned.experiment.config.zero_stage;
  };
  for (std::size_t member = 0; member < space_.members.size(); ++member)
    space_.members[member].planned.predicted.peak_memory_bytes =
        stage_of(member) == 3 ? 12'000 : 10'000;
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 1, [&](std::size_t member) {
    if (stage_of(member) == 3) return measure(member);
    return Observation{Status::out_of_memory, std::nullopt};
  });
  EXPECT_GT(outcome.best, 0);
}

TEST_F(RaceTunerTest, AKnobThatAlwaysFailsIsLeftAlone) {
  predict(-0.2, 0);
  int failures = 0;
  const auto tuner = make_tuner("race", space_, options(0));
  run(*tuner, 1, [&](std::size_t member) {
    if (space_.members[member].planned.experiment.config.zero_stage != 0) return measure(member);
    ++failures;
    return Observation{Status::failed, std::nullopt};
  });
  EXPECT_LE(failures, 4);
  EXPECT_THAT(tuner->skipped(), testing::Contains(Field(&Tuner::Skipped::reason,
                                                        HasSubstr("same zero_stage failed"))));
}

TEST_F(RaceTunerTest, WhereEverythingFailsEverythingIsTried) {
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 4, [](auto) {
    return Observation{Status::failed, std::nullopt};
  });
  EXPECT_THAT(outcome.order, SizeIs(space_.members.size()));
  EXPECT_FALSE(tuner->chance_of_better());
}

TEST_F(RaceTunerTest, OneMemberIsRunAndNothingIsLeft) {
  space_.members.resize(1);
  const auto tuner = make_tuner("race", space_, options(0));
  EXPECT_THAT(run(*tuner, 2, [&](auto member) { return measure(member); }).order, SizeIs(1));
  EXPECT_EQ(tuner->chance_of_better(), 0.0);
  EXPECT_THAT(tuner->skipped(), IsEmpty());
}

TEST_F(RaceTunerTest, TheCapCountsWhatIsRun) {
  TuningOptions capped;
  capped.num_trials = 3;
  const auto tuner = make_tuner("race", space_, capped);
  EXPECT_THAT(run(*tuner, 2, [&](auto member) { return measure(member); }).order, SizeIs(3));
  EXPECT_TRUE(tuner->is_done());
  EXPECT_THAT(tuner->skipped(), SizeIs(space_.members.size() - 3));
}

TEST_F(RaceTunerTest, ThePolicyDecides) {
  Policy policy;
  policy.race.min_cap = 4;
  policy.race.cap_share = 0;
  TuningOptions given = options(0);
  given.policy = &policy;
  const auto tuner = make_tuner("race", space_, given);
  EXPECT_THAT(run(*tuner, 2, [&](auto member) { return measure(member); }).order, SizeIs(4));
}

TEST_F(RaceTunerTest, WhatIsKnownFromTheJournalCounts) {
  predict(0, 0.02);
  const auto tuner = make_tuner("race", space_, options(0));
  for (std::size_t member = 0; member < space_.members.size(); member += 2)
    tuner->observe(member, measure(member));
  const Outcome outcome = run(*tuner, 1, [&](auto member) { return measure(member); });
  for (const std::size_t member : outcome.order) EXPECT_EQ(member % 2, 1U);
  EXPECT_LT(outcome.order.size(), 15U);
}

TEST_F(RaceTunerTest, AResumedSearchBelievesWhatAnUninterruptedOneDoes) {
  predict(-0.05, 0.05);
  const auto uninterrupted = make_tuner("race", space_, options(0));
  std::vector<std::pair<std::size_t, Observation>> known;
  for (;;) {
    // A new job is told what the journal has, and goes on in the same way.
    const auto resumed = make_tuner("race", space_, options(0));
    for (const auto& [member, observation] : known) resumed->observe(member, observation);
    ASSERT_EQ(resumed->chance_of_better().has_value(),
              uninterrupted->chance_of_better().has_value());
    if (resumed->chance_of_better()) {
      ASSERT_NEAR(*resumed->chance_of_better(), *uninterrupted->chance_of_better(), 1e-9)
          << known.size() << " are known";
    }
    const auto next = uninterrupted->next();
    ASSERT_EQ(resumed->next(), next) << known.size() << " are known";
    if (!next) break;
    // Every seventh one fails.
    known.emplace_back(*next,
                       known.size() % 7 == 6 ? Observation{Status::failed, {}} : measure(*next));
    uninterrupted->observe(known.back().first, known.back().second);
  }
  EXPECT_GT(known.size(), 9U);
}

TEST_F(RaceTunerTest, TheTargetsPredictionsDecideWhereThereAreSome) {
  predict(0, 0);
  // By their own steps all are alike; the target likes the last one.
  for (auto& one : space_.members) {
    one.planned.predicted.throughput = 100;
    one.planned.predicted.target_throughput = 10;
  }
  space_.members.back().planned.predicted.target_throughput = 50;
  EXPECT_EQ(make_tuner("race", space_, options(0))->next(), space_.members.size() - 1);
}

TEST_F(RaceTunerTest, RevisedValuesAreWhatItLearnsFrom) {
  predict(0, 0.02);
  const auto at = [](double value) {
    return Observation{Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
  };
  // In the target's time what has many micro-steps is slow.
  const auto target = [&](std::size_t member) {
    const TrainingConfig& config = space_.members[member].planned.experiment.config;
    return throughput(config) * (config.accumulation_steps > 1 ? 0.3 : 1);
  };
  const auto own = [&](std::size_t member) {
    return throughput(space_.members[member].planned.experiment.config);
  };
  const auto revised = make_tuner("race", space_, options(0));
  const auto told_at_once = make_tuner("race", space_, options(0));
  // Of both numbers of micro-steps.
  for (std::size_t member = 0; member < space_.members.size(); member += 7)
    revised->observe(member, at(own(member)));
  for (std::size_t member = 0; member < space_.members.size(); member += 7) {
    revised->revise(member, at(target(member)));
    told_at_once->observe(member, at(target(member)));
  }
  // Only what was observed counts.
  revised->revise(1, at(1e9));
  for (const auto* const tuner : {&revised, &told_at_once})
    EXPECT_EQ(space_.members[*(*tuner)->next()].planned.experiment.config.accumulation_steps, 1);
  // How far off beliefs were was noted of other values. So the two do not agree to the last digit.
  EXPECT_NEAR(revised->chance_of_better().value(), told_at_once->chance_of_better().value(), 1e-4);
}

/// What was run with these values.
template <class HasThem>
std::size_t count_run(const PlannedSpace& space, const Outcome& outcome, const HasThem& has_them) {
  return static_cast<std::size_t>(std::ranges::count_if(outcome.order, [&](std::size_t member) {
    return has_them(space.members[member].planned.experiment.config);
  }));
}

TEST_F(RaceTunerTest, AKnobThatIsPredictedToBeBadIsTriedNextToTheBest) {
  predict(0, 0);
  // In truth recompute costs nothing, and what is predicted of it is wrong by half.
  const auto truth = [](const TrainingConfig& config) {
    return throughput(config) * (config.recompute == Recompute::none ? 1 : 1.5);
  };
  for (auto& one : space_.members)
    if (one.planned.experiment.config.recompute == Recompute::block)
      *one.planned.predicted.throughput *= 0.7;
  double optimum = 0, best = 0;
  for (const auto& one : space_.members)
    optimum = std::max(optimum, truth(one.planned.experiment.config));
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 1, [&](std::size_t member) {
    const double value = truth(space_.members[member].planned.experiment.config);
    best = std::max(best, value);
    return Observation{Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
  });
  EXPECT_GT(best, 0.99 * optimum);
  EXPECT_LT(outcome.order.size(), space_.members.size() * 20 / 100);
}

TEST_F(RaceTunerTest, ValuesThatActTogetherAreTriedNextToTheBest) {
  predict(0, 0);
  // One stage is faster with small buckets alone, which nothing predicts.
  const auto truth = [](const TrainingConfig& config) {
    const bool is_small = config.reduce_bucket_size < 100'000'000;
    return throughput(config) * (config.zero_stage == 1 && is_small ? 1.3 : 1);
  };
  double optimum = 0, best = 0;
  for (const auto& one : space_.members)
    optimum = std::max(optimum, truth(one.planned.experiment.config));
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 1, [&](std::size_t member) {
    const double value = truth(space_.members[member].planned.experiment.config);
    best = std::max(best, value);
    return Observation{Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
  });
  EXPECT_GT(best, 0.99 * optimum);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_GE(count_run(space_, outcome,
                        [&](const TrainingConfig& config) { return config.zero_stage == stage; }),
              1U)
        << stage;
}

TEST_F(RaceTunerTest, LessMemoryIsTriedNextToTheBest) {
  predict(0, 0);
  // What needs more than a cache, say, is slower; the prediction does not know it, and all that it
  // promises needs more.
  const auto truth = [&](std::size_t member) {
    const PlannedExperiment& planned = space_.members[member].planned;
    return throughput(planned.experiment.config) *
           (planned.predicted.peak_memory_bytes > 7'000 ? 0.5 : 1);
  };
  double optimum = 0, best = 0;
  for (std::size_t member = 0; member < space_.members.size(); ++member)
    optimum = std::max(optimum, truth(member));
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 1, [&](std::size_t member) {
    const double value = truth(member);
    best = std::max(best, value);
    return Observation{Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
  });
  EXPECT_GT(best, 0.95 * optimum);
  EXPECT_LT(outcome.order.size(), space_.members.size() * 36 / 100);
}

TEST_F(RaceTunerTest, WhatNeedsLessThanALimitThatWasSeenIsTried) {
  // What needs more than a limit is much slower. Below it members are much faster than predicted:
  // the best of them wins by it, though many above it are predicted to be faster.
  predict(0, 0);
  for (std::int64_t seed = 0; seed < 3; ++seed) {
    for (const std::int64_t limit_bytes : {5'500, 7'000, 12'000}) {
      const auto bytes = [&](std::size_t member) {
        return space_.members[member].planned.predicted.peak_memory_bytes;
      };
      const auto truth = [&](std::size_t member) {
        return throughput(space_.members[member].planned.experiment.config) *
               (bytes(member) > limit_bytes ? 0.55 : 1);
      };
      const auto tuner = make_tuner("race", space_, options(seed));
      const Outcome outcome = run(*tuner, 1, [&](std::size_t member) {
        const double value = truth(member);
        return Observation{Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
      });
      const std::set<std::size_t> ran(outcome.order.begin(), outcome.order.end());
      const auto num_below = std::ranges::count_if(
          ran, [&](std::size_t member) { return bytes(member) <= limit_bytes; });
      if (num_below < 2 || std::ssize(ran) - num_below < 2) continue;
      // A limit that shows: nothing below it is left that would be better than the best, were it
      // as far from its prediction as others there.
      for (std::size_t member = 0; member < space_.members.size(); ++member)
        EXPECT_TRUE(ran.contains(member) || bytes(member) > limit_bytes ||
                    truth(member) < 1.0101 * outcome.best)
            << "seed " << seed << ", limit " << limit_bytes;
    }
  }
}

TEST_F(RaceTunerTest, WithoutBeliefsThatHoldItRunsToTheCap) {
  predict(0, 0);
  // Nothing that was measured says how far off the next one is: errors grow and grow.
  int count = 0;
  const auto tuner = make_tuner("race", space_, options(0));
  const Outcome outcome = run(*tuner, 1, [&](std::size_t) {
    const double error = count % 4 == 0 ? 0.5 * std::pow(1.4, count / 4) : 0;
    ++count;
    const double value = std::exp(error);
    return Observation{Status::ok, MetricValue{value, value * 0.99, value * 1.01}};
  });
  EXPECT_EQ(outcome.order.size(), 68U) << "35 % of 192";
}

TEST_F(RaceTunerTest, ManyThatMayBeBetterAreLikelierThanOne) {
  // After one experiment each of the others is better with a chance of its own.
  const auto tuner = make_tuner("race", space_, options(0));
  const auto first = tuner->next();
  tuner->observe(*first, {Status::ok, MetricValue{10, 9.9, 10.1}});
  ASSERT_TRUE(tuner->chance_of_better());
  EXPECT_GT(*tuner->chance_of_better(), 0.8);
}

TEST_F(RaceTunerTest, MembersThatDoNotRunAreNotChosen) {
  predict(0, 0);
  for (auto& one : space_.members)
    if (one.planned.experiment.config.micro_batch == 32)
      one.planned.status = PlanStatus::infeasible;
  const auto tuner = make_tuner("race", space_, options(0));
  for (const std::size_t member : run(*tuner, 1, [&](auto at) { return measure(at); }).order)
    EXPECT_LT(space_.members[member].planned.experiment.config.micro_batch, 32);
}

}  // namespace
}  // namespace dstune
