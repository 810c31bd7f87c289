#include "dstune/comm/topology.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <type_traits>

#include <sched.h>
#include <unistd.h>

#include "dstune/base/cgroup.hpp"

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

namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

std::vector<int> own_cpus() {
  // The kernel refuses a set smaller than its own, whose size nobody tells.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(cpus));
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) != 0) continue;
    std::vector<int> list;
    for (int cpu = 0; cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) list.push_back(cpu);
    }
    return list;
  }
  return {0};
}

// "quota period" in µs; no quota is "max" or -1.
double cores_of(const std::string& quota_and_period) {
  double quota = 0;
  double period = 0;
  std::istringstream words(quota_and_period);
  const bool limited = words >> quota >> period && quota > 0 && period > 0;
  return limited ? quota / period : std::numeric_limits<double>::infinity();
}

double quota_cores() {
  double cores = std::numeric_limits<double>::infinity();
  for (const std::string& both : read_cgroup_files({"cpu", "", "cpu.max"})) {
    cores = std::min(cores, cores_of(both));
  }
  const auto quotas = read_cgroup_files({"cpu", "cpu.cfs_quota_us", ""});
  const auto periods = read_cgroup_files({"cpu", "cpu.cfs_period_us", ""});
  for (std::size_t i = 0; i < std::min(quotas.size(), periods.size()); ++i) {
    cores = std::min(cores, cores_of(quotas[i] + " " + periods[i]));
  }
  return cores;
}

}  // namespace

CoreUse own_core_use() {
  return {own_cpus(), quota_cores()};
}

std::vector<CoreShare> share_cores(const std::vector<CoreUse>& uses) {
  std::map<int, int> users;
  for (const CoreUse& use : uses) {
    for (const int cpu : use.cpus) ++users[cpu];
  }
  std::vector<CoreShare> shares;
  for (const CoreUse& use : uses) {
    double mine = 0;
    for (const int cpu : use.cpus) mine += 1.0 / users[cpu];
    mine = std::min(mine, use.quota_cores / static_cast<double>(uses.size()));
    const double cores = std::min(static_cast<double>(use.cpus.size()), use.quota_cores);
    // Thirds and their like do not add up to whole numbers exactly.
    constexpr double rounding = 1e-6;
    shares.push_back({std::max(1, static_cast<int>(std::floor(cores + rounding))),
                      std::max(1, static_cast<int>(std::floor(mine + rounding))),
                      mine < 1.0 - rounding});
  }
  return shares;
}

}  // namespace dstune
