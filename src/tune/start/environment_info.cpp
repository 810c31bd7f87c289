#include "start/environment_info.hpp"

#include <array>
#include <chrono>
#include <set>
#include <string_view>

#include "dstune/base/units.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/device/device.hpp"

extern char** environ;

namespace dstune {
namespace {

using json::Value;

/// Prefixes of the variables that may go into a file that people share: nothing that holds secrets
/// (of OMPI_MCA_orte_ some do).
constexpr std::array<std::string_view, 20> allowed_prefixes{
    "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_hwloc", "OMPI_MCA_mpi_", "OMPI_MCA_mtl",
    "OMPI_MCA_osc", "OMPI_MCA_pml",  "OMPI_MCA_rmaps", "OMP_",          "NCCL_",
    "UCX_",         "FI_",           "CUDA_VISIBLE",   "SLURM_JOB_ID",  "SLURM_JOB_N",
    "SLURM_NTASKS", "SLURM_CPUS",    "PBS_JOBID",      "PBS_NODEFILE",  "DSTUNE_"};

Value allowed_variables() {
  Value variables = Value::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    for (const std::string_view prefix : allowed_prefixes) {
      if (text.starts_with(prefix)) {
        variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
        break;
      }
    }
  }
  return variables;
}

}  // namespace

Value machine_fingerprint(const std::vector<std::vector<int>>& ranks_of_node,
                          const std::vector<RankDevice>& devices) {
  std::set<int> all;
  Value devices_a_node = Value::array();
  for (const auto& ranks : ranks_of_node) {
    all.insert(ranks.begin(), ranks.end());
    devices_a_node.push_back(ranks.size());
  }
  Value kinds = Value::array();
  for (const int rank : all) {
    const std::string& kind = devices[static_cast<std::size_t>(rank)].description;
    if (kinds.empty() || kinds.back() != kind) kinds.push_back(kind);
  }
  const std::string& backend = devices[static_cast<std::size_t>(*all.begin())].backend;
  return {{"backend", backend}, {"devices", kinds}, {"devices_a_node", devices_a_node}};
}

Value environment_info(const Topology& topology, const std::vector<RankDevice>& devices,
                       const std::string& version, const std::string& command_line) {
  Value ranks = Value::array();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const int node = topology.node_of_rank[rank];
    ranks.push_back({{"rank", rank},
                     {"node", node},
                     {"host", topology.hosts[static_cast<std::size_t>(node)]},
                     {"backend", devices[rank].backend},
                     {"device", devices[rank].description},
                     {"gpu", devices[rank].gpu},
                     {"threads", devices[rank].threads},
                     {"memory_bytes", devices[rank].memory_bytes}});
    if (devices[rank].context_bytes > 0)
      ranks.back()["context_bytes"] = devices[rank].context_bytes;
    if (devices[rank].library_bytes > 0)
      ranks.back()["library_bytes"] = devices[rank].library_bytes;
  }
  return {{"version", version},
          {"command", command_line},
          {"started_at", format_time(std::chrono::system_clock::now())},
          {"mpi", MpiEnvironment::library_version()},
          {"compiler", __VERSION__},
          {"hosts", topology.hosts},
          {"ranks", ranks},
          {"clocks", {{"processor_mhz", processor_clock_mhz()}}},
          {"variables", allowed_variables()}};
}

}  // namespace dstune
