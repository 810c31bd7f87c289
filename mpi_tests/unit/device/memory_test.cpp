#include "dstune/device/memory.hpp"

#include <cstdint>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "thrown.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

/// Limits the process's address space until the end of the scope.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &now);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(MemoryBudgetTest, HoldsUpToTheLimit) {
  MemoryBudget budget(100);
  budget.take(60);
  budget.take(40);
  EXPECT_EQ(budget.held_bytes(), 100);
  EXPECT_THROW(budget.take(1), OutOfMemory);
  budget.give_back(40);
  EXPECT_EQ(budget.held_bytes(), 60);
  budget.take(0);
  EXPECT_THROW(budget.take(-1), LogicError);
}

TEST(MemoryBudgetTest, SaysWhatWasAskedAndWhatWasThere) {
  MemoryBudget budget(100);
  budget.take(70);
  const auto words = [&](std::int64_t bytes) {
    return test::thrown<OutOfMemory>([&] { budget.take(bytes); });
  };
  EXPECT_THAT(words(31), HasSubstr("31 B asked for, 30 B available"));
  budget.set_limit_bytes(50);
  EXPECT_THAT(words(1), HasSubstr("1 B asked for, 0 B available"));
}

TEST(ArenaTest, GrowsAndKeepsItsLargestSize) {
  MemoryBudget budget(64 * mebibyte);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(1000);
  EXPECT_EQ(arena.capacity_bytes(), 1000);
  std::memset(arena.base(), 1, 1000);
  arena.prepare(5 * mebibyte + 3);
  EXPECT_EQ(arena.capacity_bytes(), 5 * mebibyte + 3);
  EXPECT_EQ(budget.held_bytes(), 5 * mebibyte + 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.base()) % (2 * mebibyte), 0U);
  std::memset(arena.base(), 1, 5 * mebibyte + 3);
  std::byte* const base = arena.base();
  arena.prepare(10);
  EXPECT_EQ(arena.base(), base);
  EXPECT_EQ(budget.held_bytes(), 5 * mebibyte + 3);
  arena.free();
  EXPECT_EQ(budget.held_bytes(), 0);
  EXPECT_EQ(arena.base(), nullptr);
}

TEST(ArenaTest, IsEmptyAfterABudgetRefusal) {
  MemoryBudget budget(mebibyte);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(mebibyte);
  EXPECT_THROW(arena.prepare(mebibyte + 1), OutOfMemory);
  EXPECT_EQ(arena.capacity_bytes(), 0);
  EXPECT_EQ(budget.held_bytes(), 0);
  arena.prepare(mebibyte);
  EXPECT_EQ(arena.capacity_bytes(), mebibyte);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ArenaTest, TurnsTheSystemsRefusalIntoOutOfMemory) {
  MemoryBudget budget(std::int64_t{1} << 50);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(mebibyte);
  const AddressSpaceLimit limit(rlim_t{1} << 32);
  EXPECT_THROW(arena.prepare(std::int64_t{1} << 33), OutOfMemory);
  EXPECT_EQ(arena.capacity_bytes(), 0);
  EXPECT_EQ(budget.held_bytes(), 0);
  arena.prepare(2 * mebibyte);
  EXPECT_EQ(budget.held_bytes(), 2 * mebibyte);
}
#endif

TEST(ArenaTest, LeakedMemoryStaysTakenAndMapped) {
  MemoryBudget budget(4 * mebibyte);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(mebibyte);
  std::byte* const late_peers_target = arena.base();
  arena.leak();
  EXPECT_EQ(arena.capacity_bytes(), 0);
  EXPECT_EQ(budget.held_bytes(), mebibyte);
  arena.prepare(2 * mebibyte);
  EXPECT_EQ(budget.held_bytes(), 3 * mebibyte);
  std::memset(late_peers_target, 1, static_cast<std::size_t>(mebibyte));
}

TEST(ArenaTest, RefusesOverlapsAndStrangers) {
  MemoryBudget budget(mebibyte);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(1000);
  arena.acquire(100, 100, 0);
  EXPECT_THROW(arena.acquire(100, 1, 0), LogicError);
  EXPECT_THROW(arena.acquire(199, 1, 0), LogicError);
  EXPECT_THROW(arena.acquire(50, 51, 0), LogicError);
  EXPECT_THROW(arena.acquire(0, 1000, 0), LogicError);
  arena.acquire(50, 50, 0);
  arena.acquire(200, 800, 0);
  EXPECT_THROW(arena.acquire(0, 51, 0), LogicError);
  EXPECT_THROW(arena.release(150), LogicError);
  arena.release(100);
  EXPECT_THROW(arena.release(100), LogicError);
  arena.acquire(120, 80, 0);
}

TEST(ArenaTest, RefusesWhatLiesOutside) {
  MemoryBudget budget(mebibyte);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(1000);
  EXPECT_THROW(arena.acquire(-1, 10, 0), LogicError);
  EXPECT_THROW(arena.acquire(0, 0, 0), LogicError);
  EXPECT_THROW(arena.acquire(1000, 1, 0), LogicError);
  EXPECT_THROW(arena.acquire(0, 1001, 0), LogicError);
  EXPECT_THROW(arena.acquire(0, 1, Arena::max_categories), LogicError);
  EXPECT_THROW(arena.acquire(0, 1, -1), LogicError);
}

TEST(ArenaTest, AccountsForTheFullestInstant) {
  MemoryBudget budget(mebibyte);
  SystemMemory system;
  Arena arena(budget, system);
  arena.prepare(1000);
  arena.acquire(0, 300, 2);
  arena.acquire(700, 300, 5);
  arena.release(0);
  arena.acquire(0, 100, 2);
  EXPECT_EQ(arena.account().high_water_bytes, 1000);
  EXPECT_EQ(arena.account().peak_live_bytes, 600);
  EXPECT_EQ(arena.account().categories_at_peak[2], 300);
  EXPECT_EQ(arena.account().categories_at_peak[5], 300);
  EXPECT_THROW(arena.prepare(10), LogicError);
  arena.release(0);
  arena.release(700);
  arena.prepare(10);
  EXPECT_EQ(arena.account().high_water_bytes, 0);
  EXPECT_EQ(arena.account().peak_live_bytes, 0);
}

}  // namespace
}  // namespace dstune
