#include "dstune/comm/cores.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>

#include "dstune/base/cgroup.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// More processors than any kernel has.
constexpr int max_cpus = 1 << 20;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The lowest hardware thread of its core; itself where the system does not say.
int core_of(int cpu, const std::string& root) {
  const std::vector<int> threads =
      parse_cpu_list(text_of(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                             "/topology/thread_siblings_list"));
  return threads.empty() ? cpu : threads.front();
}

std::vector<int> cores_of(const std::vector<int>& cpus, const std::string& root) {
  std::set<int> cores;
  for (const int cpu : cpus) cores.insert(core_of(cpu, root));
  return {cores.begin(), cores.end()};
}

std::vector<int> cpus_of_cgroup(const std::string& root) {
  // The innermost group that has a list decides.
  for (const std::string& list :
       read_cgroup_files({"cpuset", "cpuset.effective_cpus", "cpuset.cpus.effective"}, root))
    if (std::vector<int> cpus = parse_cpu_list(list); !cpus.empty()) return cpus;
  return {};
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::set<int> cpus;
  for (const std::string_view part : split(trimmed(text), ',')) {
    int first = 0;
    const char* const end_of_part = part.data() + part.size();
    const auto [end, error] = std::from_chars(part.data(), end_of_part, first);
    if (error != std::errc() || first < 0) return {};
    int last = first;
    if (end != end_of_part) {
      const auto [end_of_range, range_error] = std::from_chars(end + 1, end_of_part, last);
      if (*end != '-' || range_error != std::errc() || end_of_range != end_of_part) return {};
    }
    if (last < first || last > max_cpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return {cpus.begin(), cpus.end()};
}

HostCores host_cores(const CoreUse& use, const std::string& root) {
  HostCores found;
  found.own = cores_of(use.cpus, root);
  std::vector<int> online = parse_cpu_list(text_of(root + "/sys/devices/system/cpu/online"));
  if (online.empty()) online = use.cpus;
  const std::vector<int> of_cgroup = cpus_of_cgroup(root);
  found.processors = static_cast<int>(online.size());
  found.of_host = static_cast<int>(cores_of(online, root).size());
  const std::vector<int> of_job = of_cgroup.empty() ? online : of_cgroup;
  found.allowed = std::min(static_cast<double>(cores_of(of_job, root).size()), use.quota_cores);
  return found;
}

}  // namespace dstune
