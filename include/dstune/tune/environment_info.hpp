#pragma once
/// Where a job ran, for environment.json and for the fingerprint of its records. Local.

#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/comm/topology.hpp"

namespace dstune {

/// One rank's device, in words, as it told rank 0.
struct RankDevice {
  std::string description;
  int threads = 1;
  int process_id = 0;
  std::int64_t memory_bytes = 0;   ///< what it may use unless the document says otherwise
  std::int64_t host_bytes = 0;     ///< its part of the host: device and offloaded states together
  std::string backend = "cpu";     ///< or "cuda"
  std::string gpu{};               ///< its UUID: ranks with the same one share it
  std::int64_t context_bytes = 0;  ///< of its memory, that CUDA's context took; 0: not known
  std::int64_t library_bytes = 0;  ///< … and libraries at their first use
  std::int64_t free_bytes = 0;     ///< … and were free then
};

/// The list of members (base/archive.hpp): a rank tells every other.
template <class Archive>
void members(Archive& archive, json::Of<Archive, RankDevice>& device);

/// What must be equal for an old measurement to count: backend, device kinds, devices a node.
/// `ranks_of_node`: the world ranks of each node that may be used.
json::Value machine_fingerprint(const std::vector<std::vector<int>>& ranks_of_node,
                                const std::vector<RankDevice>& devices);

/// Versions, hosts, rank → host → device, clocks, chosen environment variables.
json::Value environment_info(const Topology& topology, const std::vector<RankDevice>& devices,
                             const std::string& version, const std::string& command_line);

}  // namespace dstune
