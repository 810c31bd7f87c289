#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/measurement.hpp"
#include "step_series.hpp"

namespace dstune {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(MeanIntervalTest, ASingleSampleSaysLittle) {
  const Interval interval = mean_interval({2.0});
  EXPECT_EQ(interval.mean, 2);
  EXPECT_EQ(interval.low, 0);
  EXPECT_EQ(interval.high, infinity);
  EXPECT_THROW((void)mean_interval({}), LogicError);
}

TEST(MeanIntervalTest, VeryFewSamplesGiveStudentsT) {
  // Mean 2.5, s = sqrt(5 / 3), t(3) = 3.182446: half width 3.182446 * sqrt(5 / 12) = 2.054260.
  const Interval interval = mean_interval({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(interval.mean, 2.5);
  EXPECT_NEAR(interval.high, 2.5 + 2.054260, 1e-5);
  // Mean 10.5, s = sqrt(0.5), t(1) = 12.7062: half width 12.7062 * 0.5.
  EXPECT_NEAR(mean_interval({10, 11}).high, 10.5 + 6.3531, 1e-4);
}

TEST(StudentTTest, IsExactForAnyDegreesOfFreedom) {
  for (const double probability : {0.5, 0.95, 1 - 0.05 / 6}) {
    const double of_one = std::tan(std::numbers::pi / 2 * probability);
    const double of_two = probability * std::sqrt(2 / (1 - probability * probability));
    EXPECT_NEAR(student_t(probability, 1), of_one, 1e-9 * of_one);
    EXPECT_NEAR(student_t(probability, 2), of_two, 1e-9 * of_two);
  }
  // The share of the distribution within 6.016663104 is 0.95 by its integral; others are tables'.
  // Many degrees of freedom are a normal distribution.
  EXPECT_NEAR(student_t(0.95, 1.5), 6.016663104, 1e-8);
  EXPECT_NEAR(student_t(0.95, 4), 2.776445, 1e-5);
  EXPECT_NEAR(student_t(0.99, 7), 3.499483, 1e-5);
  EXPECT_NEAR(student_t(0.95, 100), 1.983972, 1e-5);
  EXPECT_NEAR(student_t(0.95, 1e9), 1.959963985, 1e-8);
}

TEST(StudentTTest, WhatIsNoDegreeCountsAsOne) {
  for (const double degrees : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(student_t(0.95, degrees), student_t(0.95, 1));
}

TEST(QuartileIntervalTest, IsThatOfOrderStatistics) {
  // Ranks from 0: a quarter of 4 is 1; 1.96 sqrt(0.1875 * 5) = 1.898 away, so from below 0
  // to 2.898.
  const Interval interval = quartile_interval({5, 3, 1, 2, 4});
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_DOUBLE_EQ(interval.low, 1);
  EXPECT_NEAR(interval.high, 3.898, 1e-3);
  EXPECT_DOUBLE_EQ(quartile_interval({1, 2}).mean, 1.25);
  EXPECT_EQ(quartile_interval({2.0}).high, infinity);
  EXPECT_THROW((void)quartile_interval({}), LogicError);
}

TEST(QuartileIntervalTest, WhatInterruptsHalfOfTheStepsHardlyMovesIt) {
  EXPECT_LT(quartile_interval({1.00, 1.01, 1.02, 1.03, 9, 9, 9, 9}).mean, 1.02);
}

TEST(QuartileIntervalTest, HoldsTheQuartileInMostRuns) {
  std::mt19937 random(1);
  std::exponential_distribution<double> draw(1);
  const double quartile = std::log(4.0 / 3);
  int held = 0;
  for (int run = 0; run < 1000; ++run) {
    std::vector<double> samples(40);
    for (double& sample : samples) sample = draw(random);
    const Interval interval = quartile_interval(samples);
    held += interval.low <= quartile && quartile <= interval.high ? 1 : 0;
  }
  EXPECT_GE(held, 920);
  EXPECT_LE(held, 980);
}

TEST(MeanIntervalTest, FewSamplesAreTakenForModeratelyCorrelated) {
  // Neighbours alternate: the correlation is taken as 0.2. The variance of the mean is that of five
  // independent samples, 0.06, times 1.4, over 1 - 0.1 (Bartlett's bias of s^2): by hand
  // f = 1.2/0.8 - 0.4 (1 - 0.00032) / (5 * 0.64) = 1.37504.
  const double factor = 1.37504;
  const Interval interval = mean_interval({1, 2, 1, 2, 1});
  const double expected = 2.776445 * std::sqrt(0.06 * factor / (1 - (factor - 1) / 4));
  EXPECT_NEAR(interval.high - interval.mean, expected, 1e-5);
}

TEST(MeanIntervalTest, ManySamplesGiveAtLeastBatchMeans) {
  // Each pair has the mean of its batch, pairs alternate: eight batch means 1, 3, 1, 3, ...: s^2 =
  // 8/7, t(7) = 2.364624; the series itself looks less correlated than that.
  std::vector<double> samples;
  for (int i = 0; i < 16; ++i) samples.push_back((i / 2 % 2 == 0 ? 1 : 3) + (i % 2 == 0 ? 5 : -5));
  const Interval interval = mean_interval(samples);
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_GE(interval.high - interval.mean, 2.364624 * std::sqrt(1.0 / 7) - 1e-5);
}

TEST(MeanIntervalTest, TimesAreNotBelowZero) {
  EXPECT_EQ(mean_interval({0.1, 5}).low, 0);
}

TEST(MeanIntervalTest, EqualSamplesLeaveNoDoubt) {
  for (std::size_t count : {2U, 15U, 16U, 1000U}) {
    const Interval interval = mean_interval(std::vector<double>(count, 0.25));
    EXPECT_EQ(interval.low, 0.25);
    EXPECT_EQ(interval.high, 0.25);
  }
}

/// Share of the intervals of stationary AR(1) series that hold the true mean.
double coverage(double autocorrelation, std::size_t length) {
  constexpr int series = 1500;
  std::mt19937_64 generator(7);
  int covered = 0;
  for (int i = 0; i < series; ++i) {
    const Interval interval =
        mean_interval(test::StepSeries(generator, 1, 0.03, autocorrelation).take(length));
    covered += interval.low <= 1 && 1 <= interval.high ? 1 : 0;
  }
  return static_cast<double>(covered) / series;
}

TEST(MeanIntervalTest, CoversTheMean) {
  for (const double autocorrelation : {0.0, 0.5, 0.8}) {
    for (const std::size_t length : {32U, 50U, 100U, 200U, 600U}) {
      const double share = coverage(autocorrelation, length);
      RecordProperty("coverage_" + std::to_string(autocorrelation) + "_" + std::to_string(length),
                     std::to_string(share));
      EXPECT_GE(share, 0.90) << autocorrelation << ' ' << length;
      EXPECT_LE(share, 0.99) << autocorrelation << ' ' << length;
    }
  }
}

// Fewer can not tell how correlated they are: docs/inside/measuring.md says what is left.
TEST(MeanIntervalTest, CoversLessWhereSamplesAreFew) {
  for (const std::size_t length : {5U, 10U, 15U, 16U, 20U}) {
    EXPECT_GE(coverage(0, length), 0.95) << length;
    EXPECT_LE(coverage(0, length), 0.99) << length;
    EXPECT_GE(coverage(0.5, length), 0.88) << length;
    EXPECT_GE(coverage(0.8, length), 0.75) << length;
  }
}

Measurement timed(std::vector<double> times, int warmup) {
  Measurement measurement;
  measurement.status = Status::ok;
  measurement.step_times_s = std::move(times);
  measurement.warmup_steps = warmup;
  measurement.flops_per_step = 600;
  return measurement;
}

TEST(MetricValueTest, LeavesWarmUpOut) {
  const Measurement measurement = timed({9, 9, 1, 2, 3}, 2);
  const MetricValue latency = metric_value(measurement, Metric::latency, 8, 4).value();
  EXPECT_DOUBLE_EQ(latency.value, 2e6);
  // t(2) = 4.30265, s = 1: half width 2.484138.
  EXPECT_EQ(latency.ci_low, 0);
  EXPECT_NEAR(latency.ci_high, 4.484138e6, 10);
}

TEST(MetricValueTest, LeavesSkippedStepsOut) {
  Measurement measurement = timed({9, 9, 1, 0.5, 2, 3, 0.5}, 2);
  measurement.skipped_steps = {0, 3, 6};
  EXPECT_EQ(timed_steps_s(measurement), (std::vector<double>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(metric_value(measurement, Metric::latency, 8, 4)->value, 2e6);
  measurement.skipped_steps = {2, 3, 4, 5, 6};
  EXPECT_FALSE(metric_value(measurement, Metric::latency, 8, 4));
}

TEST(MetricValueTest, UnitsAreThoseOfTheMetric) {
  const Measurement measurement = timed({5, 1.9, 2.0, 2.1}, 1);
  const MetricValue latency = metric_value(measurement, Metric::latency, 8, 4).value();
  const MetricValue throughput = metric_value(measurement, Metric::throughput, 8, 4).value();
  EXPECT_DOUBLE_EQ(throughput.value, 4);
  EXPECT_DOUBLE_EQ(throughput.ci_low, 8e6 / latency.ci_high);
  EXPECT_DOUBLE_EQ(throughput.ci_high, 8e6 / latency.ci_low);
  EXPECT_LT(throughput.ci_low, 4);
  EXPECT_GT(throughput.ci_high, 4);
  EXPECT_DOUBLE_EQ(metric_value(measurement, Metric::throughput_per_gpu, 8, 4)->value, 1);
  EXPECT_DOUBLE_EQ(metric_value(measurement, Metric::flops, 8, 4)->value, 75);
}

TEST(MetricValueTest, OneTimedStepLeavesThroughputUnboundedAbove) {
  const MetricValue value = metric_value(timed({2}, 0), Metric::throughput, 8, 4).value();
  EXPECT_DOUBLE_EQ(value.value, 4);
  EXPECT_EQ(value.ci_low, 0);
  EXPECT_EQ(value.ci_high, infinity);
}

TEST(MetricValueTest, SaysNothingWithoutATimedStepOfASuccess) {
  EXPECT_FALSE(metric_value(timed({1, 2}, 2), Metric::latency, 8, 4));
  EXPECT_FALSE(metric_value(timed({}, 0), Metric::latency, 8, 4));
  EXPECT_FALSE(metric_value(timed({0, 0}, 0), Metric::throughput, 8, 4));
  Measurement failed = timed({1, 2}, 0);
  failed.status = Status::failed;
  EXPECT_FALSE(metric_value(failed, Metric::latency, 8, 4));
  EXPECT_FALSE(value_so_far(failed, Metric::latency, 8, 4));
}

TEST(MetricValueTest, OneThatWasRacedOutHasAValueSoFar) {
  Measurement measurement = timed({9, 2, 2, 2}, 1);
  measurement.status = Status::raced_out;
  EXPECT_FALSE(metric_value(measurement, Metric::latency, 8, 4));
  EXPECT_DOUBLE_EQ(value_so_far(measurement, Metric::latency, 8, 4)->value, 2e6);
}

}  // namespace
}  // namespace dstune
