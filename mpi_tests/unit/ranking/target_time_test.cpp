#include "dstune/core/target_time.hpp"

#include <numeric>

#include <gtest/gtest.h>

namespace dstune {
namespace {

/// A step with costs of the host and of the network.
Overheads some_counts() {
  Overheads counts{};
  of(counts, Overhead::optimizer_step) = 1;
  of(counts, Overhead::module_call) = 40;
  of(counts, Overhead::all_reduce_call) = 10;
  of(counts, Overhead::communicated_byte) = 1e8;
  return counts;
}

/// 40 · 0.001 = 0.04 s of the host beside a device and 0.02 of it after that, 10 · 0.004 + 0.1 =
/// 0.14 s of the network.
TimeCalibration some_calibration(bool is_device_behind_host) {
  TimeCalibration calibration{{2, 3, 4}, {}, is_device_behind_host};
  of(calibration.costs_s, Overhead::optimizer_step) = 0.02;
  of(calibration.costs_s, Overhead::module_call) = 0.001;
  of(calibration.costs_s, Overhead::all_reduce_call) = 0.004;
  of(calibration.costs_s, Overhead::communicated_byte) = 1e-9;
  return calibration;
}

TEST(TargetTimeTest, AddsWhatOverheadsCost) {
  const TimeCalibration calibration = some_calibration(false);
  EXPECT_NEAR(calibration.target_s(0.5, Precision::fp32, some_counts()), 1.2, 1e-12);
  EXPECT_NEAR(calibration.target_s(0.5, Precision::bf16, some_counts()), 1.7, 1e-12);
  EXPECT_NEAR(calibration.target_s(0.5, Precision::fp16, {}), 2, 1e-12);
}

TEST(TargetTimeTest, ADeviceBehindTheHostHidesTheShorterOfTheTwo) {
  const TimeCalibration calibration = some_calibration(true);
  EXPECT_NEAR(calibration.target_s(0.5, Precision::fp32, some_counts()), 1.16, 1e-12);
  EXPECT_NEAR(calibration.target_s(0.01, Precision::fp32, some_counts()), 0.2, 1e-12)
      << "the host takes longer";
}

/// 2 · 0.5 · 1.1 = 1.1 s of the device.
TEST(TargetTimeTest, RecomputeIsAShareOfTheScaledTime) {
  for (const bool is_behind : {false, true}) {
    TimeCalibration calibration = some_calibration(is_behind);
    of(calibration.costs_s, Overhead::recompute) = 0.1;
    Overheads counts = some_counts();
    const double without = calibration.target_s(0.5, Precision::fp32, counts);
    of(counts, Overhead::recompute) = 1;
    const double with = calibration.target_s(0.5, Precision::fp32, counts);
    EXPECT_NEAR(with - without, 0.1, 1e-12);
    EXPECT_NEAR(calibration.measured_s(with, Precision::fp32, counts), 0.5, 1e-12);
    const Overheads added = calibration.added_s(0.5, Precision::fp32, counts);
    EXPECT_NEAR(1 + std::accumulate(added.begin(), added.end(), 0.0), with, 1e-12);
  }
}

TEST(TargetTimeTest, MeasuredIsTheInverse) {
  for (const bool is_behind : {false, true}) {
    const TimeCalibration calibration = some_calibration(is_behind);
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const double measured_s : {0.05, 0.5, 5.0}) {
        const double target_s = calibration.target_s(measured_s, precision, some_counts());
        EXPECT_NEAR(calibration.measured_s(target_s, precision, some_counts()), measured_s, 1e-12);
      }
    }
  }
}

TEST(TargetTimeTest, WhatIsAddedGivesTheWhole) {
  for (const bool is_behind : {false, true}) {
    const TimeCalibration calibration = some_calibration(is_behind);
    for (const double measured_s : {0.001, 0.02, 0.5}) {
      const Overheads added = calibration.added_s(measured_s, Precision::fp32, some_counts());
      EXPECT_NEAR(2 * measured_s + std::accumulate(added.begin(), added.end(), 0.0),
                  calibration.target_s(measured_s, Precision::fp32, some_counts()), 1e-12);
      EXPECT_NEAR(added[static_cast<std::size_t>(Overhead::all_reduce_call)], 0.04, 1e-12);
    }
  }
  // 0.02 s of the 0.04 s beside the device are hidden: half of each cost.
  const Overheads half = some_calibration(true).added_s(0.01, Precision::fp32, some_counts());
  EXPECT_NEAR(half[static_cast<std::size_t>(Overhead::module_call)], 0.04 / 2, 1e-12);
  EXPECT_NEAR(half[static_cast<std::size_t>(Overhead::optimizer_step)], 0.02, 1e-12);
  const Overheads hidden = some_calibration(true).added_s(0.5, Precision::fp32, some_counts());
  EXPECT_EQ(hidden[static_cast<std::size_t>(Overhead::module_call)], 0);
  EXPECT_EQ(hidden[static_cast<std::size_t>(Overhead::optimizer_step)], 0.02)
      << "the update begins when the device is done";
  EXPECT_EQ(some_calibration(true).added_s(0.5, Precision::fp32, {}), Overheads{});
}

TEST(TargetTimeTest, WhatOverheadsAloneExceedCanNotBeReached) {
  for (const bool is_behind : {false, true}) {
    const TimeCalibration calibration = some_calibration(is_behind);
    EXPECT_LT(calibration.measured_s(0.19, Precision::fp32, some_counts()), 0) << is_behind;
    EXPECT_GT(calibration.measured_s(0.21, Precision::fp32, some_counts()), 0) << is_behind;
  }
  // Behind the host a step may take as long as the host does.
  EXPECT_NEAR(some_calibration(true).measured_s(0.21, Precision::fp32, some_counts()), 0.025,
              1e-12);
  EXPECT_NEAR(some_calibration(false).measured_s(0.21, Precision::fp32, some_counts()), 0.005,
              1e-12);
}

TEST(TargetTimeTest, ConstantsOfBothKindsOfMachinesComeWithTheProgram) {
  const TargetConstants& cpu = target_constants(false);
  const TargetConstants& gpu = target_constants(true);
  EXPECT_FALSE(cpu.time.is_device_behind_host);
  EXPECT_TRUE(gpu.time.is_device_behind_host);
  for (const TargetConstants* const constants : {&cpu, &gpu}) {
    for (const double scale : constants->time.scale) EXPECT_GT(scale, 0);
    for (const double cost_s : constants->time.costs_s) EXPECT_GE(cost_s, 0);
    EXPECT_GT(constants->time.costs_s[static_cast<std::size_t>(Overhead::optimizer_step)], 0);
    EXPECT_GE(constants->error, 0);
    EXPECT_FALSE(constants->source.empty());
    EXPECT_FALSE(constants->machine.empty());
  }
  EXPECT_GT(target_constants(false).error, 0);
  EXPECT_GT(target_constants(true).error, 0);
  EXPECT_EQ(&target_constants(true), &gpu) << "read once";
}

}  // namespace
}  // namespace dstune
