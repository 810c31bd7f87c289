#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/publisher.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

std::string line_of(const Record& record) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::lines);
    progress.begin(1, 0, SteadyClock::now());
    progress.ended(record, Metric::throughput, std::nullopt, false, true);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressTest, AnIntervalWiderThanItsValueHasNoDigits) {
  Record record = test::sample_record("m0");
  EXPECT_THAT(line_of(record), HasSubstr("1 experiment planned\n"));
  EXPECT_THAT(line_of(record), HasSubstr("32 samples/s ±0.0 %"));
  record.measurement.step_times_s = {1, 1, 3, 1, 3, 1, 3};
  record.measurement.warmup_steps = 1;
  EXPECT_THAT(line_of(record), HasSubstr(" samples/s ±100 % or more"));
}

}  // namespace
}  // namespace dstune
