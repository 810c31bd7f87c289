#include "dstune/ranking/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

/// Of a model with 40 modules and 80 parameters, 100 MB of them.
Overheads overheads(int stage, double micro_steps) {
  const double reductions = stage < 2 ? 1 : micro_steps;
  Overheads counts{};
  of(counts, Overhead::optimizer_step) = 1;
  of(counts, Overhead::module_call) = 40 * micro_steps;
  of(counts, Overhead::gradient_hook) = stage == 0 ? 0 : 80 * reductions;
  of(counts, Overhead::gathering_hook) = stage == 3 ? 40 * micro_steps : 0;
  of(counts, Overhead::communicated_byte) =
      1e8 * (stage == 3 ? 2 * micro_steps : reductions + (stage > 0 ? 1 : 0));
  return counts;
}

/// Twice as slow there, and what each overhead costs.
TimeCalibration truth() {
  TimeCalibration calibration = test::calibration_of(2, {5e-3, 0.2e-3, 0.1e-3, 1.5e-3});
  of(calibration.costs_s, Overhead::communicated_byte) = 0.7e-9;
  return calibration;
}

CalibrationPoint point(const TimeCalibration& truth, double measured_s, int stage,
                       double micro_steps, Precision precision = Precision::fp32) {
  const Overheads counts = overheads(stage, micro_steps);
  return {measured_s, truth.target_s(measured_s, precision, counts), precision, counts};
}

CalibrationPoint pair(double measured_s, double target_s, const Overheads& counts = {}) {
  return {measured_s, target_s, Precision::fp32, counts};
}

std::vector<CalibrationPoint> all_points(const TimeCalibration& truth) {
  std::vector<CalibrationPoint> points;
  for (const int stage : {0, 1, 2, 3})
    for (const double micro_steps : {1, 2, 8})
      for (const double measured_s : {0.01, 0.1, 1.0})
        points.push_back(point(truth, measured_s, stage, micro_steps));
  return points;
}

double error_of(const TimeCalibration& fit, double measured_s, int stage, double micro_steps) {
  const Overheads counts = overheads(stage, micro_steps);
  return fit.target_s(measured_s, Precision::fp32, counts) /
             truth().target_s(measured_s, Precision::fp32, counts) -
         1;
}

double cost_s(const TimeCalibration& calibration, Overhead overhead) {
  return calibration.costs_s[static_cast<std::size_t>(overhead)];
}

TEST(FitTime, OnePointGivesTheScale) {
  const TimeCalibration fit = fit_time({pair(2, 3, overheads(3, 4))}, unknown_target());
  EXPECT_EQ(fit, test::calibration_of(1.5));
  EXPECT_DOUBLE_EQ(fit.target_s(10, Precision::bf16, overheads(2, 7)), 15);
}

/// To points of several stages.
TimeCalibration fit_of_four() {
  return fit_time({point(truth(), 0.3, 0, 1), point(truth(), 1.5, 2, 4), point(truth(), 1.4, 3, 4),
                   point(truth(), 2, 0, 8)},
                  unknown_target());
}

TEST(FitTime, PointsOfSeveralStagesTellWhatCosts) {
  const TimeCalibration fit = fit_of_four();
  for (const int stage : {0, 1, 2, 3}) {
    for (const double micro_steps : {1, 4, 8})
      EXPECT_NEAR(error_of(fit, 0.5, stage, micro_steps), 0, 0.06)
          << stage << " with " << micro_steps;
  }
}

/// Figures of the fit that had one scale and five costs, and no prior but theirs.
TEST(FitTime, WithoutAPriorItIsTheRidgeOfBefore) {
  const TimeCalibration fit = fit_of_four();
  EXPECT_NEAR(fit.scale[0], 2.018352345754, 1e-9);
  EXPECT_NEAR(cost_s(fit, Overhead::optimizer_step), 0, 1e-9);
  EXPECT_NEAR(cost_s(fit, Overhead::module_call), 5.435082879966e-07, 1e-9);
  EXPECT_NEAR(cost_s(fit, Overhead::gradient_hook), 5.555732016217e-06, 1e-9);
  EXPECT_NEAR(cost_s(fit, Overhead::gathering_hook), 0.0007253629508241, 1e-9);
  EXPECT_NEAR(cost_s(fit, Overhead::communicated_byte), 8.380730458584e-10, 1e-15);
}

/// The share stays a share, whatever factor all times have.
TEST(FitTime, RecomputeIsToldApartFromTheScale) {
  TimeCalibration there = test::calibration_of(2);
  of(there.costs_s, Overhead::recompute) = 0.2;
  std::vector<CalibrationPoint> points;
  for (const double measured_s : {0.1, 0.2, 0.4, 0.8}) {
    for (const double recompute : {0, 1}) {
      Overheads counts{};
      of(counts, Overhead::recompute) = recompute;
      points.push_back(
          pair(measured_s, there.target_s(measured_s, Precision::fp32, counts), counts));
    }
  }
  // All costs are drawn to 0, as if some runs had said so. A hundred of each point outweigh them.
  EXPECT_LT(cost_s(fit_time(points, unknown_target()), Overhead::recompute), 0.19);
  std::vector<CalibrationPoint> many;
  for (int copy = 0; copy < 100; ++copy) many.insert(many.end(), points.begin(), points.end());
  const TimeCalibration fit = fit_time(many, unknown_target());
  EXPECT_NEAR(fit.scale[0], 2, 1e-3);
  EXPECT_NEAR(cost_s(fit, Overhead::recompute), 0.2, 1e-3);
  // One run changes all times by one factor, and no share.
  TargetConstants known = test::constants_of(1);
  of(known.time.costs_s, Overhead::recompute) = 0.2;
  const TimeCalibration one = fit_time({points.back()}, prior_of(known));
  EXPECT_NEAR(one.scale[0], 2, 1e-9);
  EXPECT_EQ(cost_s(one, Overhead::recompute), 0.2);
  const TimeCalibration all = fit_time(points, prior_of(known));
  EXPECT_NEAR(cost_s(all, Overhead::recompute), 0.2, 1e-3);
}

TEST(FitTime, WhatIsAlikeGivesTheScale) {
  const CalibrationPoint same = point(truth(), 5, 0, 1);
  const TimeCalibration fit = fit_time({same, same}, unknown_target());
  EXPECT_NEAR(fit.target_s(5, Precision::fp32, overheads(0, 1)), same.target_s, 1e-3);
  EXPECT_NEAR(fit.scale[0], 2, 0.05);
}

TEST(FitTime, NothingCostsLessThanNothing) {
  // More micro-steps were faster than they should be: no overhead explains that.
  const TimeCalibration fit =
      fit_time({pair(1, 3, overheads(0, 1)), pair(1, 2, overheads(0, 8))}, unknown_target());
  EXPECT_EQ(cost_s(fit, Overhead::module_call), 0);
  EXPECT_GT(fit.scale[0], 2);
  EXPECT_LT(fit.scale[0], 3);
}

TEST(FitTime, AStepIsNeverOverheadsAlone) {
  // Here one is a hundred times as long as the other, there both are alike.
  for (const CalibrationPrior& prior :
       {unknown_target(), prior_of(test::constants_of(2, truth().costs_s))}) {
    const TimeCalibration fit =
        fit_time({pair(0.01, 1, overheads(3, 1)), pair(1, 1, overheads(3, 1))}, prior);
    EXPECT_GT(fit.scale[0], 0);
  }
}

TEST(FitTime, WithoutOverheadsThereIsAScale) {
  const TimeCalibration fit = fit_time({pair(1, 3), pair(1, 4)}, unknown_target());
  EXPECT_EQ(fit.costs_s, Overheads{});
  EXPECT_GT(fit.scale[0], 3);
  EXPECT_LT(fit.scale[0], 4);
}

/// The program's constants: their machine has other ratios of precisions, and costs.
TargetConstants constants() {
  TargetConstants constants = test::constants_of(2, truth().costs_s);
  constants.time.scale = {2, 3, 5};
  return constants;
}

TimeCalibration times(double factor, TimeCalibration calibration) {
  for (double& scale : calibration.scale) scale *= factor;
  for (double& cost_s : calibration.costs_s) cost_s *= factor;
  return calibration;
}

void expect_near(const TimeCalibration& fit, const TimeCalibration& expected, double relative) {
  for (std::size_t each = 0; each < num_precisions; ++each)
    EXPECT_NEAR(fit.scale[each], expected.scale[each], relative * expected.scale[each]);
  for (std::size_t each = 0; each < num_overheads; ++each)
    EXPECT_NEAR(fit.costs_s[each], expected.costs_s[each], relative * expected.costs_s[each])
        << each;
}

TEST(FitWithConstants, OnePointMovesKernelsAndCostsAlike) {
  const TimeCalibration other = times(1.7, constants().time);
  const TimeCalibration fit =
      fit_time({point(other, 0.4, 3, 4, Precision::bf16)}, prior_of(constants()));
  expect_near(fit, other, 1e-12);
}

TEST(FitWithConstants, WhatAgreesWithThemKeepsThem) {
  const TimeCalibration other = times(0.3, constants().time);
  const TimeCalibration fit =
      fit_time({point(other, 0.4, 3, 4, Precision::bf16), point(other, 2, 0, 1, Precision::fp16),
                point(other, 1, 2, 8)},
               prior_of(constants()));
  expect_near(fit, other, 1e-9);
}

TEST(FitWithConstants, TwoPointsTellCostsFromKernels) {
  // A network three times as slow, and all else as it was.
  TimeCalibration slow = constants().time;
  of(slow.costs_s, Overhead::communicated_byte) = 2.1e-9;
  const CalibrationPoint silent = point(slow, 3, 0, 1);
  const CalibrationPoint loud = point(slow, 0.5, 3, 8);
  const TimeCalibration fit = fit_time({silent, loud}, prior_of(constants()));
  const auto error_of_point = [](const TimeCalibration& of, const CalibrationPoint& at) {
    return of.target_s(at.measured_s, at.precision, at.overheads) / at.target_s - 1;
  };
  for (const CalibrationPoint& each : {silent, loud})
    EXPECT_LT(std::abs(error_of_point(fit, each)), 0.05);
  EXPECT_LT(error_of_point(fit_time({silent}, prior_of(constants())), loud), -0.3)
      << "one run could not tell";
  EXPECT_GT(cost_s(fit, Overhead::communicated_byte), 2 * 0.7e-9);
}

TEST(FitWithConstants, ManyPointsRecoverTheTrueCosts) {
  TimeCalibration other = times(1.5, constants().time);
  of(other.costs_s, Overhead::module_call) = 0.05e-3;
  of(other.costs_s, Overhead::gathering_hook) = 3e-3;
  const TimeCalibration fit = fit_time(all_points(other), prior_of(constants()));
  EXPECT_NEAR(fit.scale[0], 3, 0.05);
  EXPECT_NEAR(fit.scale[2] / fit.scale[0], 2.5, 1e-9) << "no point was of fp16";
  EXPECT_NEAR(cost_s(fit, Overhead::module_call), 0.05e-3, 0.02e-3);
  EXPECT_NEAR(cost_s(fit, Overhead::gathering_hook), 3e-3, 0.2e-3);
}

TEST(FitWithConstants, WhatNoPointHasKeepsTheConstant) {
  const TimeCalibration other = times(1.5, constants().time);
  // No hooks at stage 0.
  const TimeCalibration fit =
      fit_time({point(other, 0.4, 0, 1), point(other, 0.4, 0, 8)}, prior_of(constants()));
  EXPECT_NEAR(cost_s(fit, Overhead::gathering_hook), 1.5 * 1.5e-3, 1e-9);
}

TEST(FitWithConstants, BehindTheHostTheShorterTimeTellsNothing) {
  TargetConstants gpu = constants();
  gpu.time.is_device_behind_host = true;
  TimeCalibration other = gpu.time;
  of(other.costs_s, Overhead::module_call) = 0.3e-3;
  // Devices take so long that hosts do not show …
  const TimeCalibration of_devices =
      fit_time({point(other, 3, 2, 1), point(other, 4, 2, 8)}, prior_of(gpu));
  EXPECT_NEAR(cost_s(of_devices, Overhead::module_call), 0.2e-3, 1e-9);
  EXPECT_NEAR(of_devices.scale[0], 2, 1e-6);
  EXPECT_TRUE(of_devices.is_device_behind_host);
  // … or so short that they alone show.
  const TimeCalibration of_hosts =
      fit_time({point(other, 1e-4, 2, 1), point(other, 1e-4, 2, 8)}, prior_of(gpu));
  EXPECT_GT(cost_s(of_hosts, Overhead::module_call), 0.205e-3);
  EXPECT_GT(of_hosts.scale[0], 0);
}

TEST(PriorTest, KnowsConstantsToAFifth) {
  const CalibrationPrior prior = prior_of(test::constants_of(2, {0.1}));
  EXPECT_EQ(prior.mean, test::calibration_of(2, {0.1}));
  EXPECT_DOUBLE_EQ(prior.deviations_s[0], 0.02) << "a fifth of the cost";
  const CalibrationPrior unknown = unknown_target();
  for (std::size_t each = 1; each < num_overheads; ++each) {
    EXPECT_GT(unknown.deviations_s[each], 0);
    EXPECT_DOUBLE_EQ(prior.deviations_s[each], unknown.deviations_s[each] / 5);
  }
}

TEST(BelievedTimes, WithoutRunsTheyAreTheConstants) {
  const std::vector<CalibrationPoint> members = all_points(constants().time);
  const std::vector<BelievedTime> believed = believed_times(members, {}, constants());
  ASSERT_EQ(believed.size(), members.size());
  for (std::size_t member = 0; member < members.size(); ++member) {
    EXPECT_NEAR(believed[member].target_s, members[member].target_s,
                1e-9 * members[member].target_s);
    double squares = 0;
    for (const double each : believed[member].unknowns) squares += each * each;
    EXPECT_NEAR(believed[member].deviation, std::sqrt(squares), 1e-9);
    EXPECT_GT(believed[member].deviation, 0.2) << "another machine";
  }
}

TEST(BelievedTimes, ARunTellsMostOfWhatItResembles) {
  const std::vector<CalibrationPoint> members = all_points(constants().time);
  const std::vector<BelievedTime> before = believed_times(members, {}, constants());
  const std::vector<BelievedTime> after = believed_times(members, {members.back()}, constants());
  for (std::size_t member = 0; member < members.size(); ++member)
    EXPECT_LT(after[member].deviation, before[member].deviation);
  EXPECT_LT(after.back().deviation, default_policy().calibrating.error_of_believed_time);
  EXPECT_GT(after.front().deviation, 2 * default_policy().calibrating.error_of_believed_time)
      << "another stage, a short step";
}

TEST(BelievedTimes, AFewRunsFindAMachineWhoseHostAndNetworkAreOthers) {
  TimeCalibration other = constants().time;
  for (std::size_t each = 0; each < num_overheads; ++each)
    other.costs_s[each] *= is_of_network(static_cast<Overhead>(each)) ? 2.5 : 0.6;
  const std::vector<CalibrationPoint> members = all_points(other);
  const std::vector<CalibrationPoint> runs = {members[0], members[8], members[20], members[33]};
  double error_before = 0, error_after = 0;
  const std::vector<BelievedTime> before = believed_times(members, {}, constants());
  const std::vector<BelievedTime> after = believed_times(members, runs, constants());
  for (std::size_t member = 0; member < members.size(); ++member) {
    const double truth_s = members[member].target_s;
    error_before = std::max(error_before, std::abs(before[member].target_s / truth_s - 1));
    error_after = std::max(error_after, std::abs(after[member].target_s / truth_s - 1));
  }
  EXPECT_GT(error_before, 0.3);
  EXPECT_LT(error_after, 0.1);
}

TEST(BelievedTimes, AreNeverOverheadsAlone) {
  // Here one is a hundred times as long as the other, there both are alike.
  const std::vector<CalibrationPoint> runs = {pair(0.01, 1, overheads(3, 1)),
                                              pair(1, 1, overheads(3, 1))};
  for (const auto& known : {std::optional(constants()), std::optional<TargetConstants>()}) {
    const std::vector<BelievedTime> believed = believed_times(runs, runs, known);
    EXPECT_GT(believed[1].target_s, 1.01 * believed[0].target_s);
    for (const BelievedTime& one : believed) EXPECT_TRUE(std::isfinite(one.deviation));
  }
}

TEST(BelievedTimes, WithoutConstantsOneRunGivesTheScale) {
  const std::vector<CalibrationPoint> members = {pair(2, 0), pair(8, 0)};
  const std::vector<BelievedTime> believed = believed_times(members, {pair(2, 3)}, std::nullopt);
  EXPECT_NEAR(believed[1].target_s, 12, 0.1);
}

/// Machines are drawn about the constants as the prior has them. What is believed after some runs
/// is off by as much as it says.
TEST(BelievedTimes, AreOffByAsMuchAsTheySay) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto factor = [&](double deviation) {
    return std::max(0.1, 1 + deviation * normal(random));
  };
  double squares = 0, count = 0;
  for (int machine = 0; machine < 60; ++machine) {
    TimeCalibration other = constants().time;
    const double scale = factor(0.5), host = factor(0.4), network = factor(0.3);
    for (double& each : other.scale) each *= scale;
    for (std::size_t each = 0; each < num_overheads; ++each)
      other.costs_s[each] *=
          factor(0.3) * (is_of_network(static_cast<Overhead>(each)) ? network : host);
    std::vector<CalibrationPoint> members = all_points(other);
    for (CalibrationPoint& member : members)
      member.target_s *=
          std::exp(default_policy().calibrating.error_of_believed_time * normal(random));
    std::ranges::shuffle(members, random);
    const std::vector<CalibrationPoint> runs(members.begin(), members.begin() + 5);
    const std::vector<BelievedTime> believed = believed_times(members, runs, constants());
    for (std::size_t member = runs.size(); member < members.size(); ++member, ++count)
      squares += std::pow(std::log(members[member].target_s / believed[member].target_s), 2) /
                 (std::pow(believed[member].deviation, 2) +
                  std::pow(default_policy().calibrating.error_of_believed_time, 2));
  }
  EXPECT_NEAR(std::sqrt(squares / count), 1, 0.25);
}

}  // namespace
}  // namespace dstune
