#include "arena_simulation.hpp"

#include <gtest/gtest.h>

namespace dstune::plan {
namespace {

TEST(ArenaSimulationTest, GrowsAboveItsBase) {
  ArenaSimulation arena(1000);
  EXPECT_EQ(arena.acquire(256), 1000);
  EXPECT_EQ(arena.acquire(512), 1256);
  EXPECT_EQ(arena.top_bytes(), 1768);
}

TEST(ArenaSimulationTest, TakesTheSmallestHoleThatFits) {
  ArenaSimulation arena(0);
  const std::int64_t large = arena.acquire(1024);
  arena.acquire(256);
  const std::int64_t small = arena.acquire(512);
  arena.acquire(256);
  arena.release(large, 1024);
  arena.release(small, 512);
  EXPECT_EQ(arena.acquire(512), small);
  EXPECT_EQ(arena.acquire(256), large);
  EXPECT_EQ(arena.acquire(768), large + 256);
  EXPECT_EQ(arena.top_bytes(), 2048);
}

TEST(ArenaSimulationTest, TakesTheLowestOfEqualHoles) {
  ArenaSimulation arena(0);
  const std::int64_t first = arena.acquire(256);
  arena.acquire(256);
  const std::int64_t second = arena.acquire(256);
  arena.acquire(256);
  arena.release(second, 256);
  arena.release(first, 256);
  EXPECT_EQ(arena.acquire(256), first);
  EXPECT_EQ(arena.acquire(256), second);
}

TEST(ArenaSimulationTest, MergesNeighboursInAnyOrder) {
  for (const auto& order : {std::array{0, 1, 2}, std::array{2, 1, 0}, std::array{0, 2, 1}}) {
    ArenaSimulation arena(0);
    for (int index = 0; index < 4; ++index) arena.acquire(256);
    for (const int index : order) arena.release(index * 256, 256);
    EXPECT_EQ(arena.acquire(768), 0);
    EXPECT_EQ(arena.top_bytes(), 1024);
  }
}

TEST(ArenaSimulationTest, GivesTheTopBackAndRemembersTheHighest) {
  ArenaSimulation arena(0);
  arena.acquire(256);
  arena.acquire(256);
  arena.acquire(512);
  arena.release(256, 256);
  EXPECT_EQ(arena.top_bytes(), 1024);
  arena.release(512, 512);
  EXPECT_EQ(arena.top_bytes(), 256);
  arena.release(0, 256);
  EXPECT_EQ(arena.top_bytes(), 0);
  EXPECT_EQ(arena.highest_bytes(), 1024);
}

}  // namespace
}  // namespace dstune::plan
