#include "truths.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

namespace dstune::bench {
namespace {

class TruthTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static TruthKind kind() { return static_cast<TruthKind>(GetParam()); }
  static std::size_t within(const SimulatedSpace& truth, double share) {
    return static_cast<std::size_t>(std::ranges::count_if(
        truth.truth, [&](double each) { return each >= (1 - share) * truth.best_truth(); }));
  }
};

TEST_P(TruthTest, HasFewGoodMembersAmongMany) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const SimulatedSpace truth = make_truth(kind(), seed);
    EXPECT_GE(truth.truth.size(), 100U);
    EXPECT_LE(truth.truth.size(), has_groups(kind()) ? 960U : 400U);
    EXPECT_LE(20 * within(truth, 0.01), truth.truth.size());
    if (!has_information(kind())) {
      EXPECT_GE(within(truth, 0.05), 8U);
    }
  }
}

TEST_P(TruthTest, IsTheSameForTheSameSeed) {
  EXPECT_EQ(make_truth(kind(), 3).truth, make_truth(kind(), 3).truth);
  EXPECT_NE(make_truth(kind(), 3).truth, make_truth(kind(), 4).truth);
}

TEST_P(TruthTest, RunsDifferAroundTheTruth) {
  const SimulatedSpace truth = make_truth(kind(), 1);
  std::mt19937_64 random(1);
  double sum = 0;
  constexpr int runs = 400;
  const Experiment& experiment = truth.space.members[0].planned.experiment;
  double now_s = 0;
  for (int run = 0; run < runs; ++run) {
    const double slower_by = truth.disturbance ? truth.disturbance(now_s, random) : 0;
    const Measurement trial = truth.run(0, slower_by, random);
    now_s += std::accumulate(trial.step_times_s.begin(), trial.step_times_s.end(), 0.0);
    sum += value_so_far(trial, Metric::throughput,
                        global_batch(experiment.config, experiment.shape.size()),
                        experiment.shape.size())
               ->value;
  }
  // Every fourth run takes 15 % longer where there are jumps.
  EXPECT_NEAR(sum / runs / truth.truth[0], kind() == TruthKind::jumps ? 1 - 0.13 / 4 : 1, 0.02);
}

TEST(GroupTruthTest, OnOneRankAllStagesAreTheSameStep) {
  for (const TruthKind kind : {TruthKind::group_sizes, TruthKind::tiers_unpredicted}) {
    const SimulatedSpace truth = make_truth(kind, 1);
    std::map<std::tuple<std::int64_t, std::int64_t, Recompute, OffloadDevice>, double> of_step;
    std::size_t alike = 0;
    for (std::size_t member = 0; member < truth.truth.size(); ++member) {
      const Experiment& experiment = truth.space.members[member].planned.experiment;
      const TrainingConfig& config = experiment.config;
      if (experiment.shape.size() > 1) continue;
      const auto [found, is_new] =
          of_step.try_emplace({config.micro_batch, config.accumulation_steps, config.recompute,
                               config.offload_optimizer},
                              truth.truth[member]);
      if (is_new) continue;
      ++alike;
      EXPECT_NEAR(truth.truth[member] / found->second, 1, 1e-9) << to_text(kind);
    }
    EXPECT_GT(alike, 10U) << to_text(kind);
  }
}

TEST(GroupTruthTest, OnlyWhereAKindSaysSoAreMembersPredicted) {
  for (int kind = 0; kind < num_truth_kinds; ++kind) {
    const bool is_predicted = static_cast<TruthKind>(kind) < TruthKind::group_sizes_unpredicted;
    const SimulatedSpace truth = make_truth(static_cast<TruthKind>(kind), 0);
    for (const PlannedMember& member : truth.space.members)
      EXPECT_EQ(member.planned.predicted.throughput.has_value(), is_predicted);
  }
}

TEST(PredictedOrderTest, RunsTheBestPredictionsAndTheBestThreeOfTheseAgain) {
  SimulatedSpace truth = make_truth(TruthKind::silent_knob, 1);
  std::vector<std::size_t> ran;
  truth.run = [&, run = truth.run](std::size_t member, double slower_by, std::mt19937_64& random) {
    ran.push_back(member);
    return run(member, slower_by, random);
  };
  const SimulatedSearch found = in_predicted_order(truth, 12, 0.1, 0);
  EXPECT_EQ(found.experiments, 12U);
  EXPECT_EQ(found.runs_again, 3U);
  ASSERT_EQ(ran.size(), 15U);
  const auto predicted = [&](std::size_t member) {
    return *truth.space.members[member].planned.predicted.throughput;
  };
  for (std::size_t place = 1; place < 12; ++place)
    EXPECT_GE(predicted(ran[place - 1]), predicted(ran[place]));
  for (std::size_t place = 12; place < ran.size(); ++place)
    EXPECT_EQ(std::count(ran.begin(), ran.begin() + 12, ran[place]), 1);
  EXPECT_GT(found.finals_s, 3 * 0.1);
  EXPECT_GT(truth.grid_s, found.seconds - 15 * 0.1);
  EXPECT_NEAR(found.regret, 1 - truth.truth[found.answer] / truth.best_truth(), 1e-12);
}

TEST(PredictedOrderTest, WithEverythingRunItFindsTheBestWithoutNoise) {
  SimulatedSpace truth = make_truth(TruthKind::no_information, 1);
  truth.run = [&, times = truth.truth](std::size_t member, double, std::mt19937_64&) {
    const Experiment& experiment = truth.space.members[member].planned.experiment;
    Measurement trial;
    trial.status = Status::ok;
    trial.step_times_s.assign(
        10, static_cast<double>(global_batch(experiment.config, experiment.shape.size())) /
                times[member]);
    return trial;
  };
  EXPECT_EQ(in_predicted_order(truth, truth.truth.size(), 0, 0).regret, 0);
  EXPECT_GT(in_predicted_order(truth, 1, 0, 0).regret, 0.01);
}

TEST(SimulatedSearchTest, TheGridRunsEverythingAndFindsTheBestWithoutNoise) {
  SimulatedSpace truth = make_truth(TruthKind::stages, 2);
  truth.run = [&, times = truth.truth](std::size_t member, double, std::mt19937_64&) {
    const Experiment& experiment = truth.space.members[member].planned.experiment;
    const auto batch =
        static_cast<double>(global_batch(experiment.config, experiment.shape.size()));
    Measurement trial;
    trial.status = Status::ok;
    trial.step_times_s.assign(10, batch / times[member]);
    return trial;
  };
  const SimulatedSearch found = simulate(truth, {.tuner = "gridsearch"}, 0);
  EXPECT_EQ(found.experiments, truth.truth.size());
  EXPECT_EQ(found.regret, 0);
  EXPECT_TRUE(found.better_elsewhere.empty()) << "a grid believes nothing";
  ASSERT_TRUE(found.is_best);
  EXPECT_TRUE(found.is_best->came_true);
}

/// docs/figures/search.md has 50 other seeds of each kind.
TEST_P(TruthTest, IsSearchedWithinTheCapAndMostlyFound) {
  int found = 0;
  // Groups make many members, which take long.
  const std::uint64_t num_seeds = has_groups(kind()) ? 2 : 5;
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    const SimulatedSpace truth = make_truth(kind(), seed);
    const SimulatedSearch search = simulate(truth, {}, static_cast<std::int64_t>(seed));
    const double cap = std::max(10.0, std::ceil(0.35 * static_cast<double>(truth.truth.size())));
    EXPECT_LE(static_cast<double>(search.experiments), cap) << "seed " << seed;
    found += search.regret <= 0.05 ? 1 : 0;
  }
  // A member that is faster for no reason that a knob tells is found where it happens to be run.
  EXPECT_GE(found, has_groups(kind()) ? 1 : kind() == TruthKind::heavy_tails ? 3 : 4);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TruthTest, testing::Range(0, num_truth_kinds),
                         [](const auto& test_case) {
                           return std::string(to_text(static_cast<TruthKind>(test_case.param)));
                         });

}  // namespace
}  // namespace dstune::bench
