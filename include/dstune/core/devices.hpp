#pragma once
/// GPUs, nodes and networks by name, as their makers and others publish them. Each figure's source
/// is in core/devices.json; this program measured none of them. Local.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/target_time.hpp"

namespace dstune {

/// A GPU.
struct DeviceSpec {
  std::string name;                 ///< as --device takes it: "a100-80gb"
  std::string title;                ///< "NVIDIA A100 SXM4 80GB"
  std::vector<std::string> others;  ///< other names that --device takes
  std::int64_t memory_bytes = 0;    ///< as its driver and PyTorch report it
  double memory_bytes_per_s = 0;    ///< peak
  /// Dense products of a second by Precision, as PyTorch computes them by default; 0: none.
  std::array<double, num_precisions> peak_flops{};
  double product_share = 0;     ///< of the peak that large products reach
  double launch_s = 0;          ///< of a kernel
  int copy_engines = 0;         ///< transfers to and from the host that run at once
  double host_bytes_per_s = 0;  ///< to the host or back, one way
  std::string node;             ///< its usual node, by name
};

/// How the GPUs of a node are connected, and its host.
struct NodeSpec {
  std::string name;   ///< "hgx"
  std::string title;  ///< "eight SXM modules with NVSwitch"
  int num_gpus = 0;   ///< usual
};

/// The network between nodes.
struct NetworkSpec {
  std::string name;             ///< as --network takes it: "ib-hdr"
  std::string title;            ///< "InfiniBand HDR, 200 Gb/s"
  double node_bytes_per_s = 0;  ///< of a node, one way
};

/// The machine that a plan is for where it is not this one, as far as it is known.
struct Cluster {
  std::optional<DeviceSpec> device;
  std::optional<NodeSpec> node;
  std::optional<NetworkSpec> network;
  std::optional<int> gpus_per_node, num_nodes;
  std::optional<std::int64_t> host_memory_bytes;  ///< of a node
};

/// Null: no such name. Names in any case of letters.
[[nodiscard]] const DeviceSpec* find_device_spec(std::string_view name);
[[nodiscard]] const NodeSpec* find_node_spec(std::string_view name);
[[nodiscard]] const NetworkSpec* find_network_spec(std::string_view name);
/// The names in the order of the file.
[[nodiscard]] std::vector<std::string_view> device_names();
[[nodiscard]] std::vector<std::string_view> network_names();

}  // namespace dstune
