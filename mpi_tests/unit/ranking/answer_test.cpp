#include "dstune/ranking/answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

TEST(ChanceOfBestTest, FollowsTheDistance) {
  EXPECT_EQ(chance_of_best(test::draft_of({1}).board(), 0), 1);
  const test::Draft near = test::draft_of({1, 1.001});
  EXPECT_NEAR(chance_of_best(near.board(), 0), 0.52, 0.05);
  const test::Draft far = test::draft_of({1, 1.2});
  EXPECT_GT(chance_of_best(far.board(), 0), 0.99);
  EXPECT_LT(chance_of_best(far.board(), 1), 0.01);
  test::Draft latency = near;
  latency.metric = Metric::latency;
  EXPECT_NEAR(chance_of_best(latency.board(), 0), 0.52, 0.05);
}

/// A row whose step of 16 samples takes so long, on so many GPUs, with so much memory.
void add(test::Draft& report, const std::string& name, double step_s, int num_gpus,
         std::int64_t bytes) {
  Record record = test::sample_record(name, step_s);
  record.experiment.shape = {num_gpus, 1};
  record.predicted.target_memory_bytes = 0;
  record.measurement.peak_memory.total_bytes = bytes;
  Row& row = report.rows.emplace_back();
  row.planned.experiment = record.experiment;
  row.record = std::move(record);
}

std::vector<std::size_t> front_rows(const test::Draft& report) {
  std::vector<std::size_t> rows;
  for (const Offer& offer : offers_of(report.board()))
    if (offer.is_on_front) rows.push_back(offer.row);
  return rows;
}

TEST(FrontTest, HoldsWhatNothingElseBeats) {
  test::Draft report;
  add(report, "slow", 2, 2, 100);
  add(report, "fast", 1, 2, 200);
  add(report, "slower with as much memory", 1.5, 2, 200);
  add(report, "fast on one", 3, 1, 300);
  add(report, "lean on one", 4, 1, 50);
  add(report, "as fast on four", 2, 4, 200);
  add(report, "fastest", 0.5, 4, 400);
  EXPECT_THAT(front_rows(report), ElementsAre(3, 4, 1, 0, 6));
  EXPECT_EQ(offers_of(report.board()).size(), 7U);
}

TEST(FrontTest, TheTargetsMemoryCountsWhereItWasPlanned) {
  test::Draft report;
  add(report, "one", 1, 2, 100);
  add(report, "other", 2, 2, 50);
  EXPECT_THAT(front_rows(report), ElementsAre(0, 1));
  report.rows[0].record->predicted.target_memory_bytes = 40;
  EXPECT_THAT(front_rows(report), ElementsAre(0));
}

TEST(FrontTest, LatencyIsBetterWhereItIsSmaller) {
  test::Draft report;
  report.metric = Metric::latency;
  add(report, "short", 1, 2, 200);
  add(report, "long", 2, 2, 100);
  add(report, "longer", 3, 2, 150);
  EXPECT_THAT(front_rows(report), ElementsAre(0, 1));
}

TEST(FrontTest, EqualRowsAndFailuresAreLeftOut) {
  test::Draft report;
  add(report, "first", 1, 2, 100);
  add(report, "second", 1, 2, 100);
  add(report, "failed", 0.1, 1, 10);
  report.rows[2].record->measurement.status = Status::failed;
  EXPECT_THAT(front_rows(report), ElementsAre(0));
}

}  // namespace
}  // namespace dstune
