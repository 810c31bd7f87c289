#include "check/findings.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Ranks of equal speed, two a host, alone on their processors.
std::vector<RankReport> equal_ranks(int num_ranks) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < num_ranks; ++rank) {
    RankReport report;
    report.rank = rank;
    report.node = rank / 2;
    report.host = "node" + std::to_string(rank / 2);
    report.device = "cpu";
    report.backend = "cpu";
    report.f32_flops = 100e9;
    report.bf16_flops = 300e9;
    report.memory_bytes = 10e9;
    report.processor_share = 0.97;
    report.busy_processors = 2;
    report.stolen_processors = 0;
    report.shared_memory_bytes = std::int64_t{1} << 30;
    report.libraries["MPI"] = "4.1.4";
    report.groups.push_back(
        {2, 1, "shared memory", {{1 << 20, 5e9, 5e9, 5e9}, {1 << 22, 4e9, 4e9, 4e9}}});
    reports.push_back(report);
  }
  return reports;
}

TEST(FindingsTest, EqualRanksAreNotNamed) {
  std::vector<RankReport> reports = equal_ranks(4);
  reports[2].f32_flops = 0.9 * reports[0].f32_flops;
  reports[3].memory_bytes = 1.3 * reports[0].memory_bytes;
  const Findings found = findings_of(reports, {});
  EXPECT_THAT(found.failures, IsEmpty());
  EXPECT_THAT(found.slow, IsEmpty());
  EXPECT_THAT(found.notes, IsEmpty());
}

TEST(FindingsTest, ARankThatComputesSlowerIsNamedWithTheReason) {
  std::vector<RankReport> reports = equal_ranks(4);
  reports[1].f32_flops = 50e9;
  reports[1].processor_share = 0.5;
  EXPECT_THAT(findings_of(reports, {}).slow,
              ElementsAre(AllOf(HasSubstr("rank 1 (node0) is slow"), HasSubstr("2.00 times"),
                                HasSubstr("50 % of its processors"),
                                HasSubstr("others compute on its host, on 0.5 processors"))));
}

TEST(FindingsTest, OfTwoRanksTheFasterOneIsTheMeasure) {
  std::vector<RankReport> reports = equal_ranks(2);
  reports[0].memory_bytes = 5e9;
  EXPECT_THAT(findings_of(reports, {}).slow, ElementsAre(HasSubstr("rank 0 (node0) is slow")));
}

TEST(FindingsTest, RanksOfOtherDevicesOrThreadsAreNotCompared) {
  std::vector<RankReport> reports = equal_ranks(4);
  reports[3].threads = 4;
  reports[3].f32_flops = 400e9;
  reports[0].device = "another cpu";
  reports[0].f32_flops = 20e9;
  EXPECT_THAT(findings_of(reports, {}).slow, IsEmpty());
}

TEST(FindingsTest, RanksThatShareProcessorsAreANoteAndNotSlow) {
  std::vector<RankReport> reports = equal_ranks(2);
  for (RankReport& report : reports) {
    report.share_core = true;
    report.processor_share = 0.5;
  }
  reports[0].f32_flops /= 2;
  const Findings found = findings_of(reports, {});
  EXPECT_THAT(found.slow, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("take turns")));
}

TEST(FindingsTest, AHostWhoseCollectivesAreSlowerIsNamed) {
  std::vector<RankReport> reports = equal_ranks(6);
  for (const int rank : {2, 3})
    for (CollectiveRates& rates : reports[static_cast<std::size_t>(rank)].groups.front().rates)
      rates.all_reduce /= 2;
  EXPECT_THAT(findings_of(reports, {}).slow, ElementsAre(HasSubstr("host node1 is slow")));
}

TEST(FindingsTest, WhatDoesNotWorkIsNamedWithItsRank) {
  std::vector<RankReport> reports = equal_ranks(2);
  for (RankReport& report : reports) report.failures.emplace_back("products in bf16: refused");
  reports[0].recording = "cudaErrorStreamCaptureUnsupported";
  EXPECT_THAT(findings_of(reports, {"rank 2 (node1)"}).failures,
              ElementsAre(HasSubstr("rank 2 (node1) did not answer"),
                          HasSubstr("rank 0 (node0) and 1 more: products in bf16: refused"),
                          HasSubstr("rank 0 (node0): a product and a collective can not be")));
}

TEST(FindingsTest, OtherLibrariesAndLittleSharedMemoryAreWorthALook) {
  std::vector<RankReport> reports = equal_ranks(4);
  reports[3].libraries["MPI"] = "5.0.7";
  reports[2].shared_memory_bytes = reports[3].shared_memory_bytes = 1 << 20;
  EXPECT_THAT(findings_of(reports, {}).notes,
              ElementsAre(AllOf(HasSubstr("host node1"), HasSubstr("/dev/shm")),
                          AllOf(HasSubstr("MPI differs"), HasSubstr("5.0.7 on rank 3 (node1)"))));
}

}  // namespace
}  // namespace dstune
