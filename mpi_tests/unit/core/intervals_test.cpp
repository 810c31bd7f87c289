#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/core/measurement.hpp"

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

TEST(MeanIntervalTest, FewSamplesGiveStudentsT) {
  // Mean 3, s = sqrt(2.5), t(4) = 2.776445: half width 2.776445 * sqrt(2.5 / 5) = 1.963243.
  const Interval interval = mean_interval({1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(interval.mean, 3);
  EXPECT_NEAR(interval.low, 3 - 1.963243, 1e-5);
  EXPECT_NEAR(interval.high, 3 + 1.963243, 1e-5);
  // Mean 10.5, s = sqrt(0.5), t(1) = 12.7062: half width 12.7062 * 0.5.
  EXPECT_NEAR(mean_interval({10, 11}).high, 10.5 + 6.3531, 1e-4);
}

TEST(MeanIntervalTest, ManySamplesGiveBatchMeans) {
  // Eight batches of two with means 1.5, 3.5, ..., 15.5: mean 8.5, s^2 = 24, t(7) = 2.364624:
  // half width 2.364624 * sqrt(24 / 8).
  std::vector<double> samples;
  for (int i = 1; i <= 16; ++i) samples.push_back(i);
  const Interval interval = mean_interval(samples);
  EXPECT_DOUBLE_EQ(interval.mean, 8.5);
  EXPECT_NEAR(interval.high - interval.mean, 2.364624 * std::sqrt(3.0), 1e-5);
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
double coverage(double autocorrelation, int length) {
  constexpr int series = 4000;
  constexpr double true_mean = 10;
  std::mt19937_64 generator(7);
  std::normal_distribution<double> noise;
  int covered = 0;
  for (int i = 0; i < series; ++i) {
    double state = noise(generator) / std::sqrt(1 - autocorrelation * autocorrelation);
    std::vector<double> samples;
    for (int k = 0; k < length; ++k) {
      samples.push_back(true_mean + 0.1 * state);
      state = autocorrelation * state + noise(generator);
    }
    const Interval interval = mean_interval(samples);
    covered += interval.low <= true_mean && true_mean <= interval.high ? 1 : 0;
  }
  return static_cast<double>(covered) / series;
}

TEST(MeanIntervalTest, CoversTheMeanOfIndependentSamples) {
  for (int length : {5, 15, 16, 50, 200, 600}) {
    const double share = coverage(0, length);
    RecordProperty("coverage_0_" + std::to_string(length), std::to_string(share));
    EXPECT_GT(share, 0.935) << length;
    EXPECT_LT(share, 0.965) << length;
  }
}

TEST(MeanIntervalTest, CoversTheMeanOfCorrelatedSamples) {
  for (const auto& [autocorrelation, length, least] :
       {std::tuple(0.5, 200, 0.92), std::tuple(0.5, 100, 0.88), std::tuple(0.8, 200, 0.85),
        std::tuple(0.9, 600, 0.85)}) {
    const double share = coverage(autocorrelation, length);
    RecordProperty("coverage_" + std::to_string(autocorrelation) + "_" + std::to_string(length),
                   std::to_string(share));
    EXPECT_GT(share, least) << autocorrelation << ' ' << length;
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
  failed.status = Status::raced_out;
  EXPECT_FALSE(metric_value(failed, Metric::latency, 8, 4));
}

}  // namespace
}  // namespace dstune
