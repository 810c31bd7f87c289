#include <gtest/gtest.h>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {
namespace {

/// Of a model with 40 modules and 80 parameters, 100 MB of them.
Overheads overheads(int stage, double micro_steps) {
  const double reductions = stage < 2 ? 1 : micro_steps;
  return {1, 40 * micro_steps, stage == 0 ? 0 : 80 * reductions, stage == 3 ? 40 * micro_steps : 0,
          1e8 * (stage == 3 ? 2 * micro_steps : reductions + (stage > 0 ? 1 : 0))};
}

/// Twice as slow here, and what each overhead costs.
double truth_s(double measured_s, const Overheads& counts) {
  return TimeCalibration{2, {5e-3, 0.2e-3, 0.1e-3, 1.5e-3, 0.7e-9}}.target_s(measured_s, counts);
}

CalibrationPoint point(double measured_s, int stage, double micro_steps) {
  const Overheads counts = overheads(stage, micro_steps);
  return {measured_s, truth_s(measured_s, counts), counts};
}

double error_of(const TimeCalibration& fit, double measured_s, int stage, double micro_steps) {
  const Overheads counts = overheads(stage, micro_steps);
  return fit.target_s(measured_s, counts) / truth_s(measured_s, counts) - 1;
}

TEST(FitTime, OnePointGivesTheScale) {
  const TimeCalibration fit = fit_time({{2, 3, overheads(3, 4)}});
  EXPECT_EQ(fit, (TimeCalibration{1.5, {}}));
  EXPECT_DOUBLE_EQ(fit.target_s(10, overheads(2, 7)), 15);
}

TEST(FitTime, PointsOfSeveralStagesTellWhatCosts) {
  const TimeCalibration fit =
      fit_time({point(0.3, 0, 1), point(1.5, 2, 4), point(1.4, 3, 4), point(2, 0, 8)});
  for (const int stage : {0, 1, 2, 3}) {
    for (const double micro_steps : {1, 4, 8}) {
      EXPECT_NEAR(error_of(fit, 0.5, stage, micro_steps), 0, 0.06)
          << stage << " with " << micro_steps;
    }
  }
}

TEST(FitTime, WhatIsAlikeGivesTheScale) {
  const CalibrationPoint same = point(5, 0, 1);
  const TimeCalibration fit = fit_time({same, same});
  EXPECT_NEAR(fit.target_s(5, overheads(0, 1)), same.target_s, 1e-3);
  EXPECT_NEAR(fit.scale, 2, 0.05);
}

TEST(FitTime, NothingCostsLessThanNothing) {
  // More micro-steps were faster than they should be: no overhead explains that.
  const TimeCalibration fit = fit_time({{1, 3, overheads(0, 1)}, {1, 2, overheads(0, 8)}});
  EXPECT_EQ(fit.costs_s[static_cast<std::size_t>(Overhead::module_call)], 0);
  EXPECT_GT(fit.scale, 2);
  EXPECT_LT(fit.scale, 3);
}

TEST(FitTime, AStepIsNeverOverheadsAlone) {
  // Here one is a hundred times as long as the other, there both are alike.
  const TimeCalibration fit = fit_time({{0.01, 1, overheads(3, 1)}, {1, 1, overheads(3, 1)}});
  EXPECT_GT(fit.scale, 0);
}

TEST(FitTime, WithoutOverheadsThereIsAScale) {
  const TimeCalibration fit = fit_time({{1, 3, {}}, {1, 4, {}}});
  EXPECT_EQ(fit.costs_s, Overheads{});
  EXPECT_GT(fit.scale, 3);
  EXPECT_LT(fit.scale, 4);
}

}  // namespace
}  // namespace dstune
