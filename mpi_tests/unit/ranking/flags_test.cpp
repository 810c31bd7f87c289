#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/ranking/answer.hpp"
#include "samples.hpp"
#include "step_series.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Measurement timed(std::vector<double> steps_s) {
  Measurement measurement;
  measurement.status = Status::ok;
  measurement.step_times_s = std::move(steps_s);
  return measurement;
}

TEST(FlagsTest, SteadyStepsHaveNone) {
  std::mt19937_64 generator(2);
  int flagged = 0;
  for (int run = 0; run < 200; ++run)
    flagged += flags_of(timed(test::StepSeries(generator, 1, 0.02, 0.5).take(100))).empty() ? 0 : 1;
  EXPECT_LE(flagged, 4);
  EXPECT_THAT(flags_of(timed({1, 1, 9})), IsEmpty()) << "too few to tell";
}

TEST(FlagsTest, APowerCapIsNoneWhileTheClockIsNearItsHighest) {
  Measurement measurement = timed({1, 1, 1});
  measurement.gpu = GpuCondition{.sm_clock_mhz = 1935,
                                 .max_sm_clock_mhz = 1980,
                                 .temperature_c = 66,
                                 .throttled_by = "power cap"};
  EXPECT_THAT(flags_of(measurement), IsEmpty());
  measurement.gpu->sm_clock_mhz = 1500;
  EXPECT_THAT(flags_of(measurement), ElementsAre("throttled: power cap, 1500 of 1980 MHz, 66 °C"));
  measurement.gpu->sm_clock_mhz = 1935;
  measurement.gpu->throttled_by = "power cap, heat";
  EXPECT_THAT(flags_of(measurement), ElementsAre(HasSubstr("throttled: power cap, heat")));
}

TEST(FlagsTest, CountsOutliers) {
  std::vector<double> steps_s(20, 1.0);
  steps_s[7] = 1.5;
  steps_s[15] = 3;
  steps_s[16] = 1.05;
  EXPECT_THAT(flags_of(timed(steps_s)), ElementsAre("outliers: 2 of 20 timed steps"));
}

TEST(FlagsTest, SeesStepsBecomeSlower) {
  std::vector<double> steps_s;
  for (int i = 0; i < 60; ++i) steps_s.push_back(1 + 0.002 * i + 0.001 * (i % 2));
  EXPECT_THAT(flags_of(timed(steps_s)), ElementsAre(HasSubstr("slowing: the last third")));
  std::reverse(steps_s.begin(), steps_s.end());
  EXPECT_THAT(flags_of(timed(steps_s)), IsEmpty());
}

Row row_on(const std::vector<std::string>& hosts, const std::vector<double>& forward_s,
           int stage = 1) {
  Record record = test::sample_record("any", 1, stage);
  record.measurement.hosts = hosts;
  record.measurement.rank_forward_s = forward_s;
  return test::row_of(record);
}

TEST(SlowHostsTest, NamesOneThatIsSlowInAllOfItsGroups) {
  test::Draft report;
  report.rows = {row_on({"a", "a", "b", "b"}, {1, 1, 1.2, 1}), row_on({"a", "b"}, {2, 2.2}),
                 row_on({"b", "c"}, {1.3, 1}), row_on({"a", "c"}, {1, 1})};
  const auto slow = slow_hosts(report.rows);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].host, "b");
  EXPECT_EQ(slow[0].groups, 3);
  EXPECT_NEAR(slow[0].slower_by, 0.2, 1e-12);
  report.rows.push_back(row_on({"a", "b"}, {1, 1}));
  EXPECT_THAT(slow_hosts(report.rows), IsEmpty()) << "not in all";
}

TEST(SlowHostsTest, StageThreeAndSingleHostsSayNothing) {
  test::Draft report;
  for (int i = 0; i < 4; ++i) {
    report.rows.push_back(row_on({"a", "b"}, {1, 2}, 3));
    report.rows.push_back(row_on({"a", "a"}, {1, 2}));
  }
  EXPECT_THAT(slow_hosts(report.rows), IsEmpty());
}

}  // namespace
}  // namespace dstune
