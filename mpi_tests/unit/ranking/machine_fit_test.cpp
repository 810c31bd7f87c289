// This machine's constants, from tiny engines whose truth is known.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {
namespace {

Overheads with(std::initializer_list<std::pair<Overhead, double>> counts) {
  Overheads all{};
  for (const auto& [overhead, count] : counts) of(all, overhead) = count;
  return all;
}

/// As tiny engines of each ZeRO stage count.
std::vector<Overheads> tiny_counts(bool has_stage_3 = true) {
  using enum Overhead;
  std::vector<Overheads> all = {
      with(
          {{optimizer_step, 1}, {module_call, 20}, {all_reduce_call, 1}, {communicated_byte, 5e5}}),
      with(
          {{optimizer_step, 1}, {module_call, 80}, {all_reduce_call, 1}, {communicated_byte, 3e6}}),
      with({{optimizer_step, 1},
            {module_call, 20},
            {reduce_call, 12},
            {all_gather_call, 12},
            {communicated_byte, 1.5e7}}),
      with({{optimizer_step, 1},
            {module_call, 40},
            {reduce_call, 1},
            {all_gather_call, 1},
            {communicated_byte, 2.5e7}})};
  if (!has_stage_3) return all;
  all.push_back(with({{optimizer_step, 1},
                      {module_call, 80},
                      {gathering_hook, 200},
                      {reduce_scatter_call, 2},
                      {all_gather_call, 20},
                      {communicated_byte, 4e6}}));
  all.push_back(with({{optimizer_step, 1},
                      {module_call, 20},
                      {gathering_hook, 60},
                      {reduce_scatter_call, 8},
                      {all_gather_call, 16},
                      {communicated_byte, 2e7}}));
  return all;
}

/// Of a machine whose host is slower or faster than the recorded one, and its network, too.
TimeCalibration truth_of(double host, double network) {
  TimeCalibration truth = target_constants(false).time;
  for (std::size_t each = 0; each < num_overheads; ++each)
    truth.costs_s[each] *= is_of_network(static_cast<Overhead>(each)) ? network : host;
  return truth;
}

/// `noise`: relative, in turns more and less.
std::vector<CalibrationPoint> points_of(const TimeCalibration& truth,
                                        const std::vector<Overheads>& counts, double noise = 0) {
  std::vector<CalibrationPoint> points;
  double sign = 1;
  for (const Overheads& one : counts) {
    const double measured_s =
        0.002 + 1e-10 * one[static_cast<std::size_t>(Overhead::communicated_byte)];
    const double target_s = truth.target_s(measured_s, Precision::fp32, one);
    points.push_back({measured_s, target_s * (1 + sign * noise), Precision::fp32, one});
    sign = -sign;
  }
  return points;
}

/// Of a step that no tiny engine has: longer, with many calls and bytes.
double error_of(const TimeCalibration& fit, const TimeCalibration& truth) {
  using enum Overhead;
  const Overheads counts = with({{optimizer_step, 1},
                                 {module_call, 200},
                                 {gathering_hook, 400},
                                 {reduce_scatter_call, 20},
                                 {all_gather_call, 60},
                                 {communicated_byte, 2e8}});
  return fit.target_s(0.5, Precision::fp32, counts) / truth.target_s(0.5, Precision::fp32, counts) -
         1;
}

double one_cost_s(const TimeCalibration& time, Overhead overhead) {
  return time.costs_s[static_cast<std::size_t>(overhead)];
}

TEST(FitMachine, FindsASlowerHostAndAFasterNetwork) {
  for (const auto& [host, network] :
       {std::pair{1.0, 1.0}, std::pair{2.5, 0.4}, std::pair{0.5, 3.0}}) {
    const TimeCalibration truth = truth_of(host, network);
    const TargetConstants fit =
        fit_machine(points_of(truth, tiny_counts()), target_constants(false));
    EXPECT_NEAR(error_of(fit.time, truth), 0, 0.02) << host << ", " << network;
    EXPECT_LT(fit.fit_error, 0.01);
    EXPECT_NEAR(one_cost_s(fit.time, Overhead::gathering_hook) /
                    one_cost_s(truth, Overhead::gathering_hook),
                1, 0.05);
    EXPECT_NEAR(one_cost_s(fit.time, Overhead::communicated_byte) /
                    one_cost_s(truth, Overhead::communicated_byte),
                1, 0.05);
  }
}

TEST(FitMachine, IsNearWhereTimesAreNoisy) {
  const TimeCalibration truth = truth_of(2, 0.5);
  const TargetConstants fit =
      fit_machine(points_of(truth, tiny_counts(), 0.05), target_constants(false));
  EXPECT_NEAR(error_of(fit.time, truth), 0, 0.08);
  EXPECT_GT(fit.fit_error, 0);
  EXPECT_LT(fit.fit_error, 0.06);
}

TEST(FitMachine, OneDisturbedEngineHardlyMovesIt) {
  const TimeCalibration truth = truth_of(1.5, 1.5);
  std::vector<CalibrationPoint> points = points_of(truth, tiny_counts());
  const std::vector<CalibrationPoint> again = points;
  points.insert(points.end(), again.begin(), again.end());
  points[2].target_s *= 3;
  const TargetConstants fit = fit_machine(points, target_constants(false));
  EXPECT_NEAR(error_of(fit.time, truth), 0, 0.05);
  EXPECT_GT(fit.fit_error, 0.05) << "it is seen all the same";
}

TEST(FitMachine, WhatNoEngineTellsIsAsDearAsTheRestOfIt) {
  const TimeCalibration truth = truth_of(2, 0.5);
  const TargetConstants fit =
      fit_machine(points_of(truth, tiny_counts(false)), target_constants(false));
  const TimeCalibration& shipped = target_constants(false).time;
  EXPECT_NEAR(one_cost_s(fit.time, Overhead::gathering_hook) /
                  one_cost_s(shipped, Overhead::gathering_hook),
              2, 0.2);
  EXPECT_NEAR(one_cost_s(fit.time, Overhead::all_to_all_call) /
                  one_cost_s(shipped, Overhead::all_to_all_call),
              0.5, 0.1);
}

TEST(FitMachine, KernelsOfTinyModelsHardlyMoveTheScale) {
  TimeCalibration truth = target_constants(false).time;
  truth.scale = {3, 3, 3};
  const TargetConstants fit = fit_machine(points_of(truth, tiny_counts()), target_constants(false));
  const double shipped = target_constants(false).time.scale[0];
  EXPECT_NEAR(fit.time.scale[0] / shipped, 1, 0.1);
  EXPECT_NEAR(fit.time.scale[1] / fit.time.scale[0],
              target_constants(false).time.scale[1] / shipped, 1e-9);
}

TEST(FitMachine, BehindADeviceTheHostsCostsAreStillTold) {
  TimeCalibration truth = target_constants(true).time;
  for (std::size_t each = 0; each < num_overheads; ++each)
    if (!is_of_network(static_cast<Overhead>(each))) truth.costs_s[each] *= 0.5;
  std::vector<CalibrationPoint> points = points_of(truth, tiny_counts());
  for (CalibrationPoint& point : points) {
    point.measured_s = 1e-4;
    point.target_s = truth.target_s(point.measured_s, Precision::fp32, point.overheads);
  }
  const TargetConstants fit = fit_machine(points, target_constants(true));
  EXPECT_NEAR(
      one_cost_s(fit.time, Overhead::optimizer_step) / one_cost_s(truth, Overhead::optimizer_step),
      1, 0.05);
  EXPECT_TRUE(fit.time.is_device_behind_host);
}

TEST(FitMachine, KeepsWhatEnginesLeaveOpen) {
  using enum Overhead;
  const auto at = [](const Overheads& all, Overhead one) {
    return all[static_cast<std::size_t>(one)];
  };
  TargetConstants before = target_constants(false);
  before.scale_deviation = 0.1;
  before.correlations.assign(num_overheads * (num_overheads + 1) / 2, 0);
  for (std::size_t each = 0; each < num_overheads; ++each)
    before.deviations_s[each] = 0.5 * before.time.costs_s[each] + 1e-12;
  const TargetConstants fit = fit_machine(points_of(before.time, tiny_counts()), before);
  EXPECT_LT(at(fit.deviations_s, communicated_byte),
            0.5 * at(before.deviations_s, communicated_byte));
  EXPECT_GT(at(fit.deviations_s, all_to_all_call), 0.9 * at(before.deviations_s, all_to_all_call))
      << "no engine has one";
  ASSERT_EQ(fit.correlations.size(), before.correlations.size());
  EXPECT_TRUE(std::ranges::any_of(fit.correlations, [](double one) { return one < -0.2; }))
      << "what one cost does not explain another one does";
  // Constants that are known well hardly move; those of unknown error move.
  TimeCalibration truth = before.time;
  of(truth.costs_s, communicated_byte) *= 2;
  const std::vector<CalibrationPoint> points = points_of(truth, tiny_counts());
  TargetConstants sure = before;
  for (double& deviation_s : sure.deviations_s) deviation_s *= 1e-3;
  Policy::Calibrating policy;
  policy.before_tiny_engines.host = policy.before_tiny_engines.network = 0;
  const double there = at(truth.costs_s, communicated_byte);
  EXPECT_LT(at(fit_machine(points, sure, policy).time.costs_s, communicated_byte), 0.6 * there);
  EXPECT_GT(at(fit_machine(points, before, policy).time.costs_s, communicated_byte), 0.8 * there);
}

TEST(FitMachine, SaysWhatItBeganWith) {
  TargetConstants fit =
      fit_machine(points_of(truth_of(1, 1), tiny_counts()), target_constants(false));
  EXPECT_EQ(fit.error, 0) << "nobody has judged it";
  EXPECT_EQ(source_text(fit), target_constants(false).source);
  fit.num_engines = 6;
  EXPECT_EQ(source_text(fit),
            "measured here by 6 tiny engines, beginning with " + target_constants(false).source);
}

}  // namespace
}  // namespace dstune
