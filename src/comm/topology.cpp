#include "dstune/comm/topology.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>

#include <unistd.h>

namespace dstune {
namespace {

template <class Number>
void put(Bytes& bytes, const Number& number) {
  static_assert(std::is_trivially_copyable_v<Number>);
  const auto* begin = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), begin, begin + sizeof number);
}

template <class Number>
Number get(const Bytes& bytes, std::size_t place) {
  Number number;
  std::memcpy(&number, bytes.data() + place, sizeof number);
  return number;
}

int lowest_world_rank(const Communicator& node, int world_rank) {
  Bytes mine;
  put(mine, world_rank);
  int lowest = world_rank;
  for (const Bytes& other : node.all_gather(mine)) lowest = std::min(lowest, get<int>(other, 0));
  return lowest;
}

CoreShare own_share(const Communicator& node) {
  const CoreUse own = own_core_use();
  Bytes mine;
  put(mine, own.quota_cores);
  for (const int cpu : own.cpus) put(mine, cpu);
  std::vector<CoreUse> uses;
  for (const Bytes& other : node.all_gather(mine)) {
    CoreUse use{{}, get<double>(other, 0)};
    for (std::size_t place = sizeof(double); place < other.size(); place += sizeof(int)) {
      use.cpus.push_back(get<int>(other, place));
    }
    uses.push_back(std::move(use));
  }
  return share_cores(uses)[static_cast<std::size_t>(node.rank())];
}

}  // namespace

std::string own_host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

Topology find_topology(const Communicator& world, const Communicator& node,
                       const std::string& host) {
  Topology topology;
  topology.world_rank = world.rank();
  topology.world_size = world.size();
  topology.local_rank = node.rank();

  Bytes mine;
  put(mine, lowest_world_rank(node, topology.world_rank));
  for (const char letter : host) put(mine, letter);
  const std::vector<Bytes> all = world.all_gather(mine);
  std::map<int, int> node_of_lowest;
  for (int rank = 0; rank < topology.world_size; ++rank) {
    const Bytes& other = all[static_cast<std::size_t>(rank)];
    // A node's lowest rank comes before its others, so nodes are numbered in that order.
    const auto [found, is_new] =
        node_of_lowest.try_emplace(get<int>(other, 0), topology.num_nodes());
    if (is_new) {
      const auto* letters = reinterpret_cast<const char*>(other.data());
      topology.hosts.emplace_back(letters + sizeof(int), letters + other.size());
      topology.ranks_of_node.emplace_back();
    }
    topology.node_of_rank.push_back(found->second);
    topology.ranks_of_node[static_cast<std::size_t>(found->second)].push_back(rank);
  }

  const CoreShare share = own_share(node);
  topology.cores_of_rank = share.cores;
  topology.threads_of_rank = share.threads;
  topology.share_core = share.share_core;
  return topology;
}

}  // namespace dstune
