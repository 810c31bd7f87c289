#include "dstune/comm/nodes.hpp"

#include <limits>
#include <numeric>

#include <gtest/gtest.h>

namespace dstune {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

CoreUse use(std::vector<int> cpus, double quota = unlimited) {
  return {std::move(cpus), quota};
}

TEST(ShareCoresTest, ARankBoundToItsCoreHasIt) {
  for (const CoreShare& share : share_cores({use({0}), use({1})})) {
    EXPECT_EQ(share.threads, 1);
    EXPECT_FALSE(share.share_core);
  }
}

TEST(ShareCoresTest, RanksWithTheSameMaskShareIt) {
  const std::vector<int> cpus{0, 1, 2, 3, 4, 5};
  const auto shares = share_cores({use(cpus), use(cpus), use(cpus)});
  EXPECT_EQ(shares[2].threads, 2);
  EXPECT_FALSE(shares[2].share_core);
}

TEST(ShareCoresTest, MoreRanksThanCoresShareACore) {
  const auto shares = share_cores({use({0, 1}), use({0, 1}), use({0, 1})});
  EXPECT_EQ(shares[0].threads, 1);
  EXPECT_TRUE(shares[0].share_core);
}

TEST(ShareCoresTest, TheQuotaIsSharedByAll) {
  const std::vector<int> cpus{0, 1, 2, 3, 4, 5, 6, 7};
  const auto shares = share_cores({use(cpus, 4), use(cpus, 4)});
  EXPECT_EQ(shares[0].threads, 2);
  EXPECT_FALSE(shares[0].share_core);
  EXPECT_TRUE(share_cores({use(cpus, 1.5), use(cpus, 1.5)})[0].share_core);
}

TEST(TopologyTest, NodesAndRanksFitTogether) {
  const Communicator world = Communicator::world();
  const Communicator node = world.split_shared();
  const Topology topology = find_topology(world, node);
  EXPECT_EQ(topology.world_rank, world.rank());
  EXPECT_EQ(topology.world_size, world.size());
  ASSERT_EQ(topology.node_of_rank.size(), static_cast<std::size_t>(world.size()));
  EXPECT_EQ(topology.node_of_rank[0], 0);
  ASSERT_EQ(topology.ranks_of_node.size(), topology.hosts.size());
  const auto own_node =
      static_cast<std::size_t>(topology.node_of_rank[static_cast<std::size_t>(world.rank())]);
  EXPECT_EQ(topology.ranks_of_node[own_node][static_cast<std::size_t>(topology.local_rank)],
            world.rank());
  EXPECT_FALSE(topology.hosts[own_node].empty());
  EXPECT_GE(topology.threads_of_rank, 1);
}

}  // namespace
}  // namespace dstune
