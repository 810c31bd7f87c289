#include "dstune/search/calibration.hpp"

#include <gtest/gtest.h>

namespace dstune {
namespace {

TEST(FitTime, OnePointGivesTheScale) {
  const TimeCalibration fit = fit_time({{2, 3, 4}}, 50);
  EXPECT_DOUBLE_EQ(fit.scale, 1.5);
  EXPECT_EQ(fit.module_cost_s, 0);
  EXPECT_DOUBLE_EQ(fit.target_s(10, 7), 15);
}

TEST(FitTime, TwoPointsTellHostAndKernelsApart) {
  // Twice as slow, and 1 ms a module.
  const auto target_s = [](double measured_s, int micro_steps) {
    return 2 * measured_s + 0.001 * 50 * micro_steps;
  };
  const TimeCalibration fit = fit_time(
      {{0.5, target_s(0.5, 1), 1}, {0.5, target_s(0.5, 8), 8}, {2, target_s(2, 1), 1}}, 50);
  EXPECT_NEAR(fit.scale, 2, 0.002);
  EXPECT_NEAR(fit.module_cost_s, 0.001, 1e-5);
  EXPECT_NEAR(fit.target_s(1, 4), target_s(1, 4), 0.005);
}

TEST(FitTime, PointsThatTellNothingApartGiveTheScale) {
  const TimeCalibration same = fit_time({{1, 3, 2}, {1, 3, 2}}, 50);
  EXPECT_NEAR(same.target_s(1, 2), 3, 1e-3);
  // More micro-steps were faster than they should be: no host cost explains that.
  const TimeCalibration negative = fit_time({{1, 3, 1}, {1, 2, 8}}, 50);
  EXPECT_EQ(negative.module_cost_s, 0);
  EXPECT_GT(negative.scale, 2);
  EXPECT_LT(negative.scale, 3);
}

TEST(FitTime, WithoutModulesThereIsNoHostCost) {
  EXPECT_EQ(fit_time({{1, 3, 1}, {1, 4, 8}}, 0).module_cost_s, 0);
}

}  // namespace
}  // namespace dstune
