#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <sstream>

#include <sched.h>

#include "dstune/base/cgroup.hpp"
#include "dstune/comm/topology.hpp"

namespace dstune {
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
