// What stands for the steps of a run where something on the machine interrupts them.
#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dstune/ranking/scoreboard.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

/// A machine on which something takes a core for 10 to 50 ms and frees it for 50 to 250 ms.
class BusyMachine {
 public:
  explicit BusyMachine(unsigned seed) : random_(seed) {}

  /// The steps of a run of 0.4 s, of which each takes so long where nothing interrupts it.
  std::vector<double> run(double step_s) {
    std::vector<double> steps_s;
    for (int left = static_cast<int>(0.4 / step_s); left > 0; --left)
      steps_s.push_back(step(step_s));
    return steps_s;
  }

 private:
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  double step(double step_s) {
    double left_s = step_s * uniform(0.99, 1.01), took_s = 0;
    while (left_s > 0) {
      const double free_s = std::min(left_s, free_s_);
      left_s -= free_s;
      free_s_ -= free_s;
      took_s += free_s;
      if (left_s <= 0) break;
      took_s += uniform(0.01, 0.05);
      free_s_ = uniform(0.05, 0.25);
    }
    return took_s;
  }

  std::mt19937 random_;
  double free_s_ = 0.1;
};

Measurement measurement_of(std::vector<double> steps_s) {
  Measurement measurement = test::sample_record("").measurement;
  measurement.step_times_s = std::move(steps_s);
  measurement.warmup_steps = 0;
  return measurement;
}

Record record_of(const std::string& name, std::vector<double> steps_s) {
  Record record = test::sample_record(name);
  record.measurement = measurement_of(std::move(steps_s));
  return record;
}

const std::vector<double> steady = {1, 1, 1, 1, 1};
const std::vector<double> interrupted = {1, 1, 1, 1.6, 1.4};

Scoreboard scoreboard_of(std::size_t num_members, bool are_steps_alike = true) {
  std::vector<Row> all;
  for (std::size_t member = 0; member < num_members; ++member)
    all.push_back(test::planned_row(fmt::format("{}", member), PlanStatus::planned, ""));
  return Scoreboard({.are_steps_alike = are_steps_alike}, std::move(all));
}

/// Runs of the members from `begin` to below `end`.
void record(Scoreboard& scoreboard, std::size_t begin, std::size_t end,
            const std::vector<double>& steps_s) {
  for (std::size_t member = begin; member < end; ++member)
    scoreboard.record(member, record_of("", steps_s));
}

TEST(InterruptedStepsTest, TheQuartileCountsWhereMostRunsAreInterrupted) {
  Scoreboard scoreboard = scoreboard_of(9);
  record(scoreboard, 0, 7, interrupted);
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::mean) << "too few runs";
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 1.2);
  EXPECT_EQ(scoreboard.value_revision(), 0U);
  EXPECT_TRUE(scoreboard.record(7, record_of("", {0.9, 0.9, 0.9, 1.6, 1.6}))) << "it leads by that";
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::first_quartile);
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16) << "of what was measured before, too";
  EXPECT_EQ(scoreboard.value_revision(), 1U) << "the tuner hears of it";
}

TEST(InterruptedStepsTest, TheMeanCountsWhereTheMachineIsQuietAgain) {
  Scoreboard scoreboard = scoreboard_of(16);
  record(scoreboard, 0, 8, interrupted);
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::first_quartile);
  record(scoreboard, 8, 16, steady);
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::mean);
  EXPECT_DOUBLE_EQ(scoreboard.ranked_value(0)->value, 16 / 1.2);
  EXPECT_EQ(scoreboard.best(), 8U) << "the first steady one";
}

TEST(InterruptedStepsTest, ARunThatTakesTheFirstOnesPlaceIsCountedOnce) {
  Scoreboard scoreboard = scoreboard_of(8);
  for (int time = 0; time < 9; ++time) scoreboard.record(0, record_of("", interrupted));
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::mean) << "of one member";
}

TEST(InterruptedStepsTest, StepsThatAreNotAlikeAreTheUsersOwn) {
  Scoreboard scoreboard = scoreboard_of(9, false);
  record(scoreboard, 0, 9, interrupted);
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::mean);
}

TEST(InterruptedStepsTest, TheUsersOwnRunsAreFittedAnew) {
  std::vector<Row> rows(8, test::planned_row("", PlanStatus::planned, ""));
  Scoreboard scoreboard({.user_runs = {{0, "/own/log", 2.4, 0}}, .are_steps_alike = true}, rows);
  for (std::size_t member = 0; member < 8; ++member) {
    scoreboard.record(member, record_of("", interrupted));
    EXPECT_NEAR(scoreboard.ranked_value(0)->value, 16 / 2.4, 1e-6) << member;
  }
  EXPECT_EQ(scoreboard.step_estimate(), StepEstimate::first_quartile);
}

TEST(InterruptedStepsTest, AResumedSearchHasTheSameValues) {
  Scoreboard scoreboard = scoreboard_of(9);
  record(scoreboard, 0, 9, interrupted);
  const Scoreboard resumed({.are_steps_alike = true}, scoreboard.rows());
  EXPECT_EQ(resumed.step_estimate(), StepEstimate::first_quartile);
  for (std::size_t member = 0; member < 9; ++member)
    EXPECT_DOUBLE_EQ(resumed.ranked_value(member)->value, scoreboard.ranked_value(member)->value);
}

/// Of six spaces: in how many the fastest of 21 members is the best by a run of each. One has steps
/// of 80 ms; of the others each is 4 % slower, with steps of 21 ms, of which a run may have no
/// interruption.
int num_found(bool are_steps_alike) {
  constexpr int spaces = 6, members = 21;
  int found = 0;
  for (unsigned space = 0; space < spaces; ++space) {
    BusyMachine machine(space);
    Scoreboard scoreboard = scoreboard_of(members, are_steps_alike);
    const auto steps_of = [&](std::size_t member) {
      std::vector<double> steps_s = machine.run(member == 0 ? 0.08 : 0.02 * 1.04);
      if (member != 0)
        for (double& step_s : steps_s) step_s *= 4;  // of the same batch
      return steps_s;
    };
    std::chrono::system_clock::time_point now{};
    for (std::size_t member = 0; member < members; ++member) {
      Record record = record_of("", steps_of(member));
      record.started_at = now;
      record.finished_at = now += std::chrono::milliseconds(400);
      record.is_alone = true;
      scoreboard.record(member, record);
    }
    scoreboard.judge();
    found += scoreboard.best() == 0U ? 1 : 0;
  }
  return found;
}

TEST(InterruptedStepsTest, TheLuckiestOfManyIsNotTheAnswer) {
  EXPECT_GE(num_found(true), 5);
  EXPECT_LE(num_found(false), 3) << "by their means";
}

// Its first run had steps alike, all others had not: it is no surer than they are.
TEST(InterruptedStepsTest, ALuckyRunCountsAsOneOfMany) {
  Scoreboard scoreboard = scoreboard_of(2, false);
  std::chrono::system_clock::time_point now{};
  const auto end_run = [&](auto& run) {
    run.started_at = now;
    run.finished_at = now += std::chrono::seconds(1);
  };
  const std::vector<double> around_one = {0.85, 1.15, 0.9, 1.1, 1.0};
  const auto scaled = [&](double by) {
    std::vector<double> steps_s = around_one;
    for (double& step_s : steps_s) step_s *= by;
    return steps_s;
  };
  Record lucky = record_of("lucky", {1, 1, 1, 1, 1}), other = record_of("other", scaled(1.03));
  end_run(lucky);
  end_run(other);
  scoreboard.record(0, lucky);
  scoreboard.record(1, other);
  for (int round = 1; round <= 2; ++round) {
    for (std::size_t member = 0; member < 2; ++member) {
      Repeat repeat = test::repeat_of(RepeatKind::final_round, round, 1);
      repeat.measurement = measurement_of(scaled(member == 0 ? 1.1 : 1.03));
      end_run(repeat);
      scoreboard.repeat(member, repeat);
    }
  }
  scoreboard.judge();
  EXPECT_EQ(scoreboard.best(), 1U);
  EXPECT_GT(scoreboard.verdict()->chance_best(*scoreboard.verdict()->place_of(1)), 0.6);
}

}  // namespace
}  // namespace dstune
