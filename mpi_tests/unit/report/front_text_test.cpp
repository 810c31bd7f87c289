#include "front_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A row whose step of 16 samples takes so long, on so many GPUs, with so much memory.
void add(Report& report, const std::string& name, double step_s, int num_gpus, std::int64_t bytes) {
  Record record = test::sample_record(name, step_s);
  record.experiment.shape = {num_gpus, 1};
  record.predicted.target_memory_bytes = 0;
  record.measurement.peak_memory.total_bytes = bytes;
  Row& row = report.rows.emplace_back();
  row.planned.experiment = record.experiment;
  row.record = std::move(record);
}

std::vector<std::size_t> front_rows(const Report& report) {
  std::vector<std::size_t> rows;
  for (const Offer& offer : front_of(report)) rows.push_back(offer.row);
  return rows;
}

TEST(FrontTest, HoldsWhatNothingElseBeats) {
  Report report;
  add(report, "slow", 2, 2, 100);
  add(report, "fast", 1, 2, 200);
  add(report, "slower with as much memory", 1.5, 2, 200);
  add(report, "fast on one", 3, 1, 300);
  add(report, "lean on one", 4, 1, 50);
  add(report, "as fast on four", 2, 4, 200);
  add(report, "fastest", 0.5, 4, 400);
  EXPECT_THAT(front_rows(report), ElementsAre(3, 4, 1, 0, 6));
  EXPECT_EQ(offers_of(report).size(), 7U);
  const std::string text = front_text(report);
  EXPECT_THAT(text, HasSubstr("throughput (samples/s)"));
  EXPECT_THAT(text, HasSubstr("fastest"));
  EXPECT_THAT(text, Not(HasSubstr("as fast on four")));
}

TEST(FrontTest, TheTargetsMemoryCountsWhereItWasPlanned) {
  Report report;
  add(report, "one", 1, 2, 100);
  add(report, "other", 2, 2, 50);
  EXPECT_THAT(front_rows(report), ElementsAre(0, 1));
  report.rows[0].record->predicted.target_memory_bytes = 40;
  EXPECT_THAT(front_rows(report), ElementsAre(0));
  EXPECT_THAT(front_text(report), IsEmpty()) << "one has it all";
}

TEST(FrontTest, LatencyIsBetterWhereItIsSmaller) {
  Report report;
  report.metric = Metric::latency;
  add(report, "short", 1, 2, 200);
  add(report, "long", 2, 2, 100);
  add(report, "longer", 3, 2, 150);
  EXPECT_THAT(front_rows(report), ElementsAre(0, 1));
  EXPECT_THAT(front_text(report), HasSubstr("1e+06"));
}

TEST(FrontTest, EqualRowsAndFailuresAreLeftOut) {
  Report report;
  add(report, "first", 1, 2, 100);
  add(report, "second", 1, 2, 100);
  add(report, "failed", 0.1, 1, 10);
  report.rows[2].record->measurement.status = Status::failed;
  EXPECT_THAT(front_rows(report), ElementsAre(0));
}

}  // namespace
}  // namespace dstune
