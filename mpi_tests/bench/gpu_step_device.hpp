#pragma once
/// A rank's device with the groups on it, for gpu_step_bench.

#include <cstdint>
#include <memory>
#include <string>

#include "dstune/comm/environment.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/group/group_table.hpp"
#include "gpu_step_arguments.hpp"

namespace dstune {

struct BenchDevice {
  Communicator world = Communicator::world();
  Communicator node = world.split_shared();
  Topology topology = find_topology(world, node);
  CudaGpu gpu;
  std::unique_ptr<Device> device;
  std::unique_ptr<GroupTable> table;
  std::unique_ptr<ProcessGroup> group;  ///< of all ranks

  /// Collective over the world.
  explicit BenchDevice(const Arguments& arguments);

  /// How the group's collectives go; empty on a processor. Local.
  [[nodiscard]] std::string way_of_collectives() const;
  /// What of the GPU's memory went since this was made. Local.
  [[nodiscard]] std::int64_t taken_bytes() const;
};

}  // namespace dstune
