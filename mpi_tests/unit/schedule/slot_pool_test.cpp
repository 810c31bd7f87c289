#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/schedule/scheduler.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

const std::vector<std::vector<int>> two_nodes = {{0, 1, 2, 3}, {4, 5, 6, 7}};

/// Throws, and so fails the test, where there is no room.
Reservation reserved(SlotPool& pool, const Needs& needs, const std::vector<int>& avoid = {}) {
  auto reservation = pool.reserve(needs, avoid);
  if (!reservation) throw std::runtime_error("there is no room");
  return std::move(*reservation);
}

TEST(SlotPoolTest, FillsAlignedGroupsInOrder) {
  SlotPool pool(two_nodes);
  auto first = reserved(pool, {2, 1});
  auto second = reserved(pool, {2, 1});
  auto third = reserved(pool, {2, 1});
  EXPECT_THAT(first.world_ranks(), ElementsAre(0, 1));
  EXPECT_THAT(second.world_ranks(), ElementsAre(2, 3));
  EXPECT_THAT(third.world_ranks(), ElementsAre(4, 5));
  EXPECT_EQ(pool.num_idle(), 2);
}

TEST(SlotPoolTest, PrefersAnAlignedGroupOverALowerOne) {
  SlotPool pool({{0, 1, 2, 3}});
  auto one = reserved(pool, {1, 1});
  ASSERT_THAT(one.world_ranks(), ElementsAre(0));
  auto two = reserved(pool, {2, 1});
  EXPECT_THAT(two.world_ranks(), ElementsAre(2, 3));
}

TEST(SlotPoolTest, ADiskOfANodeIsForOneAtATime) {
  const auto on_disk = [](int num_gpus, int num_nodes) {
    return Needs{.shape = {num_gpus, num_nodes}, .disk_bytes = 1};
  };
  SlotPool pool(two_nodes);
  auto first = pool.reserve(on_disk(1, 1));
  auto second = reserved(pool, on_disk(1, 1));
  ASSERT_TRUE(first);
  EXPECT_THAT(first->world_ranks(), ElementsAre(0));
  EXPECT_THAT(second.world_ranks(), ElementsAre(4));
  // There are six idle slots, but no disk.
  EXPECT_FALSE(pool.reserve(on_disk(1, 1)));
  auto without = pool.reserve({2, 2});
  ASSERT_TRUE(without);
  without.reset();
  second.give_back();
  EXPECT_FALSE(pool.reserve(on_disk(1, 2)));
  // One that moves takes its disk along, and gives it back once.
  Reservation moved = std::move(*first);
  first.reset();
  EXPECT_FALSE(pool.reserve(on_disk(1, 2)));
  moved.give_back();
  auto both = pool.reserve(on_disk(4, 2));
  ASSERT_TRUE(both);
  both->retire(0);
  both.reset();
  EXPECT_TRUE(pool.reserve(on_disk(3, 2)));
}

TEST(SlotPoolTest, BytesAreTakenWithTheSlotsAndComeBackWithThem) {
  const auto needs = [](int num_gpus, std::int64_t host_bytes, std::int64_t disk_bytes) {
    return Needs{.shape = {num_gpus, 1}, .host_bytes = host_bytes, .disk_bytes = disk_bytes};
  };
  SlotPool pool(two_nodes, {{.host = 100, .disk = 50}, {.host = 40, .disk = 50}});
  // Each rank needs them, and all of it is on one node.
  EXPECT_TRUE(pool.is_possible(needs(4, 25, 12)));
  EXPECT_FALSE(pool.is_possible(needs(4, 26, 0)));
  EXPECT_FALSE(pool.is_possible(needs(4, 0, 13)));
  EXPECT_FALSE(pool.is_possible({.shape = {4, 2}, .host_bytes = 11}));
  auto first = pool.reserve(needs(1, 50, 50));
  ASSERT_TRUE(first);
  EXPECT_THAT(first->world_ranks(), ElementsAre(0));
  EXPECT_FALSE(pool.reserve(needs(2, 30, 0))) << "where there are slots there are no bytes";
  EXPECT_EQ(pool.num_idle(), 7);
  auto beside = reserved(pool, needs(1, 50, 0));
  EXPECT_THAT(beside.world_ranks(), ElementsAre(1));
  // Both have what it needs; then it leaves the slots alone that are idle now.
  const SlotPool::Wait wait = pool.wait_for(needs(2, 30, 0));
  EXPECT_EQ(wait.reservations.size(), 2U);
  EXPECT_THAT(wait.world_ranks, ElementsAre(0, 1));
  Reservation moved = std::move(*first);
  first.reset();
  moved.give_back();
  moved.give_back();
  auto second = reserved(pool, needs(2, 25, 25));
  EXPECT_THAT(second.world_ranks(), ElementsAre(2, 3));
}

TEST(SlotPoolTest, WhatALostRankHeldIsGone) {
  const Needs needs{.shape = {2, 1}, .host_bytes = 30, .disk_bytes = 20};
  SlotPool pool({{0, 1, 2, 3}}, {{.host = 90, .disk = 50}});
  auto first = pool.reserve(needs);
  ASSERT_TRUE(first);
  first->retire(1);
  first.reset();
  // 60 and 30 bytes are left.
  EXPECT_FALSE(pool.is_possible(needs));
  EXPECT_TRUE(pool.reserve({.shape = {2, 1}, .host_bytes = 30, .disk_bytes = 15}));
  EXPECT_FALSE(pool.is_possible({.shape = {2, 1}, .host_bytes = 31}));
  EXPECT_EQ(pool.num_slots(), 3);
}

TEST(SlotPoolTest, PrefersAnAlignedGroupOfALaterNode) {
  SlotPool pool({{0, 1, 2}, {3, 4}});
  auto one = reserved(pool, {1, 1});
  auto two = reserved(pool, {2, 1});
  EXPECT_THAT(two.world_ranks(), ElementsAre(3, 4));
}

TEST(SlotPoolTest, TakesUnalignedSlotsWhereNoneAreAligned) {
  SlotPool pool({{0, 1, 2, 3}});
  auto zero = reserved(pool, {1, 1});
  auto one = reserved(pool, {1, 1});
  auto two = reserved(pool, {1, 1});
  zero.give_back();
  two.give_back();
  // 1 is taken: {0, 1} is not idle as a whole, {2, 3} is.
  auto aligned = pool.reserve({2, 1});
  ASSERT_THAT(aligned->world_ranks(), ElementsAre(2, 3));
  aligned.reset();
  pool.retire(3);
  auto unaligned = reserved(pool, {2, 1});
  EXPECT_THAT(unaligned.world_ranks(), ElementsAre(0, 2));
}

TEST(SlotPoolTest, SpansNeighbouringNodesFirst) {
  SlotPool pool({{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  auto one_of_second = reserved(pool, {1, 1}, {0, 1});
  ASSERT_THAT(one_of_second.world_ranks(), ElementsAre(2));
  auto pair = reserved(pool, {2, 2});
  EXPECT_THAT(pair.world_ranks(), ElementsAre(4, 5, 6, 7));
}

TEST(SlotPoolTest, SpansDistantNodesWhereNoNeighboursAreIdle) {
  SlotPool pool({{0, 1}, {2, 3}, {4, 5}});
  auto middle = reserved(pool, {2, 1}, {0, 1});
  ASSERT_THAT(middle.world_ranks(), ElementsAre(2, 3));
  auto pair = reserved(pool, {2, 2});
  EXPECT_THAT(pair.world_ranks(), ElementsAre(0, 1, 4, 5));
}

TEST(SlotPoolTest, NeverSplitsANodesShareOverNodes) {
  SlotPool pool({{0, 1}, {2, 3}});
  auto first = reserved(pool, {1, 2});
  ASSERT_THAT(first.world_ranks(), ElementsAre(0, 2));
  EXPECT_FALSE(pool.reserve({2, 1}));
  EXPECT_TRUE(pool.is_possible({2, 1}));
  EXPECT_FALSE(pool.is_possible({3, 1}));
  EXPECT_FALSE(pool.is_possible({1, 3}));
  EXPECT_FALSE(pool.is_possible({0, 1}));
  EXPECT_TRUE(pool.wait_for({3, 1}).world_ranks.empty());
}

TEST(SlotPoolTest, LeavesAvoidedSlotsAlone) {
  SlotPool pool(two_nodes);
  auto group = reserved(pool, {2, 1}, {0, 1, 2});
  EXPECT_THAT(group.world_ranks(), ElementsAre(4, 5));
  EXPECT_FALSE(pool.reserve({4, 1}, {0}));
}

TEST(SlotPoolTest, WaitsForThePlacementWithTheMostIdleSlots) {
  SlotPool pool(two_nodes);
  auto most_of_first = reserved(pool, {1, 1});
  auto two = reserved(pool, {2, 1});
  auto one_of_second = reserved(pool, {1, 1}, {0, 1, 2, 3});
  ASSERT_THAT(two.world_ranks(), ElementsAre(2, 3));
  ASSERT_THAT(one_of_second.world_ranks(), ElementsAre(4));
  const SlotPool::Wait wait = pool.wait_for({4, 1});
  EXPECT_THAT(wait.world_ranks, ElementsAre(4, 5, 6, 7));
  EXPECT_FALSE(pool.has_room_after({4, 1}, {}));
  EXPECT_TRUE(pool.has_room_after({4, 1}, wait.reservations));
  one_of_second.give_back();
  EXPECT_TRUE(pool.has_room_after({4, 1}, {})) << "what has ended stays so";
}

TEST(SlotPoolTest, WaitsForNoMoreThanItNeeds) {
  SlotPool pool({{0, 1, 2, 3}});
  auto three = pool.reserve({3, 1});
  ASSERT_THAT(three->world_ranks(), ElementsAre(0, 1, 2));
  const SlotPool::Wait for_another = pool.wait_for({3, 1});
  EXPECT_EQ(for_another.reservations.size(), 1U);
  EXPECT_THAT(for_another.world_ranks, ElementsAre(0, 1, 2)) << "3 is idle, and not needed";
  three.reset();
  auto one = reserved(pool, {1, 1});
  auto pair = reserved(pool, {2, 1});
  ASSERT_THAT(pair.world_ranks(), ElementsAre(2, 3));
  const SlotPool::Wait for_three = pool.wait_for({3, 1});
  EXPECT_EQ(for_three.reservations.size(), 1U) << "the two, beside what is idle";
  EXPECT_THAT(for_three.world_ranks, ElementsAre(1, 2, 3));
}

TEST(SlotPoolTest, WaitsForWhatHasRunLongest) {
  SlotPool pool({{0, 1, 2}});
  auto zero = pool.reserve({1, 1});
  auto one = reserved(pool, {1, 1});
  auto two = reserved(pool, {1, 1});
  zero.reset();
  zero = pool.reserve({1, 1});
  ASSERT_THAT(zero->world_ranks(), ElementsAre(0));
  EXPECT_THAT(pool.wait_for({1, 1}).world_ranks, ElementsAre(1));
}

TEST(SlotPoolTest, GivesBackOnEveryPath) {
  SlotPool pool({{0, 1, 2, 3}});
  {
    auto group = pool.reserve({2, 1});
    Reservation moved = std::move(*group);
    EXPECT_EQ(pool.num_idle(), 2);
    Reservation assigned;
    assigned = std::move(moved);
    EXPECT_THAT(assigned.world_ranks(), ElementsAre(0, 1));
    EXPECT_EQ(pool.num_idle(), 2);
    assigned = std::move(*pool.reserve({1, 1}));
    EXPECT_EQ(pool.num_idle(), 3);
    assigned.give_back();
    assigned.give_back();
    EXPECT_EQ(pool.num_idle(), 4);
  }
  EXPECT_EQ(pool.num_idle(), 4);
}

TEST(SlotPoolTest, RetiredSlotsNeverComeBack) {
  SlotPool pool({{0, 1, 2, 3}});
  {
    auto group = reserved(pool, {4, 1});
    group.retire(2);
    EXPECT_EQ(pool.num_slots(), 3);
    EXPECT_EQ(pool.num_idle(), 0);
  }
  EXPECT_EQ(pool.num_idle(), 3);
  EXPECT_FALSE(pool.is_possible({4, 1}));
  auto rest = reserved(pool, {3, 1});
  EXPECT_THAT(rest.world_ranks(), ElementsAre(0, 1, 3));
  EXPECT_THROW(rest.retire(2), LogicError);
}

TEST(SlotPoolTest, RefusesARankThatIsListedTwice) {
  EXPECT_THROW(SlotPool({{0, 1}, {1, 2}}), LogicError);
}

TEST(SlotPoolTest, RandomReservationsNeverOverlapAndAllComeBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    SlotPool pool({{0, 1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}, {11, 12, 13, 14, 15, 16, 17, 18}});
    std::vector<Reservation> held;
    std::set<int> retired;
    for (int action = 0; action < 200; ++action) {
      const int choice = static_cast<int>(random() % 20);
      if (choice < 12) {
        const GroupShape shape{1 + static_cast<int>(random() % 5),
                               1 + static_cast<int>(random() % 3)};
        if (auto group = pool.reserve({shape})) {
          EXPECT_EQ(static_cast<int>(group->world_ranks().size()), shape.size());
          held.push_back(std::move(*group));
        } else if (held.empty()) {
          EXPECT_FALSE(pool.is_possible({shape}));
        }
      } else if (choice < 19 && !held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        held.pop_back();
      } else if (retired.size() < 6) {
        const int world_rank = static_cast<int>(random() % 19);
        pool.retire(world_rank);
        retired.insert(world_rank);
      }
      std::set<int> taken;
      for (const auto& group : held) {
        for (const int world_rank : group.world_ranks())
          EXPECT_TRUE(taken.insert(world_rank).second) << world_rank << " is taken twice";
      }
      std::set<int> gone = retired;
      gone.insert(taken.begin(), taken.end());
      EXPECT_EQ(pool.num_idle(), 19 - static_cast<int>(gone.size()));
    }
    held.clear();
    EXPECT_EQ(pool.num_idle(), pool.num_slots());
    EXPECT_EQ(pool.num_slots(), 19 - static_cast<int>(retired.size()));
  }
}

}  // namespace
}  // namespace dstune
