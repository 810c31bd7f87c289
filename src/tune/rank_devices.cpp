#include "rank_devices.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>

#include <unistd.h>

#include "dstune/device/device.hpp"

namespace dstune {
namespace {

using json::Value;

/// Of a host's memory, what its ranks share unless the document says otherwise (design 3).
constexpr double share_of_host_memory = 0.8;
/// … and with what they offload; the rest is for processes and libraries.
constexpr double share_with_offload = 0.95;

bool is_process(int process_id) {
  return kill(process_id, 0) == 0 || errno != ESRCH;
}

}  // namespace

RankDevice describe(const Topology& topology, Device& device) {
  const auto& neighbours = topology.ranks_of_node[static_cast<std::size_t>(
      topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)])];
  const double host_bytes =
      static_cast<double>(host_memory_bytes()) / static_cast<double>(neighbours.size());
  // Many ranks on a small host: their processes alone may need more than is set apart for them.
  const double left_bytes =
      std::max(0.0, host_bytes - static_cast<double>(process_resident_bytes()));
  return {device.description(), topology.threads_of_rank, getpid(),
          static_cast<std::int64_t>(std::min(share_of_host_memory * host_bytes, left_bytes)),
          static_cast<std::int64_t>(std::min(share_with_offload * host_bytes, left_bytes))};
}

std::vector<RankDevice> gather_devices(const Communicator& world, const RankDevice& mine) {
  const std::string text = Value{
      {"description", mine.description},
      {"threads", mine.threads},
      {"process_id", mine.process_id},
      {"memory_bytes", mine.memory_bytes},
      {"host_bytes",
       mine.host_bytes}}.dump();
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  std::vector<RankDevice> devices;
  for (const Bytes& bytes : world.all_gather({begin, text.size()})) {
    const auto* first = reinterpret_cast<const char*>(bytes.data());
    const Value value = Value::parse(first, first + bytes.size());
    devices.push_back({value.at("description"), value.at("threads"), value.at("process_id"),
                       value.at("memory_bytes"), value.at("host_bytes")});
  }
  return devices;
}

std::function<bool(int)> death_watch(const Topology& topology,
                                     const std::vector<RankDevice>& devices) {
  std::map<int, int> watched;
  const int here = topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)];
  for (const int rank : topology.ranks_of_node[static_cast<std::size_t>(here)]) {
    const int process_id = devices[static_cast<std::size_t>(rank)].process_id;
    if (is_process(process_id)) watched[rank] = process_id;
  }
  return [watched](int rank) {
    const auto found = watched.find(rank);
    return found != watched.end() && !is_process(found->second);
  };
}

}  // namespace dstune
