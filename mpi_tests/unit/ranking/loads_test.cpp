// A load that lasts is found by the runs before and after it, and taken off the runs under it.
#include "dstune/ranking/loads.hpp"

#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/ranking/run_again.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

/// Runs of 1 s, one after the other, with errors of 1 %.
class LoadsTest : public testing::Test {
 protected:
  /// A member that is believed to take `predicted_s` a step takes `step_s`.
  bool run(std::size_t member, double step_s, std::optional<double> predicted_s = std::nullopt) {
    RunFacts facts;
    facts.run = runs_[member]++;
    facts.begin_s = now_s_;
    facts.end_s = now_s_ += 1;
    facts.log_speed = -std::log(step_s);
    facts.error = 0.01;
    loads_.add(member, facts, predicted_s ? std::optional(-std::log(*predicted_s)) : std::nullopt);
    return loads_.update();
  }
  /// Members take turns for a second.
  void run_in_turns(const std::vector<std::pair<std::size_t, double>>& steps_s) {
    for (const auto& [member, step_s] : steps_s) {
      RunFacts facts;
      facts.run = runs_[member]++;
      facts.begin_s = now_s_;
      facts.end_s = now_s_ + 1;
      facts.is_alone = true;
      facts.log_speed = -std::log(step_s);
      facts.error = 0.01;
      loads_.add(member, facts, std::nullopt);
      loads_.update();
    }
    now_s_ += 1;
  }
  double expected(std::size_t member, std::size_t run = 0) {
    return loads_.of(member, run).expected;
  }

  Loads loads_;
  std::map<std::size_t, std::size_t> runs_;
  double now_s_ = 0;
};

TEST_F(LoadsTest, ThereIsNoneWhereRunsOfAMemberAgree) {
  for (std::size_t member = 0; member < 8; ++member) {
    run(member, 1 + 0.1 * static_cast<double>(member), 1.02 + 0.1 * static_cast<double>(member));
    run(0, member % 2 == 0 ? 1.01 : 0.99, 1.02);
  }
  for (std::size_t member = 0; member < 8; ++member) EXPECT_NEAR(expected(member), 0, 0.01);
  EXPECT_FALSE(loads_.is_in_doubt());
}

TEST_F(LoadsTest, ControlsTellHowMuchSlowerTheRunsBetweenThemWere) {
  run(0, 1);
  run(1, 1.2);
  run(0, 1.5);
  run(2, 2.1);
  run(3, 1.8);
  run(0, 1.5);
  run(4, 1.1);
  run(0, 1);
  const double load = std::log(1.5);
  for (const std::size_t member : {2U, 3U}) EXPECT_NEAR(expected(member), load, 0.05);
  for (const std::size_t control : {1U, 2U}) EXPECT_NEAR(expected(0, control), load, 0.05);
  EXPECT_NEAR(expected(0), 0, 0.03);
  EXPECT_NEAR(expected(0, 3), 0, 0.03);
}

TEST_F(LoadsTest, WhatRanFirstUnderALoadIsValuedAnewWhenItHasGone) {
  for (std::size_t member = 0; member < 5; ++member) run(member, 1.5, 1);
  EXPECT_NEAR(expected(0), 0, 0.05) << "nothing tells it from a slow machine";
  run(5, 1, 1);
  EXPECT_TRUE(loads_.is_in_doubt());
  EXPECT_TRUE(run(0, 1, 1));
  for (std::size_t member = 0; member < 5; ++member)
    EXPECT_NEAR(expected(member), std::log(1.5), 0.06);
  EXPECT_NEAR(expected(5), 0, 0.03);
}

TEST_F(LoadsTest, OneRunThatIsMuchSlowerThanPredictedIsInDoubtUntilAControl) {
  for (std::size_t member = 0; member < 6; ++member) run(member, 1, 1);
  EXPECT_FALSE(loads_.is_in_doubt());
  run(6, 1.6, 1);
  EXPECT_TRUE(loads_.is_in_doubt());
  run(0, 1, 1);
  EXPECT_FALSE(loads_.is_in_doubt());
  EXPECT_LT(expected(6), 0.15) << "its knobs are slow";
}

TEST_F(LoadsTest, OneThatComesEarlyAndStaysDoesNotMakeTheFirstMembersFast) {
  run(0, 1, 1);
  run(1, 1.2, 1.1);
  for (std::size_t member = 2; member < 12; ++member) {
    run(member, 1.5, 1);
    if (member % 4 == 0) run(0, 1.5, 1);
  }
  run_in_turns({{1, 1.8}, {2, 1.5}, {3, 1.5}, {4, 1.5}});
  run_in_turns({{4, 1.5}, {3, 1.5}, {2, 1.5}, {1, 1.8}});
  const double load = std::log(1.5);
  for (std::size_t member = 2; member < 12; ++member) EXPECT_NEAR(expected(member), load, 0.06);
  EXPECT_NEAR(expected(1, 1), load, 0.06);
  EXPECT_NEAR(expected(0), 0, 0.03);
  EXPECT_NEAR(expected(1), 0, 0.03);
}

TEST_F(LoadsTest, RunsThatTookTurnsHaveOneLoad) {
  for (std::size_t member = 0; member < 3; ++member) run(member, 1);
  for (int round = 0; round < 3; ++round) run_in_turns({{0, 1.5}, {1, 1.6}, {2, 1.4}});
  EXPECT_NEAR(expected(0, 1), std::log(1.5), 0.05);
  for (const std::size_t member : {1U, 2U}) EXPECT_EQ(expected(member, 1), expected(0, 1));
}

TEST_F(LoadsTest, WhatIsForgottenTellsNothing) {
  run(0, 1);
  run(0, 1.5);
  run(0, 1.5);
  EXPECT_GT(loads_.now().expected, 0.2);
  loads_.forget(0);
  loads_.update();
  EXPECT_EQ(loads_.now().expected, 0);
  EXPECT_EQ(expected(0, 1), 0);
}

/// A search of members that take a second a step, as was predicted. One runs after the other.
class ControlsTest : public testing::Test {
 protected:
  static constexpr std::size_t num_members = 40;

  ControlsTest() {
    std::vector<Row> rows;
    for (std::size_t member = 0; member < num_members; ++member) {
      Row row = test::row_of(test::sample_record("m" + std::to_string(member), 1));
      row.planned.predicted.throughput = static_cast<double>(batch_of(row.planned.experiment));
      row.record.reset();
      rows.push_back(row);
    }
    scoreboard_.emplace(ScoreboardSetup{}, rows);
    policy_.emplace(*scoreboard_, RunAgainPolicy::Options{.has_controls = true});
  }

  /// `slower`: by the load. Returns the control that follows.
  std::optional<RunAgain> run_next(double slower = 1, double step_s = 1) {
    const Row& row = scoreboard_->row(num_ended_);
    Record record = test::sample_record(row.planned.experiment.name, 1);
    record.predicted = row.planned.predicted;
    time(record, slower * step_s, 1);
    scoreboard_->record(num_ended_++, std::move(record));
    const auto control = policy_->during_search(HUGE_VAL);
    if (!control) return control;
    Repeat repeat = test::repeat_of(*control->kind, control->round, 1);
    const double began_s = now_s_;
    time(repeat, slower, control->slice_share);
    controls_s_ += now_s_ - began_s;
    scoreboard_->repeat(control->member, std::move(repeat));
    return control;
  }
  double value(std::size_t member) const { return scoreboard_->observed_value(member)->value; }

  std::optional<Scoreboard> scoreboard_;
  std::optional<RunAgainPolicy> policy_;
  std::size_t num_ended_ = 0;
  double now_s_ = 0, controls_s_ = 0;

 private:
  template <class EndedRun>
  void time(EndedRun& run, double step_s, double slice_share) {
    std::vector<double>& steps_s = run.measurement.step_times_s;
    const auto num_steps = static_cast<std::size_t>(std::lround(30 * slice_share));
    run.measurement.warmup_steps = 1;
    steps_s = {2 * step_s};
    while (steps_s.size() <= num_steps)
      steps_s.push_back(step_s * (steps_s.size() % 2 ? 0.99 : 1.01));
    const auto at = [](double s) {
      return std::chrono::system_clock::time_point(
          std::chrono::duration_cast<std::chrono::system_clock::duration>(
              std::chrono::duration<double>(s)));
    };
    run.started_at = at(now_s_);
    run.finished_at = at(now_s_ += std::accumulate(steps_s.begin(), steps_s.end(), 0.0));
  }
};

TEST_F(ControlsTest, AreRareWithoutALoad) {
  int controls = 0;
  while (num_ended_ < num_members) controls += run_next() ? 1 : 0;
  EXPECT_GE(controls, 1);
  EXPECT_LE(controls, 5);
  EXPECT_LT(controls_s_ / now_s_, 0.1);
}

TEST_F(ControlsTest, OneFollowsARunThatIsSlowerThanExpected) {
  while (num_ended_ < 10) run_next();
  const auto control = run_next(1.5);
  ASSERT_TRUE(control);
  EXPECT_EQ(control->kind, RepeatKind::control);
  EXPECT_LT(control->slice_share, 1);
  EXPECT_NEAR(scoreboard_->load_now().expected, std::log(1.5), 0.05);
  run_next(1.5);
  // What the tuner hears is as without the load.
  EXPECT_NEAR(value(10) / value(0), 1, 0.03);
  EXPECT_NEAR(value(11) / value(0), 1, 0.03);
  EXPECT_NEAR(scoreboard_->first_value(10, Metric::throughput)->value / value(0), 1 / 1.5, 0.01);
}

TEST_F(ControlsTest, OnesOwnKnobsAreNoLoad) {
  while (num_ended_ < 10) run_next();
  EXPECT_TRUE(run_next(1, 1.5)) << "it may be a load";
  EXPECT_NEAR(value(10) / value(0), 1 / 1.5, 0.05);
}

TEST_F(ControlsTest, AreOnlyMadeWhereTheyAreAskedFor) {
  RunAgainPolicy policy(*scoreboard_, {});
  while (num_ended_ < num_members) {
    run_next(num_ended_ > 10 ? 1.5 : 1);
    EXPECT_FALSE(policy.during_search(HUGE_VAL));
  }
}

}  // namespace
}  // namespace dstune
