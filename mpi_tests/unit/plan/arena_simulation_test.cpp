#include "program/arena_simulation.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace dstune::plan {
namespace {

/// The same allocator, written down without regard to time: it takes the smallest hole that fits,
/// of equal ones the lowest.
class SlowArena {
 public:
  explicit SlowArena(std::int64_t base) : base_(base) {}

  std::int64_t acquire(std::int64_t bytes) {
    std::int64_t best = top();
    std::int64_t best_bytes = INT64_MAX;
    std::int64_t end = base_;
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
    return taken_.empty() ? base_ : taken_.rbegin()->first + taken_.rbegin()->second;
  }

 private:
  std::int64_t base_;
  std::map<std::int64_t, std::int64_t> taken_;  // bytes by offset
};

TEST(ArenaSimulationTest, PlacesAsASearchOfAllHolesDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t base = round * 1000;
    ArenaSimulation arena(base);
    SlowArena slow(base);
    std::vector<ArenaSimulation::Taken> taken;
    std::int64_t highest = base;
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
