#include <algorithm>

#include "dstune/comm/cores.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/host_load.hpp"
#include "dstune/kernels/cuda.hpp"
#include "start/launch_facts.hpp"
#include "start/rank_devices.hpp"

namespace dstune {
namespace {

void add_gpus(RankPlace& place) {
  place.looks_at_gpus = true;
  place.named_gpus = named_gpus(own_variable("CUDA_VISIBLE_DEVICES"));
  place.given_gpus = given_gpus(own_variable);
  for (int number = 0; number < kernels::num_cuda_devices(); ++number) {
    const auto gpu = find_cuda_gpu(number);
    if (!gpu) continue;
    place.gpus.push_back(gpu->uuid);
    place.sees_part = place.sees_part || gpu->name.find(" MIG ") != std::string::npos;
  }
}

}  // namespace

RankPlace place_of(const FoundNode& here, const FoundDevice& found, const JobOptions& options,
                   const IdleRanks& idle) {
  const Topology& topology = here.topology;
  const auto rank = static_cast<std::size_t>(topology.world_rank);
  const auto node = static_cast<std::size_t>(topology.node_of_rank[rank]);
  const HostCores cores = host_cores(own_core_use());
  const auto neighbours = static_cast<int>(topology.ranks_of_node[node].size());
  RankPlace place{.node = static_cast<int>(node),
                  .machine = here.is_pretended ? 0 : static_cast<int>(node),
                  .host = topology.hosts[node],
                  .cores = cores.own,
                  .host_cores = cores.of_host,
                  .host_processors = cores.processors,
                  .job_cores = cores.allowed,
                  .host_memory_bytes = host_memory_bytes(),
                  .load_beside = load_beside(neighbours).value_or(0),
                  .gpu = found.gpu.uuid};
  place.is_left_out = std::ranges::find(idle.left_out, topology.world_rank) != idle.left_out.end();
  // A rank that computes on nothing stands for no kind.
  if (!idle.contain(topology.world_rank))
    place.kind = found.gpu.name.empty() ? processor_name() : found.gpu.name;
  // The GPU of one that is left out may be the reason for that.
  if (options.backend != Backend::cpu && !place.is_left_out) add_gpus(place);
  return place;
}

std::vector<PlacementFinding> find_placement(const std::vector<RankDevice>& devices) {
  std::vector<RankPlace> places;
  for (const RankDevice& device : devices) places.push_back(device.place);
  LaunchFacts facts = find_launch_facts(own_variable);
  const bool has_none = std::ranges::all_of(
      places, [](const RankPlace& place) { return place.looks_at_gpus && place.gpus.empty(); });
  if (has_none) facts.gpu_refusal = cuda_unavailable_reason();
  return placement_findings(places, facts);
}

}  // namespace dstune
