#pragma once
/// The GPU of each rank of a test, and groups on them.

#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "dstune/base/error.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/group/device_groups.hpp"

namespace dstune::test {

struct GpuOfRank {
  std::unique_ptr<Device> device;
  CudaGpu gpu;
  std::string violation;  ///< why not every rank has one; on all ranks or on none
};

/// Collective over the world.
inline GpuOfRank find_gpu_of_rank(std::int64_t host_limit_bytes) {
  const Communicator world = Communicator::world();
  const Communicator node = world.split_shared();
  GpuOfRank found;
  try {
    found.device = make_cuda_device(node.rank(), host_limit_bytes, 1, &found.gpu);
  } catch (const DeviceError& error) {
    found.violation = error.what();
  }
  // All of them run, or none.
  for (const Bytes& theirs : world.all_gather(std::as_bytes(std::span(found.violation))))
    if (!theirs.empty() && found.violation.empty()) found.violation = "another rank has no GPU";
  return found;
}

/// For groups on the GPU, which outlives them. A rank alone goes by NCCL, too, where there is one.
inline DeviceGroupOptions groups_on(GpuOfRank& found) {
  constexpr std::size_t staging_bytes = std::size_t{1} << 20;
  Arena& staging = found.device->staging_arena();
  staging.prepare(staging_bytes);
  nccl::set_variables(nccl::SharedWith::nobody);
  return {.queues = &found.device->queues(),
          .staging = {staging.base(), staging_bytes},
          .device_id = found.gpu.uuid,
          .nccl = nccl::find_library(),
          .free_bytes = free_cuda_bytes,
          .begin_thread = [device = found.device.get()] { device->begin_thread(); },
          .nccl_alone = true};
}

}  // namespace dstune::test
