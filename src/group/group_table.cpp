#include "dstune/group/group_table.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "communicator_cache.hpp"
#include "dstune/base/error.hpp"
#include "dstune/group/process_group.hpp"
#include "shared_memory_group.hpp"
#include "shared_node.hpp"

namespace dstune {
namespace {

// Less than this makes chunks so small that MPI is the better way.
constexpr std::size_t min_staging_bytes = std::size_t{64} << 10;

template <class Number>
std::vector<Number> gather(const Communicator& communicator, const Number& mine) {
  std::vector<Number> all;
  for (const Bytes& part : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    std::memcpy(&all.emplace_back(), part.data(), sizeof mine);
  }
  return all;
}

// Returns the bytes that every rank of the node can have; 0 where shared memory is not to be used.
std::size_t agreed_staging_bytes(const Communicator& node, const GroupTable::Options& options) {
  const std::size_t affordable = SharedWindow::affordable_bytes(options.staging_bytes, node.size());
  const std::vector<std::size_t> all = gather(node, affordable);
  const std::size_t least = *std::min_element(all.begin(), all.end());
  return options.use_shared_memory && least >= min_staging_bytes ? least : 0;
}

}  // namespace

struct GroupTable::State {
  State(const Communicator& world, const Topology& where)
      : topology(where), world_rank(world.rank()) {}

  [[nodiscard]] int node_of(int rank) const {
    return topology.node_of_rank.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] bool on_one_node(std::span<const int> ranks) const {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return node_of(rank) == node_of(ranks.front()); });
  }
  [[nodiscard]] std::vector<int> local_ranks(std::span<const int> ranks) const {
    const auto& all = topology.ranks_of_node[static_cast<std::size_t>(node_of(world_rank))];
    std::vector<int> local;
    for (const int rank : ranks) {
      local.push_back(
          static_cast<int>(std::lower_bound(all.begin(), all.end(), rank) - all.begin()));
    }
    return local;
  }
  std::unique_ptr<ProcessGroup> join_hosts(std::vector<int> ranks, int group_rank,
                                           std::uint64_t attempt, const Waiter& waiter) {
    if (ranks.size() == 1) return std::make_unique<SelfGroup>(world_rank);
    if (shared && on_one_node(ranks)) {
      const std::vector<int> local = local_ranks(ranks);
      last_shared = ranks;
      return std::make_unique<SharedMemoryGroup>(*shared, local, std::move(ranks), group_rank,
                                                 attempt, waiter);
    }
    require(communicators.has_value(), "a group on one node without shared memory");
    std::shared_ptr<MpiContext> context = communicators->obtain(ranks, attempt, waiter);
    std::vector<int> nodes;
    for (const int rank : ranks) nodes.push_back(node_of(rank));
    return std::make_unique<MpiGroup>(std::move(context), std::move(ranks), std::move(nodes),
                                      group_rank, waiter);
  }

  Topology topology;
  int world_rank;
  std::optional<SharedNode> shared;
  std::vector<int> last_shared;  // world ranks of the last group that shared memory
  std::optional<CommunicatorCache> communicators;
  std::optional<DeviceGroups> devices;
};

GroupTable::GroupTable(const Communicator& world, const Communicator& node,
                       const Topology& topology, const std::vector<std::vector<int>>& known,
                       const Options& options)
    : state_(std::make_unique<State>(world, topology)) {
  const std::size_t staging_bytes = agreed_staging_bytes(node, options);
  if (staging_bytes > 0) state_->shared.emplace(node, staging_bytes);
  // Which nodes have shared memory must be known to all: making communicators is collective.
  const std::vector<char> node_shares = gather(world, static_cast<char>(staging_bytes > 0));
  const auto needs_communicator = [&](const std::vector<int>& ranks) {
    return ranks.size() > 1 &&
           !(state_->on_one_node(ranks) && node_shares[static_cast<std::size_t>(ranks.front())]);
  };
  std::vector<std::vector<int>> across;
  std::copy_if(known.begin(), known.end(), std::back_inserter(across), needs_communicator);
  const bool all_share =
      std::all_of(node_shares.begin(), node_shares.end(), [](char shares) { return shares != 0; });
  if (topology.num_nodes() > 1 || !all_share) {
    state_->communicators.emplace(world, across, options);
  }
  if (options.device) state_->devices.emplace(world, *options.device);
}

GroupTable::~GroupTable() {
  if (state_->shared && has_abandoned()) state_->shared->abandon();
}

std::unique_ptr<ProcessGroup> GroupTable::join(std::span<const int> world_ranks,
                                               std::uint64_t attempt, const Waiter& waiter,
                                               bool is_risky) {
  const auto own = std::lower_bound(world_ranks.begin(), world_ranks.end(), state_->world_rank);
  require(attempt > 0, "attempts are numbered from 1");
  require(std::adjacent_find(world_ranks.begin(), world_ranks.end(), std::greater_equal<>()) ==
              world_ranks.end(),
          "a group's ranks ascend");
  require(own != world_ranks.end() && *own == state_->world_rank,
          "only a rank of the group joins it");
  const auto group_rank = static_cast<int>(own - world_ranks.begin());
  std::vector<int> ranks(world_ranks.begin(), world_ranks.end());
  auto host = state_->join_hosts(std::move(ranks), group_rank, attempt, waiter);
  if (!state_->devices) return host;
  try {
    return state_->devices->over(std::move(host), attempt, waiter, is_risky);
  } catch (...) {
    abandon(world_ranks);  // so that who is there already hears of it
    throw;
  }
}

void GroupTable::abandon(std::span<const int> world_ranks) {
  const bool is_last = std::equal(world_ranks.begin(), world_ranks.end(),
                                  state_->last_shared.begin(), state_->last_shared.end());
  if (state_->shared && is_last) state_->shared->leave();
  if (state_->communicators) state_->communicators->abandon(world_ranks);
  if (state_->devices) state_->devices->abandon(world_ranks);
}

void GroupTable::give_up_device() {
  if (state_->devices) state_->devices->give_up();
}

void GroupTable::interrupt(std::uint64_t attempt, CollectiveError::Cause why) {
  if (state_->devices) state_->devices->interrupt(attempt, why);
}

const DeviceGroups* GroupTable::devices() const {
  return state_->devices ? &*state_->devices : nullptr;
}

bool GroupTable::has_abandoned() const {
  return state_->communicators && state_->communicators->has_abandoned();
}

int GroupTable::created_on_demand() const {
  return state_->communicators ? state_->communicators->created_on_demand() : 0;
}

std::vector<std::vector<int>> aligned_groups(const std::vector<std::vector<int>>& ranks_of_node,
                                             int num_gpus, int num_nodes) {
  require(num_gpus >= 1 && num_nodes >= 1, "a group has at least one rank on at least one node");
  const auto per_node = static_cast<std::size_t>(num_gpus);
  const auto run = static_cast<std::size_t>(num_nodes);
  std::vector<std::vector<int>> groups;
  for (std::size_t first_node = 0; first_node + run <= ranks_of_node.size(); first_node += run) {
    const auto nodes = std::span(ranks_of_node).subspan(first_node, run);
    const std::size_t smallest =
        std::ranges::min_element(nodes, {}, &std::vector<int>::size)->size();
    for (std::size_t first = 0; first + per_node <= smallest; first += per_node) {
      std::vector<int> group;
      for (const std::vector<int>& ranks : nodes) {
        const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(first);
        group.insert(group.end(), begin, begin + num_gpus);
      }
      std::sort(group.begin(), group.end());
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace dstune
