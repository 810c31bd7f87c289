#include "start/gpu_groups.hpp"

#include <cstdint>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dstune {
namespace {

/// Pinned memory for collectives that are staged through the host.
constexpr std::int64_t job_staging_bytes = std::int64_t{16} << 20;

}  // namespace

std::optional<DeviceGroupOptions> device_groups(const FoundDevice& found,
                                                nccl::SharedWith shared_with) {
  if (found.gpu.name.empty()) return std::nullopt;
  nccl::set_variables(shared_with);
  Device& device = *found.device;
  device.staging_arena().prepare(job_staging_bytes);
  return DeviceGroupOptions{
      .queues = &device.queues(),
      .staging = {device.staging_arena().base(), static_cast<std::size_t>(job_staging_bytes)},
      .device_id = found.gpu.uuid,
      .nccl = found.nccl,
      .free_bytes = free_cuda_bytes,
      .begin_thread = [&device] { device.begin_thread(); }};
}

std::string transports_of(const DeviceGroups& devices,
                          const std::vector<std::vector<int>>& groups) {
  std::set<std::string> ways;
  for (const std::vector<int>& world_ranks : groups) {
    const DeviceGroups::Transport way = devices.transport_of(world_ranks);
    ways.insert(way.is_staged ? way.text + ", so times say nothing of GPUs of their own"
                              : way.text);
  }
  return fmt::format("{}", fmt::join(ways, "; "));
}

}  // namespace dstune
