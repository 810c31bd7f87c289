#include <gtest/gtest.h>

#include "profile/prediction.hpp"

namespace dstune {
namespace {

constexpr std::int64_t MiB = 1 << 20;

TEST(NonArenaMemoryTest, StartsFromTheFullestRank) {
  const NonArenaMemory memory({30 * MiB, 20 * MiB, 40 * MiB});
  EXPECT_EQ(memory.bytes({1}), 20 * MiB);
  EXPECT_EQ(memory.bytes({0}), 30 * MiB);
  const std::int64_t staging_bytes = memory.bytes({0, 1}) - 30 * MiB;
  EXPECT_GT(staging_bytes, 0);
  EXPECT_EQ(memory.bytes({0, 1, 2}), 40 * MiB + staging_bytes / 2 * 3);
}

TEST(NonArenaMemoryTest, StartsAgainFromWhatGroupsLeft) {
  NonArenaMemory memory({30 * MiB, 20 * MiB, 40 * MiB});
  memory.start_again({});
  EXPECT_GT(memory.bytes({0, 1}), 30 * MiB) << "staging";
  memory.start_again({{0, 37 * MiB}, {1, 29 * MiB}});
  EXPECT_EQ(memory.bytes({0, 1}), 37 * MiB);
  EXPECT_EQ(memory.bytes({1}), 29 * MiB);
  EXPECT_EQ(memory.bytes({2}), 40 * MiB);
}

// A GPU has no part of what the host's groups stage.
TEST(NonArenaMemoryTest, OfAGpuHasNoStaging) {
  NonArenaMemory memory({300 * MiB, 310 * MiB}, true);
  EXPECT_EQ(memory.bytes({0, 1}), 310 * MiB);
  memory.start_again({});
  EXPECT_EQ(memory.bytes({0, 1}), 310 * MiB);
  memory.start_again({{0, 500 * MiB}, {1, 510 * MiB}});  // communicators
  EXPECT_EQ(memory.bytes({0, 1}), 510 * MiB);
}

TEST(NonArenaMemoryTest, FollowsWhatExperimentsFind) {
  NonArenaMemory memory({30 * MiB, 20 * MiB});
  const std::int64_t both = memory.bytes({0, 1});
  memory.observe({0}, 38 * MiB);
  EXPECT_EQ(memory.bytes({0}), 38 * MiB);
  EXPECT_EQ(memory.bytes({1}), 28 * MiB);
  EXPECT_EQ(memory.bytes({0, 1}), both);
  memory.observe({1}, 27 * MiB);
  EXPECT_EQ(memory.bytes({0}), 37 * MiB);
}

}  // namespace
}  // namespace dstune
