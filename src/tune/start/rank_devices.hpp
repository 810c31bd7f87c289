#pragma once
/// The device that each rank computes on, and what environment.json and the fingerprint of records
/// tell of it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/group/nccl_library.hpp"
#include "dstune/tune/job.hpp"
#include "start/placement.hpp"

namespace dstune {

/// Returns the topology with the caller's threads as `omp_num_threads`, the variable's text or
/// null, has them. Its first number counts, as OpenMP reads it, whatever the binding. If it is
/// none, what the binding and the cgroup leave stays. Threads share cores if there are more of them
/// than cores. Local.
Topology with_asked_threads(Topology topology, const char* omp_num_threads);

/// The caller's node, and all nodes with the threads that OMP_NUM_THREADS asks for.
struct FoundNode {
  Communicator node;
  Topology topology;
  bool is_pretended = false;  ///< a part of a host that stands for one (DSTUNE_PRETEND_HOSTS)
};
/// Collective over the world.
FoundNode find_node(const Communicator& world);

/// One rank's device, in words, as it told rank 0.
struct RankDevice {
  std::string description;
  int threads = 1;
  std::int64_t memory_bytes = 0;  ///< what it may use unless the document says otherwise
  std::int64_t host_bytes = 0;    ///< its part of the host: device and offloaded states together
  BackendKind backend = BackendKind::cpu;
  std::string gpu{};               ///< its UUID: ranks with the same one share it
  std::int64_t context_bytes = 0;  ///< of its memory, that CUDA's context took; 0: not known
  std::int64_t library_bytes = 0;  ///< … and libraries at their first use
  std::int64_t free_bytes = 0;     ///< … and were free then
  RankPlace place{};

  [[nodiscard]] bool is_gpu() const { return backend != BackendKind::cpu; }
};

/// The list of members (base/archive.hpp): a rank tells every other.
template <class Archive>
void members(Archive& archive, json::Of<Archive, RankDevice>& device);

/// A rank's device, and the GPU that it is; no words where it is none.
struct FoundDevice {
  std::unique_ptr<Device> device;
  CudaGpu gpu;
  nccl::FoundLibrary nccl{};  ///< of a job on GPUs
  /// The first library missing on any rank of those that our own step needs there, with a hint; the
  /// same on every rank. Empty: none.
  std::string missing_library{};
  std::string missing_nccl{};  ///< likewise; collectives go through the host in its place
};
/// For a job of our own step. Throws DeviceError where a library is missing; of NCCL only where
/// `backend` asks for GPUs. Local.
void require_libraries(const FoundDevice& found, Backend backend);

/// Who takes no GPU.
struct IdleRanks {
  bool has_coordinator = false;  ///< rank 0, which takes none from the others of its node
  std::vector<int> left_out{};   ///< by hostfile and filter, which name GPUs by ranks' places

  [[nodiscard]] bool contain(int world_rank) const;
};

/// This rank's, of the backend or of the one that all ranks can have. A rank that trains nothing
/// makes no context on a GPU, and needs none. Collective over the world.
/// Throws DeviceError, on every rank, with the reason of the first that has none.
FoundDevice find_device(const Communicator& world, const Topology& topology,
                        const JobOptions& options, const IdleRanks& idle);

/// Rank 0's likewise, for a plan: the other ranks are taken to have such a one each. Local.
/// Throws DeviceError.
FoundDevice find_device_of_plan(const Topology& topology, const JobOptions& options);

/// The caller's. Local.
RankDevice describe(const Topology& topology, const FoundDevice& found);

/// The caller's place, for placement_findings(). Local.
RankPlace place_of(const FoundNode& here, const FoundDevice& found, const JobOptions& options,
                   const IdleRanks& idle);
/// placement_findings() of the job, by the caller's environment. Local.
std::vector<PlacementFinding> find_placement(const std::vector<RankDevice>& devices);

/// Every rank's device, on every rank; those that share a GPU share its memory, and say so.
/// Collective over the world.
std::vector<RankDevice> gather_devices(const Communicator& world, const RankDevice& mine);
/// Which rank is where, and on what: messages for --verbose. Local.
void log_ranks(const Topology& topology, const std::vector<RankDevice>& devices);
/// Divides the memory of GPUs among the ranks that share them: the part of gather_devices() without
/// messages. Local.
void share_gpus(std::vector<RankDevice>& devices);

/// The GPUs of the ranks of the caller's node, as often as ranks have them. Local.
std::vector<std::string> gpus_of_node(const Topology& topology,
                                      const std::vector<RankDevice>& devices);

/// Returns what must be equal for an old measurement to count: backend, device kinds, devices a
/// node. `ranks_of_node`: the world ranks of each node that may be used.
json::Value machine_fingerprint(const std::vector<std::vector<int>>& ranks_of_node,
                                const std::vector<RankDevice>& devices);

/// Tells whether environment.json, which people share, may show a variable's value: it is on a
/// list.
[[nodiscard]] bool is_shown_variable(std::string_view name);

/// Versions, hosts, rank → host → device, clocks, chosen environment variables.
json::Value environment_info(const Topology& topology, const std::vector<RankDevice>& devices,
                             const std::string& version, const std::string& command_line);

}  // namespace dstune
