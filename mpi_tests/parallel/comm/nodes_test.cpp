#include "dstune/comm/nodes.hpp"

#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

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

/// What a launcher says, while this lives.
class LauncherVariables {
 public:
  explicit LauncherVariables(const std::map<std::string, std::string>& said) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
          "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"}) {
      const char* const value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      unsetenv(name);
    }
    for (const auto& [name, value] : said) setenv(name.c_str(), value.c_str(), 1);
  }
  LauncherVariables(const LauncherVariables&) = delete;
  LauncherVariables& operator=(const LauncherVariables&) = delete;
  ~LauncherVariables() {
    for (const auto& [name, value] : before_)
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST(LaunchedTopologyTest, IsOneRankWhereNobodySays) {
  const LauncherVariables none({});
  const Topology topology = launched_topology();
  EXPECT_EQ(topology.world_size, 1);
  EXPECT_EQ(topology.ranks_of_node, (std::vector<std::vector<int>>{{0}}));
  EXPECT_GE(topology.threads_of_rank, 1);
}

TEST(LaunchedTopologyTest, IsTheLaunchersJob) {
  const std::vector<std::vector<int>> two_nodes{{0, 1}, {2, 3}};
  {
    const LauncherVariables open_mpi(
        {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    const Topology topology = launched_topology();
    EXPECT_EQ(topology.world_size, 4);
    EXPECT_EQ(topology.world_rank, 0);
    EXPECT_EQ(topology.ranks_of_node, two_nodes);
    EXPECT_EQ(topology.node_of_rank, (std::vector<int>{0, 0, 1, 1}));
    EXPECT_EQ(topology.num_nodes(), 2);
  }
  const LauncherVariables slurm(
      {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});
  EXPECT_EQ(launched_topology().ranks_of_node, two_nodes);
}

}  // namespace
}  // namespace dstune
