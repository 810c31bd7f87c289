#pragma once
/// A rank's facts, before it measures anything.

#include <memory>

#include "check/rank_report.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/device/gpu_state.hpp"
#include "start/rank_devices.hpp"

namespace dstune {

/// The host, and the GPU that the rank would take where GPUs are looked at. It makes no context
/// there: whoever computes on a GPU before any rank has one is not of this job. Local.
RankReport facts_of(const Topology& topology, const JobOptions& options, bool thread_multiple,
                    const std::shared_ptr<GpuDriver>& driver);
/// The device and its libraries. Local.
void add_device(const Topology& topology, const FoundDevice& found, RankReport& report);

}  // namespace dstune
