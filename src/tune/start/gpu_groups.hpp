#pragma once
/// Groups whose collectives work on GPUs.

#include <optional>
#include <string>
#include <vector>

#include "dstune/group/device_groups.hpp"
#include "dstune/group/nccl_library.hpp"
#include "start/rank_devices.hpp"

namespace dstune {

/// The groups' part of a GPU, which outlives them; nothing where they work on the host's
/// memory. Local.
std::optional<DeviceGroupOptions> device_groups(const FoundDevice& found,
                                                nccl::SharedWith shared_with);

/// How these groups exchange data: "NCCL 2.28.9". Local.
std::string transports_of(const DeviceGroups& devices, const std::vector<std::vector<int>>& groups);

}  // namespace dstune
