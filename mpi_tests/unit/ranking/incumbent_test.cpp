#include <cmath>

#include <gtest/gtest.h>

#include "dstune/ranking/scoreboard.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

/// The best one takes `step_s`, of 16 samples in bf16, with one optimizer step of overhead.
test::Draft incumbent(double step_s) {
  test::Draft draft = test::draft_of({step_s});
  of(draft.rows[0].overheads, Overhead::optimizer_step) = 1;
  return draft;
}

/// Of 8 samples.
Experiment challenger() {
  Experiment experiment = test::sample_experiment("challenger");
  experiment.config.accumulation_steps = 1;
  return experiment;
}

Overheads counts_of(double optimizer_steps) {
  Overheads counts{};
  of(counts, Overhead::optimizer_step) = optimizer_steps;
  return counts;
}

TEST(IncumbentTest, WithoutACalibrationWorkAloneCounts) {
  const Scoreboard scoreboard = incumbent(2).scoreboard();
  const IncumbentEstimate estimate = incumbent_estimate(scoreboard, challenger(), counts_of(5));
  EXPECT_DOUBLE_EQ(estimate.step_s, 1);
  EXPECT_DOUBLE_EQ(estimate.standard_error, estimate.spread) << "steps do not differ, runs do";
  EXPECT_EQ(incumbent_estimate(Scoreboard(), challenger(), {}).step_s, 0);
}

TEST(IncumbentTest, IsComparedInTheTargetsTime) {
  test::Draft draft = incumbent(2);
  draft.target = test::constants_of(1, {0.5});
  draft.target->time.scale = {1, 3, 4};
  Experiment other = challenger();
  other.config.precision = Precision::fp16;
  const IncumbentEstimate estimate = incumbent_estimate(draft.scoreboard(), other, counts_of(2));
  // 3 · 2 + 0.5 = 6.5 s there, half of it for half of the work, less 2 · 0.5, over 4.
  EXPECT_NEAR(estimate.step_s, 2.25 / 4, 1e-12);
  // 1 % of 2 s is 3 · 0.02 / 2 / 4 s of the challenger's.
  EXPECT_NEAR(estimate.standard_error, 0.0075 / (2.25 / 4), 3e-4);
  EXPECT_NEAR(estimate.spread, 0.01, 1e-12) << "of the challenger's own run";
}

TEST(IncumbentTest, AScaleAloneChangesNoRace) {
  test::Draft draft = incumbent(2);
  const IncumbentEstimate own = incumbent_estimate(draft.scoreboard(), challenger(), counts_of(1));
  draft.target = test::constants_of(7);
  const IncumbentEstimate estimate =
      incumbent_estimate(draft.scoreboard(), challenger(), counts_of(1));
  EXPECT_NEAR(estimate.step_s, own.step_s, 1e-12);
  EXPECT_NEAR(estimate.standard_error, own.standard_error, 1e-9);
  EXPECT_EQ(estimate.degrees_of_freedom, own.degrees_of_freedom);
}

TEST(IncumbentTest, WhoseOverheadsCostTooMuchLosesAtTheFirstLook) {
  test::Draft draft = incumbent(2);
  draft.target = test::constants_of(1, {0.5});
  const IncumbentEstimate estimate =
      incumbent_estimate(draft.scoreboard(), challenger(), counts_of(3));
  EXPECT_DOUBLE_EQ(estimate.step_s, 0.002);
  EXPECT_TRUE(has_lost_race({0.1, 0.1, 0.1, 0.1, 0.1}, estimate));
  const IncumbentEstimate fair = incumbent_estimate(draft.scoreboard(), challenger(), counts_of(1));
  EXPECT_FALSE(has_lost_race({0.1, 0.1, 0.1, 0.1, 0.1}, fair));
}

TEST(IncumbentTest, ALostRaceIsToldInTheTargetsTime) {
  test::Draft draft = incumbent(2);
  Measurement lost;
  lost.step_times_s = {9, 1.5, 1.5, 1.5, 1.5, 1.5};
  lost.warmup_steps = 1;
  // A step of half of the work.
  EXPECT_EQ(lost_race_text(draft.scoreboard(), challenger(), counts_of(3), lost),
            "stopped after 5 steps: clearly slower than the best so far (1.5 times as long for the "
            "same work)");
  // 1.5 + 3 · 0.5 s beside half of 2 + 0.5 s: no step here is short enough for that.
  draft.target = test::constants_of(1, {0.5});
  EXPECT_EQ(lost_race_text(draft.scoreboard(), challenger(), counts_of(3), lost),
            "stopped after 5 steps: clearly slower than the best so far (2.4 times as long for the "
            "same work)");
  lost.step_times_s = {9, 0.5, 0.5, 0.5, 0.5, 0.5};
  EXPECT_EQ(lost_race_text(draft.scoreboard(), challenger(), counts_of(1), lost), "");
  EXPECT_EQ(lost_race_text(Scoreboard(), challenger(), counts_of(1), lost), "");
}

TEST(IncumbentTest, WhatTheHostHidesIsNoError) {
  test::Draft draft = incumbent(2);
  draft.rows[0].overheads = {0, 1};
  // A module's, which the host calls while the device works.
  draft.target = test::constants_of(1, {0, 10});
  draft.target->time.is_device_behind_host = true;
  // The host takes 10 s, 5 s for half of the work, of which it needs 0.2 · 10 itself.
  const IncumbentEstimate estimate = incumbent_estimate(draft.scoreboard(), challenger(), {0, 0.2});
  EXPECT_NEAR(estimate.step_s, 5, 1e-12);
  EXPECT_NEAR(estimate.standard_error, 0, 1e-12);
  EXPECT_GT(estimate.spread, 0);
}

}  // namespace
}  // namespace dstune
