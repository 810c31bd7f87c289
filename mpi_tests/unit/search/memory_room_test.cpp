// Searches where runs take more or less memory than planned: few run out of it, and the answer is
// as good as where it was known before.

#include "memory_room.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

constexpr double gibibyte = 1 << 30;
constexpr std::int64_t largest_size = 64;
/// The share of all runs that may run out: of ten spaces, and of one that was planned.
constexpr double most_share = 0.15;
constexpr double most_share_of_one = 0.2;

/// A space whose runs take other memory than the plan says, on a device whose limit nobody knows.
class World {
 public:
  struct Kind {
    double error = 0;             ///< of the plan, relative: runs take so much more
    double error_of_stage = 0;    ///< beside it: standard deviation between configurations
    bool are_bytes_known = true;  ///< runs say what they took
    bool is_planned = true;
  };

  World(const Kind& kind, std::uint64_t seed) : kind_(kind), random_(seed) {
    space_.is_unplanned = !kind.is_planned;
    for (int stage = 0; stage < 4; ++stage) add_chain(stage);
    // The plan has room for all of them; runs end at a limit that is no member's.
    limit_bytes_ = *std::ranges::max_element(planned_) * (1 - 0.3 * uniform());
    space_.baseline = 0;
  }

  [[nodiscard]] const PlannedSpace& space() const { return space_; }
  [[nodiscard]] bool runs(std::size_t member) const { return needed_[member] <= limit_bytes_; }
  [[nodiscard]] double throughput(std::size_t member) const { return throughput_[member]; }

  Observation measure(std::size_t member) {
    if (!runs(member)) return {Status::out_of_memory, std::nullopt};
    Observation observation = around(throughput_[member] * (1 + 0.004 * (uniform() - 0.5)), 0.005);
    if (kind_.are_bytes_known)
      observation.device_bytes = static_cast<std::int64_t>(needed_[member]);
    return observation;
  }

 private:
  double uniform() { return static_cast<double>(random_() % 100'000) / 100'000; }

  void add_chain(int stage) {
    const double factor =
        (1 + kind_.error) * std::exp(kind_.error_of_stage * 2 * (uniform() - 0.5));
    const double states_bytes = 8 * gibibyte / (1 + stage);
    const double sample_bytes = 0.6 * gibibyte;
    const double speed = (1 - 0.04 * stage) * (0.9 + 0.2 * uniform());
    const double step_cost = 2 + 3 * uniform();
    const std::size_t chain = space_.members.size();
    for (std::int64_t size = 1; size <= largest_size; size += size < 8 ? 1 : 4) {
      PlannedMember& member =
          add_member(space_, {.zero_stage = stage, .micro_batch = size}, {2, 1}, chain);
      const auto samples = static_cast<double>(size);
      planned_.push_back(states_bytes + samples * sample_bytes);
      needed_.push_back(factor * planned_.back());
      throughput_.push_back(100 * speed * samples / (samples + step_cost));
      if (kind_.is_planned) {
        member.planned.predicted.peak_memory_bytes = static_cast<std::int64_t>(planned_.back());
        member.planned.predicted.throughput = throughput_.back() * (0.9 + 0.2 * uniform());
      }
    }
  }

  Kind kind_;
  std::mt19937_64 random_;
  PlannedSpace space_;
  std::vector<double> planned_, needed_, throughput_;
  double limit_bytes_ = 0;
};

/// The outcome of searches, each from another seed.
struct Tally {
  int num_runs = 0, num_ran_out = 0;
  int most_of_chain = 0;  ///< that ran out, of one configuration in one search
  double worst_regret = 0, regret = 0;
};

Tally search(const World::Kind& kind, std::size_t slots = 1) {
  constexpr int num_seeds = 5;
  Tally tally;
  for (std::uint64_t seed = 0; seed < num_seeds; ++seed) {
    World world(kind, seed);
    TuningOptions options;
    options.seed = static_cast<std::int64_t>(seed);
    const auto tuner = make_tuner("race", world.space(), options);
    std::map<std::uint64_t, int> ran_out;
    double found = 0;
    const auto measure = [&](std::size_t member) {
      ++tally.num_runs;
      if (world.runs(member)) {
        found = std::max(found, world.throughput(member));
      } else {
        ++tally.num_ran_out;
        const int of_chain = ++ran_out[*world.space().members[member].micro_batch_chain];
        tally.most_of_chain = std::max(tally.most_of_chain, of_chain);
      }
      return world.measure(member);
    };
    EXPECT_TRUE(are_distinct(run_search(*tuner, measure, slots))) << seed;
    const double best = largest(world.space(), [&](std::size_t member) {
      return world.runs(member) ? world.throughput(member) : 0;
    });
    tally.worst_regret = std::max(tally.worst_regret, 1 - found / best);
    tally.regret += (1 - found / best) / num_seeds;
  }
  return tally;
}

/// Ten spaces: five errors of the plan, with and without differences between configurations.
/// Parameters: whether runs say what they took, whether it was planned, how many run at once.
class FewRunOutTest : public testing::TestWithParam<std::tuple<bool, bool, std::size_t>> {};

INSTANTIATE_TEST_SUITE_P(Kinds, FewRunOutTest,
                         testing::Combine(testing::Bool(), testing::Bool(),
                                          testing::Values<std::size_t>(1, 3)));

TEST_P(FewRunOutTest, InTenSpaces) {
  const auto [are_bytes_known, is_planned, slots] = GetParam();
  int num_runs = 0, num_ran_out = 0;
  for (const double error : {-0.4, -0.2, 0.0, 0.2, 0.4}) {
    for (const double error_of_stage : {0.0, 0.2}) {
      const Tally tally = search({error, error_of_stage, are_bytes_known, is_planned}, slots);
      EXPECT_LE(tally.most_of_chain, 5) << error;
      // The plan's order alone errs where each configuration takes more by a factor of its own.
      EXPECT_LE(tally.regret, are_bytes_known ? 0.01 : 0.02) << error;
      if (is_planned) {
        EXPECT_LE(tally.num_ran_out, most_share_of_one * tally.num_runs) << error;
      }
      num_runs += tally.num_runs;
      num_ran_out += tally.num_ran_out;
    }
  }
  EXPECT_LE(num_ran_out, most_share * num_runs) << num_ran_out << " of " << num_runs;
}

/// Sizes that run take what was planned, and yet a configuration runs out below what another one
/// took: its own line says nothing of where it ends.
TEST(MemoryRoomTest, WhatFiguresDoNotExplainIsBisected) {
  World world({}, 0);
  const PlannedSpace& space = world.space();
  MemoryRoom room(space);
  const auto member_of = [&](int stage, std::int64_t size) {
    std::size_t member = 0;
    while (space.experiment(member).config.zero_stage != stage || space.micro_batch(member) != size)
      ++member;
    return member;
  };
  const auto runs = [&](int stage, std::int64_t size) {
    const std::size_t member = member_of(stage, size);
    const std::int64_t bytes = space.members[member].planned.predicted.peak_memory_bytes;
    room.observe(member, {Status::ok, MetricValue{1, 1, 1}, bytes});
  };
  runs(0, 64);
  runs(1, 3);
  runs(1, 8);
  EXPECT_FALSE(room.is_beyond_middle(member_of(1, 64)));
  room.observe(member_of(1, 64), {Status::out_of_memory, std::nullopt});
  EXPECT_TRUE(room.is_beyond_middle(member_of(1, 60)));
  EXPECT_TRUE(room.is_beyond_middle(member_of(1, 36)));
  EXPECT_FALSE(room.is_beyond_middle(member_of(1, 12)));
}

}  // namespace
}  // namespace dstune
