#include "profile/size_budget.hpp"

#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace dstune {
namespace {

constexpr double latency_s = 1e-4;
constexpr WorkKind kinds[] = {WorkKind::all_reduce, WorkKind::reduce, WorkKind::reduce_scatter,
                              WorkKind::all_gather};

struct Timed {
  double spent_s = 0;
  std::map<WorkKind, std::int64_t> largest{};
  int left_out = 0;
};

/// Seven sizes of each kind, from 4 KiB to 64 MB, over a link of such a rate.
Timed time_over(double bytes_per_s, double budget_s, int most) {
  Timed timed;
  SizeBudget budget;
  for (std::int64_t bytes = 4096; bytes <= 64 << 20; bytes *= 5) {
    for (const WorkKind kind : kinds) {
      Work work{.kind = kind};
      work.size = bytes;
      const int asks = budget.asks_within(work, budget_s - timed.spent_s, most);
      EXPECT_LE(asks, most);
      if (asks == 0) {
        ++timed.left_out;
        continue;
      }
      const double call_s = latency_s + static_cast<double>(bytes) / bytes_per_s;
      timed.spent_s += call_s * asks * SizeBudget::min_calls;
      timed.largest[kind] = bytes;
      budget.add(work, call_s);
    }
  }
  return timed;
}

TEST(SizeBudgetTest, AFastLinkIsTimedAtEverySize) {
  EXPECT_EQ(time_over(1e10, 1, 1).left_out, 0);
  EXPECT_EQ(time_over(1e10, 1, 10).left_out, 0);
}

TEST(SizeBudgetTest, ASlowLinkKeepsToTheBudgetAndTellsItsRate) {
  for (const int most : {1, 10}) {
    for (const double bytes_per_s : {2e7, 5e7, 1e8, 1e9}) {
      const Timed timed = time_over(bytes_per_s, 1, most);
      EXPECT_LE(timed.spent_s, 1) << bytes_per_s;
      for (const WorkKind kind : kinds) EXPECT_GE(timed.largest.at(kind), 256 << 10) << bytes_per_s;
    }
  }
}

TEST(SizeBudgetTest, EveryKindBeginsSmall) {
  Work large{.kind = WorkKind::all_reduce};
  large.size = 64 << 20;
  Work small{.kind = WorkKind::all_gather};
  small.size = 4096;
  Work middle = small;
  middle.size = 1 << 20;
  Work added = large;
  added.size = 256 << 10;
  EXPECT_EQ(smallest_first({large, middle, small}), (std::vector{small, added, middle, large}));
  EXPECT_EQ(smallest_first({small}), std::vector{small});
}

TEST(SizeBudgetTest, TheFirstSizeIsTimedInAnyCaseAndLargerOnesInProportion) {
  SizeBudget budget;
  Work work{.kind = WorkKind::all_reduce};
  work.size = 1000;
  EXPECT_EQ(budget.asks_within(work, 0, 10), 10);
  budget.add(work, 0.1);
  work.size = 5000;  // four calls of 0.5 s
  EXPECT_EQ(budget.asks_within(work, 2, 1), 1);
  EXPECT_EQ(budget.asks_within(work, 1.9, 1), 0);
  EXPECT_EQ(budget.asks_within(work, 2, 10), 1);
  EXPECT_EQ(budget.asks_within(work, 97, 10), 3);
  EXPECT_EQ(budget.asks_within(work, 1000, 10), 10);
  EXPECT_EQ(budget.asks_within(work, -1, 10), 0);
  work.kind = WorkKind::all_gather;
  EXPECT_EQ(budget.asks_within(work, 0, 10), 10);
}

}  // namespace
}  // namespace dstune
