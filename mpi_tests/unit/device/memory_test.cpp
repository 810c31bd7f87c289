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

class ArenaTest : public testing::Test {
 protected:
  MemoryBudget budget_{mebibyte};
  SystemMemory system_;
  Arena arena_{budget_, system_};
};

TEST_F(ArenaTest, GrowsAndKeepsItsLargestSize) {
  budget_.set_limit_bytes(64 * mebibyte);
  arena_.prepare(1000);
  EXPECT_EQ(arena_.capacity_bytes(), 1000);
  std::memset(arena_.base(), 1, 1000);
  arena_.prepare(5 * mebibyte + 3);
  EXPECT_EQ(arena_.capacity_bytes(), 5 * mebibyte + 3);
  EXPECT_EQ(budget_.held_bytes(), 5 * mebibyte + 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena_.base()) % (2 * mebibyte), 0U);
  std::memset(arena_.base(), 1, 5 * mebibyte + 3);
  std::byte* const base = arena_.base();
  arena_.prepare(10);
  EXPECT_EQ(arena_.base(), base);
  EXPECT_EQ(budget_.held_bytes(), 5 * mebibyte + 3);
  arena_.free();
  EXPECT_EQ(budget_.held_bytes(), 0);
  EXPECT_EQ(arena_.base(), nullptr);
}

TEST_F(ArenaTest, IsEmptyAfterABudgetRefusal) {
  arena_.prepare(mebibyte);
  EXPECT_THROW(arena_.prepare(mebibyte + 1), OutOfMemory);
  EXPECT_EQ(arena_.capacity_bytes(), 0);
  EXPECT_EQ(budget_.held_bytes(), 0);
  arena_.prepare(mebibyte);
  EXPECT_EQ(arena_.capacity_bytes(), mebibyte);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(ArenaTest, TurnsTheSystemsRefusalIntoOutOfMemory) {
  budget_.set_limit_bytes(std::int64_t{1} << 50);
  arena_.prepare(mebibyte);
  const AddressSpaceLimit limit(rlim_t{1} << 32);
  EXPECT_THROW(arena_.prepare(std::int64_t{1} << 33), OutOfMemory);
  EXPECT_EQ(arena_.capacity_bytes(), 0);
  EXPECT_EQ(budget_.held_bytes(), 0);
  arena_.prepare(2 * mebibyte);
  EXPECT_EQ(budget_.held_bytes(), 2 * mebibyte);
}
#endif

TEST_F(ArenaTest, LeakedMemoryStaysTakenAndMapped) {
  budget_.set_limit_bytes(4 * mebibyte);
  arena_.prepare(mebibyte);
  std::byte* const late_peers_target = arena_.base();
  arena_.leak();
  EXPECT_EQ(arena_.capacity_bytes(), 0);
  EXPECT_EQ(budget_.held_bytes(), mebibyte);
  arena_.prepare(2 * mebibyte);
  EXPECT_EQ(budget_.held_bytes(), 3 * mebibyte);
  std::memset(late_peers_target, 1, static_cast<std::size_t>(mebibyte));
}

TEST_F(ArenaTest, RefusesOverlapsAndStrangers) {
  arena_.prepare(1000);
  arena_.acquire(100, 100, 0);
  EXPECT_THROW(arena_.acquire(100, 1, 0), LogicError);
  EXPECT_THROW(arena_.acquire(199, 1, 0), LogicError);
  EXPECT_THROW(arena_.acquire(50, 51, 0), LogicError);
  EXPECT_THROW(arena_.acquire(0, 1000, 0), LogicError);
  arena_.acquire(50, 50, 0);
  arena_.acquire(200, 800, 0);
  EXPECT_THROW(arena_.acquire(0, 51, 0), LogicError);
  EXPECT_THROW(arena_.release(150), LogicError);
  arena_.release(100);
  EXPECT_THROW(arena_.release(100), LogicError);
  arena_.acquire(120, 80, 0);
}

TEST_F(ArenaTest, RefusesWhatLiesOutside) {
  arena_.prepare(1000);
  EXPECT_THROW(arena_.acquire(-1, 10, 0), LogicError);
  EXPECT_THROW(arena_.acquire(0, 0, 0), LogicError);
  EXPECT_THROW(arena_.acquire(1000, 1, 0), LogicError);
  EXPECT_THROW(arena_.acquire(0, 1001, 0), LogicError);
  EXPECT_THROW(arena_.acquire(0, 1, Arena::max_categories), LogicError);
  EXPECT_THROW(arena_.acquire(0, 1, -1), LogicError);
}

TEST_F(ArenaTest, AccountsForTheFullestInstant) {
  arena_.prepare(1000);
  arena_.acquire(0, 300, 2);
  arena_.acquire(700, 300, 5);
  arena_.release(0);
  arena_.acquire(0, 100, 2);
  EXPECT_EQ(arena_.account().high_water_bytes, 1000);
  EXPECT_EQ(arena_.account().peak_live_bytes, 600);
  EXPECT_EQ(arena_.account().categories_at_peak[2], 300);
  EXPECT_EQ(arena_.account().categories_at_peak[5], 300);
  EXPECT_THROW(arena_.prepare(10), LogicError);
  arena_.release(0);
  arena_.release(700);
  arena_.prepare(10);
  EXPECT_EQ(arena_.account().high_water_bytes, 0);
  EXPECT_EQ(arena_.account().peak_live_bytes, 0);
}

}  // namespace
}  // namespace dstune
