#pragma once
/// The report of a rank: what it has and measured, as it tells rank 0. Rates are a second's.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/device/gpu_facts.hpp"

namespace dstune {

/// Bus bandwidth in bytes/s, of the slowest rank. It is what each rank's link carries (nccl-tests,
/// doc/PERFORMANCE.md). An all-reduce of so many bytes moves 2(n − 1)/n of them with n ranks, the
/// other two (n − 1)/n.
struct CollectiveRates {
  std::int64_t bytes = 0;
  double all_reduce = 0, all_gather = 0, reduce_scatter = 0;
};

/// The rates of a group that the rank is in.
struct GroupRates {
  int num_ranks = 1, num_nodes = 1;
  std::string transport;  ///< "shared memory", "MPI", "NCCL 2.28.9", …
  std::vector<CollectiveRates> rates{};
};

struct RankReport {
  int rank = 0, node = 0;
  int process = 0;  ///< its number on its host
  std::string host;
  std::string device;   ///< in words
  std::string backend;  ///< "cpu", "cuda"
  int threads = 1;
  bool share_core = false;
  std::string processors;  ///< the numbers of those it may use: "0-3,8"
  std::int64_t host_memory_bytes = 0, available_bytes = 0, shared_memory_bytes = 0;
  double processor_mhz = 0;
  std::map<std::string, std::string> libraries{};  ///< name → version, path or reason
  /// Nothing where GPUs are not looked at, or there is neither one nor a driver.
  std::optional<GpuFacts> gpu{};
  /// Matrix products in fp32 and bf16, floating-point operations; y += x, bytes read and written.
  /// 0: not measured.
  double f32_flops = 0, bf16_flops = 0, memory_bytes = 0;
  /// The share of its processors that it had while it computed. Nothing: not asked.
  std::optional<double> processor_share{};
  /// Processors of its host that were busy, and had been taken by other virtual machines, while it
  /// computed.
  std::optional<double> busy_processors{}, stolen_processors{};
  /// A product, and a collective, recorded as a graph and replayed: "", or why that does not work.
  /// Nothing where nothing is recorded.
  std::optional<std::string> recording{};
  std::vector<GroupRates> groups{};
  std::vector<std::string> failures{};  ///< what does not work
};

/// The list of members (base/archive.hpp).
template <class Archive>
void members(Archive& archive, json::Of<Archive, RankReport>& report);

}  // namespace dstune
