#pragma once
/// What each rank computes on, and whether it is still there.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/tune/job.hpp"
#include "start/environment_info.hpp"

namespace dstune {

/// A rank's device, and the GPU that it is; no words where it is none.
struct FoundDevice {
  std::unique_ptr<Device> device;
  CudaGpu gpu;
};
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

/// The caller's. Local.
RankDevice describe(const Topology& topology, const FoundDevice& found);

/// Every rank's device, on every rank; those that share a GPU share its memory, and say so.
/// Collective over the world.
std::vector<RankDevice> gather_devices(const Communicator& world, const RankDevice& mine);
/// What of it is not talk. Local.
void share_gpus(std::vector<RankDevice>& devices);

/// The GPUs of the ranks of the caller's node, as often as ranks have them. Local.
std::vector<std::string> gpus_of_node(const Topology& topology,
                                      const std::vector<RankDevice>& devices);

/// Tells which ranks are known to be gone: those of this node whose process was to be seen at the
/// start (containers may hide them) and is not any more. Others are given their patience. Local.
std::function<bool(int world_rank)> death_watch(const Topology& topology,
                                                const std::vector<RankDevice>& devices);

}  // namespace dstune
