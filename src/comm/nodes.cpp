#include "dstune/comm/nodes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dstune/base/cgroup.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "mpi_state.hpp"

namespace dstune {
namespace {

/// Gathers every rank's values, in rank order. Collective over the communicator.
template <class T>
std::vector<std::vector<T>> gather(const Communicator& ranks, const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const Bytes& bytes : ranks.all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<T>& values = all.emplace_back(bytes.size() / sizeof(T));
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(values)).begin());
  }
  return all;
}

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

CoreShare own_share(const Communicator& node) {
  const CoreUse own = own_core_use();
  const std::vector<std::vector<int>> cpus = gather(node, own.cpus);
  const std::vector<std::vector<double>> quotas = gather(node, std::vector{own.quota_cores});
  std::vector<CoreUse> uses;
  for (std::size_t rank = 0; rank < cpus.size(); ++rank)
    uses.push_back({cpus[rank], quotas[rank].front()});
  return share_cores(uses)[static_cast<std::size_t>(node.rank())];
}

std::string own_host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

CoreUse own_core_use() {
  return {own_cpus(), quota_cores()};
}

Topology find_topology(const Communicator& world, const Communicator& node, std::string host) {
  if (host.empty()) host = own_host_name();
  Topology topology;
  topology.world_rank = world.rank();
  topology.world_size = world.size();
  topology.local_rank = node.rank();

  const int lowest = std::ranges::min(gather(node, std::vector{topology.world_rank})).front();
  const std::vector<std::vector<int>> lowest_ranks = gather(world, std::vector{lowest});
  const std::vector<std::vector<char>> hosts =
      gather(world, std::vector<char>(host.begin(), host.end()));
  std::map<int, int> node_of_lowest;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    // A node's lowest rank comes before its others, so nodes are numbered in that order.
    const auto [found, is_new] =
        node_of_lowest.try_emplace(lowest_ranks[rank].front(), topology.num_nodes());
    if (is_new) {
      topology.hosts.emplace_back(hosts[rank].begin(), hosts[rank].end());
      topology.ranks_of_node.emplace_back();
    }
    topology.node_of_rank.push_back(found->second);
    topology.ranks_of_node[static_cast<std::size_t>(found->second)].push_back(
        static_cast<int>(rank));
  }

  const CoreShare share = own_share(node);
  topology.threads_of_rank = share.threads;
  topology.share_core = share.share_core;
  return topology;
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
    // Thirds and their like do not add up to whole numbers exactly.
    constexpr double rounding = 1e-6;
    shares.push_back(
        {std::max(1, static_cast<int>(std::floor(mine + rounding))), mine < 1.0 - rounding});
  }
  return shares;
}

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr const char* shared_memory_folder = "/dev/shm";

MpiLibrary::Window allocate(MpiLibrary::Comm node, std::size_t bytes) {
  MpiLibrary::Window window{};
  if (mpi().allocate(node, bytes, window).has_failed())
    throw IoError(fmt::format(
        "the ranks of a host can not share {} each (MPI_Win_allocate_shared): make room in {} or "
        "in the folder for temporary files, or raise the file size limit (ulimit -f)",
        format_bytes(static_cast<std::int64_t>(bytes)), shared_memory_folder));
  return window;
}

// Mappings start at pages in every process, so all round a segment's start alike.
std::byte* page_start(void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<std::byte*>((number + page_bytes - 1) / page_bytes * page_bytes);
}

}  // namespace

struct SharedWindow::State {
  MpiLibrary::Window window{};
  bool abandoned = false;
  std::vector<std::span<std::byte>> segments;
};

SharedWindow::SharedWindow(const Communicator& node, std::size_t bytes_per_rank)
    : state_(std::make_unique<State>()) {
  state_->window = allocate(node.state_->comm, bytes_per_rank + page_bytes);
  for (int rank = 0; rank < node.size(); ++rank) {
    void* base = nullptr;
    check_mpi(mpi().segment(state_->window, rank, base));
    state_->segments.emplace_back(page_start(base), bytes_per_rank);
  }
  const std::span<std::byte> own = segment(node.rank());
  std::memset(own.data(), 0, own.size());
  node.barrier();
}

SharedWindow::~SharedWindow() {
  if (!state_->abandoned && mpi_is_running()) mpi().free(state_->window);
}

std::span<std::byte> SharedWindow::segment(int local_rank) const {
  return state_->segments.at(static_cast<std::size_t>(local_rank));
}

void SharedWindow::abandon() noexcept {
  state_->abandoned = true;
  anything_abandoned = true;
}

std::size_t SharedWindow::affordable_bytes(std::size_t wanted, int ranks_on_node) {
  struct statvfs info {};
  // Without the folder the library keeps its segments elsewhere.
  if (statvfs(shared_memory_folder, &info) != 0) return wanted;
  const std::size_t free_bytes = static_cast<std::size_t>(info.f_bavail) * info.f_frsize;
  const std::size_t share = free_bytes / 2 / static_cast<std::size_t>(std::max(ranks_on_node, 1));
  return std::min(wanted, share / page_bytes * page_bytes);
}

}  // namespace dstune
