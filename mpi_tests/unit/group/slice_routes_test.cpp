#include "slice_routes.hpp"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace dstune {
namespace {

struct Delivery {
  std::map<std::pair<int, int>, int> taken;  ///< how often a rank takes a slice: rank, slice
  std::map<int, int> crossings;              ///< of each slice between nodes
};

/// What all ranks of a range do: a slice is there before its bringer passes it on.
Delivery deliver(const std::vector<int>& node_of_rank, const RankRange& ranks) {
  std::vector<SliceRoutes> routes;
  for (int index = 0; index < ranks.count; ++index)
    routes.push_back(routes_by_node(node_of_rank, ranks, index));
  const auto node_of = [&](int index) {
    return node_of_rank[static_cast<std::size_t>(ranks.rank(index))];
  };
  Delivery delivery;
  const auto hand_over = [&](int from, int to, int slice) {
    EXPECT_EQ(routes[static_cast<std::size_t>(to)].from[static_cast<std::size_t>(slice)], from);
    ++delivery.taken[{to, slice}];
    if (node_of(from) != node_of(to)) ++delivery.crossings[slice];
  };
  for (int from = 0; from < ranks.count; ++from)
    for (const int to : routes[static_cast<std::size_t>(from)].to) hand_over(from, to, from);
  for (int from = 0; from < ranks.count; ++from) {
    const SliceRoutes& mine = routes[static_cast<std::size_t>(from)];
    for (const int slice : mine.passed) {
      EXPECT_EQ(delivery.taken.count({from, slice}), 1U);
      for (const int to : mine.mates) hand_over(from, to, slice);
    }
  }
  return delivery;
}

void expect_complete(const std::vector<int>& node_of_rank, const RankRange& ranks) {
  const Delivery delivery = deliver(node_of_rank, ranks);
  std::set<int> nodes;
  for (int index = 0; index < ranks.count; ++index)
    nodes.insert(node_of_rank[static_cast<std::size_t>(ranks.rank(index))]);
  for (int slice = 0; slice < ranks.count; ++slice) {
    for (int rank = 0; rank < ranks.count; ++rank) {
      const auto found = delivery.taken.find({rank, slice});
      const int times = found == delivery.taken.end() ? 0 : found->second;
      EXPECT_EQ(times, rank == slice ? 0 : 1) << "slice " << slice << " on rank " << rank;
    }
    const auto found = delivery.crossings.find(slice);
    const int crossings = found == delivery.crossings.end() ? 0 : found->second;
    EXPECT_EQ(crossings, static_cast<int>(nodes.size()) - 1) << "slice " << slice;
  }
}

TEST(SliceRoutesTest, EveryRankGetsEverySliceOnceAndEachNodeToo) {
  for (const std::vector<int>& node_of_rank :
       {std::vector{0}, std::vector{0, 1}, std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1},
        std::vector{0, 0, 0, 1, 2, 2}, std::vector{3, 3, 3, 3, 3, 3}}) {
    const auto size = static_cast<int>(node_of_rank.size());
    expect_complete(node_of_rank, {0, 1, size});
    if (size % 2 == 0) expect_complete(node_of_rank, {1, 2, size / 2});
  }
}

TEST(SliceRoutesTest, RanksOfANodeShareWhatTheyBring) {
  const RankRange ranks{0, 1, 6};
  for (int index = 0; index < ranks.count; ++index) {
    EXPECT_EQ(routes_by_node({0, 0, 0, 1, 1, 1}, ranks, index).passed.size(), 1U);
  }
}

TEST(SliceRoutesTest, NothingIsPassedOnByDirectRoutes) {
  const SliceRoutes routes = direct_routes(3, 1);
  EXPECT_EQ(routes.from, (std::vector{0, 1, 2}));
  EXPECT_EQ(routes.to, (std::vector{0, 2}));
  EXPECT_TRUE(routes.passed.empty());
}

}  // namespace
}  // namespace dstune
