#include <cmath>

#include <gtest/gtest.h>

#include "dstune/ranking/calibration.hpp"

namespace dstune {
namespace {

/// Nothing is in doubt but the errors that the constants have themselves.
Policy::Calibrating surely() {
  Policy::Calibrating policy;
  policy.before_own_runs = {};
  return policy;
}

/// A module call costs 2 ms, give or take 1; all of it was measured here.
TargetConstants known_constants() {
  TargetConstants constants;
  constants.num_engines = 9;
  constants.scale_deviation = 1e-6;
  of(constants.time.costs_s, Overhead::module_call) = 2e-3;
  of(constants.deviations_s, Overhead::module_call) = 1e-3;
  return constants;
}

CalibrationPoint member(double measured_s, double calls) {
  CalibrationPoint point{measured_s, 0, Precision::fp32, {}};
  of(point.overheads, Overhead::module_call) = calls;
  point.target_s = known_constants().time.target_s(measured_s, Precision::fp32, point.overheads);
  return point;
}

TEST(ConstantsDoubt, MembersWithTheSameOverheadsKeepTheirOrder) {
  const ConstantsDoubt doubt =
      doubt_of_constants({member(1, 100), member(1.02, 100)}, {0, std::log(1.22 / 1.2)}, 0.01,
                         known_constants(), surely());
  EXPECT_EQ(doubt.chance, 0);
  EXPECT_EQ(doubt.likeliest, 0U);
}

/// Both take 1.2 s. The second one is 1 % faster where its calls cost 0.012 s less, 0.12
/// deviations; that has a chance of 45 %.
TEST(ConstantsDoubt, CallsOfUnsureCostLeaveTheOrderOpen) {
  const ConstantsDoubt doubt = doubt_of_constants({member(1.2, 0), member(1, 100)}, {0, 0}, 0.01,
                                                  known_constants(), surely());
  EXPECT_NEAR(doubt.chance, 0.452, 0.04);
  EXPECT_EQ(doubt.likeliest, 1U);
  EXPECT_EQ(doubt.chance_of_it, doubt.chance);
}

TEST(ConstantsDoubt, ALeadMakesItSurer) {
  // 1.5 deviations.
  const ConstantsDoubt doubt = doubt_of_constants(
      {member(1.05, 0), member(1, 100)}, {0, std::log(1.2 / 1.05)}, 0, known_constants(), surely());
  EXPECT_NEAR(doubt.chance, 0.067, 0.02);
}

TEST(ConstantsDoubt, SeveralOthersAreLikelierThanTheLikeliest) {
  const ConstantsDoubt doubt =
      doubt_of_constants({member(1.2, 100), member(1.4, 0), member(1, 200)}, {0, 0, 0}, 0.01,
                         known_constants(), surely());
  EXPECT_GT(doubt.chance, 0.85) << "one of them is faster, whatever calls cost";
  EXPECT_LT(doubt.chance_of_it, 0.55);
  EXPECT_GT(doubt.chance_of_it, 0.4);
}

/// The network of another machine may be slower or faster, and that is one number for all calls.
TEST(ConstantsDoubt, AnotherMachinesNetworkIsInDoubtUnlessItWasMeasured) {
  TargetConstants known = known_constants();
  of(known.deviations_s, Overhead::module_call) = 1e-9;
  of(known.deviations_s, Overhead::all_reduce_call) = 1e-9;
  of(known.time.costs_s, Overhead::all_reduce_call) = 2e-3;
  Policy::Calibrating policy = surely();
  policy.before_own_runs.network = 0.5;
  CalibrationPoint calls{1, 1.2, Precision::fp32, {}};
  of(calls.overheads, Overhead::all_reduce_call) = 100;
  const std::vector<CalibrationPoint> members{member(1.2, 0), calls};
  EXPECT_LT(doubt_of_constants(members, {0, 0}, 0.01, known, policy).chance, 0.01);
  known.num_engines = 0;
  EXPECT_NEAR(doubt_of_constants(members, {0, 0}, 0.01, known, policy).chance, 0.452, 0.04);
}

}  // namespace
}  // namespace dstune
