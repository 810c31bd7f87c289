#include "program/arena_simulation.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace dstune::plan {
namespace {

TEST(ArenaSimulationTest, GrowsAboveItsBase) {
  ArenaSimulation arena(1000);
  EXPECT_EQ(arena.acquire(256).offset, 1000);
  EXPECT_EQ(arena.acquire(512).offset, 1256);
  EXPECT_EQ(arena.top_bytes(), 1768);
}

TEST(ArenaSimulationTest, TakesTheSmallestHoleThatFits) {
  ArenaSimulation arena(0);
  const auto large = arena.acquire(1024);
  arena.acquire(256);
  const auto small = arena.acquire(512);
  arena.acquire(256);
  arena.release(large.block);
  arena.release(small.block);
  EXPECT_EQ(arena.acquire(512).offset, small.offset);
  EXPECT_EQ(arena.acquire(256).offset, large.offset);
  EXPECT_EQ(arena.acquire(768).offset, large.offset + 256);
  EXPECT_EQ(arena.top_bytes(), 2048);
}

TEST(ArenaSimulationTest, TakesTheLowestOfEqualHoles) {
  ArenaSimulation arena(0);
  const auto first = arena.acquire(256);
  arena.acquire(256);
  const auto second = arena.acquire(256);
  arena.acquire(256);
  arena.release(second.block);
  arena.release(first.block);
  EXPECT_EQ(arena.acquire(256).offset, first.offset);
  EXPECT_EQ(arena.acquire(256).offset, second.offset);
}

TEST(ArenaSimulationTest, MergesNeighboursInAnyOrder) {
  for (const auto& order : {std::array{0, 1, 2}, std::array{2, 1, 0}, std::array{0, 2, 1}}) {
    ArenaSimulation arena(0);
    std::vector<int> blocks;
    for (int index = 0; index < 4; ++index) blocks.push_back(arena.acquire(256).block);
    for (const int index : order) arena.release(blocks[static_cast<std::size_t>(index)]);
    EXPECT_EQ(arena.acquire(768).offset, 0);
    EXPECT_EQ(arena.top_bytes(), 1024);
  }
}

TEST(ArenaSimulationTest, GivesTheTopBackAndRemembersTheHighest) {
  ArenaSimulation arena(0);
  const auto first = arena.acquire(256);
  const auto second = arena.acquire(256);
  const auto third = arena.acquire(512);
  arena.release(second.block);
  EXPECT_EQ(arena.top_bytes(), 1024);
  arena.release(third.block);
  EXPECT_EQ(arena.top_bytes(), 256);
  arena.release(first.block);
  EXPECT_EQ(arena.top_bytes(), 0);
  EXPECT_EQ(arena.highest_bytes(), 1024);
}

/// The same allocator, written down without regard to time.
class SlowArena {
 public:
  std::int64_t acquire(std::int64_t bytes) {
    std::int64_t best = top();
    std::int64_t best_bytes = INT64_MAX;
    std::int64_t end = 0;
    for (const auto& [offset, taken] : taken_) {
      const std::int64_t hole = offset - end;
      if (hole >= bytes && hole < best_bytes) {
        best = end;
        best_bytes = hole;
      }
      end = offset + taken;
    }
    taken_[best] = bytes;
    return best;
  }
  void release(std::int64_t offset) { taken_.erase(offset); }
  [[nodiscard]] std::int64_t top() const {
    return taken_.empty() ? 0 : taken_.rbegin()->first + taken_.rbegin()->second;
  }

 private:
  std::map<std::int64_t, std::int64_t> taken_;  // bytes by offset
};

TEST(ArenaSimulationTest, PlacesAsASearchOfAllHolesDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    ArenaSimulation arena(0);
    SlowArena slow;
    std::vector<ArenaSimulation::Taken> taken;
    std::int64_t highest = 0;
    for (int count = 0; count < 500; ++count) {
      const std::int64_t bytes = 256 * (1 + random() % (round % 2 == 0 ? 4 : 40));
      switch (random() % 5) {
        case 0:
        case 1: {
          if (taken.empty()) break;
          std::swap(taken[random() % taken.size()], taken.back());
          arena.release(taken.back().block);
          slow.release(taken.back().offset);
          taken.pop_back();
          break;
        }
        case 2: {
          const std::int64_t offset = slow.acquire(bytes);
          highest = std::max(highest, slow.top());
          slow.release(offset);
          ASSERT_EQ(arena.borrow(bytes), offset);
          break;
        }
        default:
          taken.push_back(arena.acquire(bytes));
          ASSERT_EQ(taken.back().offset, slow.acquire(bytes));
      }
      highest = std::max(highest, slow.top());
      ASSERT_EQ(arena.top_bytes(), slow.top());
      ASSERT_EQ(arena.highest_bytes(), highest);
    }
  }
}

}  // namespace
}  // namespace dstune::plan
