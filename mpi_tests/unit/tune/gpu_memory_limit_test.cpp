#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/prediction.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RankDevice gpu(const std::string& uuid, std::int64_t free_bytes) {
  RankDevice device;
  device.gpu = uuid;
  device.free_bytes = free_bytes;
  return device;
}

TEST(GpuRoomTest, IsWhatTheFullestGpuHasLeft) {
  const std::vector<RankDevice> devices{gpu("a", 1000), gpu("b", 900), gpu("c", 100)};
  // The third took no part.
  EXPECT_EQ(free_gpu_memory(devices, {50, 60, 70}, {{0, 350}, {1, 80}}), 700);
  EXPECT_EQ(free_gpu_memory(devices, {50, 60, 70}, {{0, 50}, {1, 80}}), 880);
  EXPECT_EQ(free_gpu_memory(devices, {50, 60, 70}, {}), std::nullopt);
  EXPECT_EQ(free_gpu_memory(devices, {50, 0, 70}, {{0, 50}, {1, 80}}), std::nullopt);
}

TEST(GpuRoomTest, NobodyTellsOfAGpuThatIsShared) {
  const std::vector<RankDevice> devices{gpu("a", 1000), gpu("a", 1000)};
  EXPECT_EQ(free_gpu_memory(devices, {50, 60}, {{0, 350}, {1, 80}}), std::nullopt);
}

TEST(GpuRoomTest, WhatLacksRoomIsLeftOutUnlessItHasRun) {
  PlannedSpace space;
  // Their bytes on the device, the host's 5 beside them.
  for (const std::int64_t bytes : {700, 701, 800, 900}) {
    PlannedMember& member = space.members.emplace_back();
    member.planned.predicted.peak_memory_bytes = bytes + 5;
    member.planned.predicted.host_memory_bytes = 5;
  }
  space.members[3].planned.status = PlanStatus::pruned;
  space.planned = 3;
  EXPECT_THAT(drop_what_does_not_fit(space, 700, [](std::size_t member) { return member == 1; }),
              ElementsAre(2));
  EXPECT_EQ(space.members[0].planned.status, PlanStatus::planned);
  EXPECT_EQ(space.members[1].planned.status, PlanStatus::planned);
  EXPECT_EQ(space.members[2].planned.status, PlanStatus::infeasible);
  EXPECT_THAT(space.members[2].planned.reason,
              HasSubstr("needs 800 B, but libraries and communicators leave 700 B of the device"));
  EXPECT_EQ(space.members[3].planned.status, PlanStatus::pruned);
  EXPECT_EQ(space.planned, 2U);
  EXPECT_EQ(space.infeasible, 1U);
}

}  // namespace
}  // namespace dstune
