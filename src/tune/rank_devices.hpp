#pragma once
/// What each rank computes on, and whether it is still there.

#include <functional>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/device/device.hpp"
#include "dstune/tune/environment_info.hpp"

namespace dstune {

/// The caller's. Local.
RankDevice describe(const Topology& topology, Device& device);

/// Every rank's device, on every rank. Collective over the world.
std::vector<RankDevice> gather_devices(const Communicator& world, const RankDevice& mine);

/// Tells which ranks are known to be gone: those of this node whose process was to be seen at the
/// start (containers may hide them) and is not any more. Others are given their patience. Local.
std::function<bool(int world_rank)> death_watch(const Topology& topology,
                                                const std::vector<RankDevice>& devices);

}  // namespace dstune
