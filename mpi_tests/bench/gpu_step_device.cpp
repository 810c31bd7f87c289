#include "gpu_step_device.hpp"

#include <numeric>
#include <vector>

namespace dstune {
namespace {

std::vector<int> everyone(const Communicator& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

BenchDevice::BenchDevice(const Arguments& arguments) {
  const int threads = std::stoi(arguments.at("threads"));
  const bool on_gpu = arguments.at("backend") == "cuda";
  GroupTable::Options options;
  if (on_gpu) {
    constexpr std::int64_t staging_bytes = std::int64_t{16} << 20;
    device = make_cuda_device(node.rank(), host_memory_bytes(), threads, &gpu);
    device->staging_arena().prepare(staging_bytes);
    nccl::set_variables(nccl::SharedWith::nobody);
    options.device = DeviceGroupOptions{
        .queues = &device->queues(),
        .staging = {device->staging_arena().base(), static_cast<std::size_t>(staging_bytes)},
        .device_id = gpu.uuid,
        .nccl = nccl::find_library(),
        .free_bytes = free_cuda_bytes,
        .begin_thread = [own = device.get()] { own->begin_thread(); }};
  } else {
    device = std::make_unique<CpuDevice>(host_memory_bytes(), threads);
  }
  const std::vector<int> ranks = everyone(world);
  table = std::make_unique<GroupTable>(world, node, topology, std::vector<std::vector<int>>{ranks},
                                       options);
  group =
      table->join(ranks, 1, Waiter(Waiter::Clock::time_point::max(), nullptr, topology.share_core));
}

std::string BenchDevice::way_of_collectives() const {
  const DeviceGroups* const devices = table->devices();
  return devices == nullptr ? "" : devices->transport_of(everyone(world)).text;
}

std::int64_t BenchDevice::taken_bytes() const {
  return gpu.free_bytes - free_cuda_bytes();
}

}  // namespace dstune
