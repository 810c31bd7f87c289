#include "check/rank_facts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dstune/comm/environment.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/device/device.hpp"
#include "dstune/kernels/cuda.hpp"

namespace dstune {
namespace {

/// "0-3,8"
std::string ranges_text(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

/// The host's memory that the system would give (man 5 proc); 0 where it does not say.
std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::int64_t kib = 0;
  while (file >> name >> kib && std::getline(file, unit))
    if (name == "MemAvailable:") return std::min(kib << 10, host_memory_bytes());
  return 0;
}

std::int64_t free_shared_bytes() {
  struct statvfs found {};
  if (::statvfs("/dev/shm", &found) != 0) return 0;
  return static_cast<std::int64_t>(found.f_bavail * found.f_frsize);
}

/// Nothing where there is neither a GPU nor a driver that could have one.
std::optional<GpuFacts> gpu_of(int place_on_node, const std::shared_ptr<GpuDriver>& driver) {
  const auto version = cuda_runtime_version();
  if (!version) return std::nullopt;
  const auto gpu = find_cuda_gpu(place_on_node);
  if (!gpu && !driver) return std::nullopt;
  GpuFacts facts = facts_of_gpu(driver, gpu ? gpu->uuid : "");
  facts.runtime_cuda = version;
  facts.has_mps = has_mps_pipe(std::getenv("CUDA_MPS_PIPE_DIRECTORY"));
  if (gpu) facts.peers = cuda_peers(gpu->number);
  return facts;
}

}  // namespace

RankReport facts_of(const Topology& topology, const JobOptions& options, bool thread_multiple,
                    const std::shared_ptr<GpuDriver>& driver) {
  const auto node = static_cast<std::size_t>(
      topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)]);
  RankReport report{.rank = topology.world_rank,
                    .node = static_cast<int>(node),
                    .process = ::getpid(),
                    .host = topology.hosts[node],
                    .device = "",
                    .backend = "",
                    .threads = topology.threads_of_rank,
                    .share_core = topology.share_core,
                    .processors = ranges_text(own_core_use().cpus),
                    .host_memory_bytes = host_memory_bytes(),
                    .available_bytes = available_bytes(),
                    .shared_memory_bytes = free_shared_bytes(),
                    .processor_mhz = processor_clock_mhz()};
  report.libraries["MPI"] =
      MpiEnvironment::library_version() + (thread_multiple ? "" : ", without MPI_THREAD_MULTIPLE");
  report.libraries["CPU products"] = kernels::matmul_library();
  report.libraries["CPU kernels"] = kernels::cpu_table().name;
  if (options.backend == Backend::cpu) return report;
  const std::vector<int>& neighbours = topology.ranks_of_node[node];
  const auto place = std::ranges::find(neighbours, topology.world_rank) - neighbours.begin();
  report.gpu = gpu_of(static_cast<int>(place), driver);
  return report;
}

void add_device(const Topology& topology, const FoundDevice& found, RankReport& report) {
  const RankDevice device = describe(topology, found);
  report.device = device.description;
  report.backend = to_text(device.backend);
  report.threads = device.threads;
  if (found.gpu.name.empty()) return;
  const kernels::CudaLibraries libraries = kernels::cuda_libraries();
  report.libraries["CUDA toolkit"] = kernels::cuda_toolkit();
  report.libraries["GPU products"] = libraries.matmul;
  report.libraries["GPU attention"] = libraries.attention;
  if (topology.world_rank > 0) return;
  for (const std::string& missing : {found.missing_library, found.missing_nccl})
    if (!missing.empty()) report.failures.push_back(missing);
}

}  // namespace dstune
