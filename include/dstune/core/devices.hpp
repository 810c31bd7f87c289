#pragma once
/// GPUs, nodes and networks by name, as their makers and others publish them. Each figure's source
/// is in core/devices.json; this program measured none of them. Local.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/archive.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/target_time.hpp"

namespace dstune {

/// Keys of device_sources() by the name of a figure in core/devices.json.
using FigureSources = std::map<std::string, std::string>;

/// A GPU. A figure of 0 is not known, or there is none.
struct DeviceSpec {
  std::string name{};                 ///< as --device takes it: "a100-80gb"
  std::string title{};                ///< "NVIDIA A100 SXM4 80GB"
  std::vector<std::string> others{};  ///< other names that --device takes, its driver's among them
  std::int64_t memory_bytes = 0;      ///< as its driver and PyTorch report it
  double memory_bytes_per_s = 0;      ///< peak
  double memory_share = 0;            ///< of that rate that large copies reach
  /// Dense products of a second by Precision, as PyTorch computes them by default; 0: none.
  std::array<double, num_precisions> peak_flops{};
  double product_share = 0;     ///< of the peak that large products reach
  double training_share = 0;    ///< of that, what the products of a whole training reach
  double launch_s = 0;          ///< of a kernel
  int copy_engines = 0;         ///< transfers to and from the host that run at once
  double host_bytes_per_s = 0;  ///< to the host or back, one way
  std::string node{};           ///< its usual node, by name
  /// Links between devices, one way. 0: devices talk by the host's bus.
  double link_bytes_per_s = 0;
  /// Bus bandwidth of large collectives in a node with these links, as nccl-tests counts it.
  double all_reduce_bytes_per_s = 0;
  double gather_bytes_per_s = 0;  ///< likewise, of all others
  /// The host's work for one operation, in units of that beside an H100: hosts of its time.
  double host_work = 0;
  FigureSources sources{};
  bool operator==(const DeviceSpec&) const = default;
};

/// A way in which a collective is done: so long, and its bytes at a share of the full rate. The
/// faster of two ways counts.
struct CollectiveWay {
  double latency_s = 0;
  double share = 0;
  bool operator==(const CollectiveWay&) const = default;
};

enum class NodeLinks : std::uint8_t {
  device,  ///< the devices' own, whole between any two
  mesh,    ///< the devices' own, one of them between two
  bus,     ///< the host's
};
[[nodiscard]] const EnumTexts& texts_of(NodeLinks);

/// How the GPUs of a node are connected, and its host.
struct NodeSpec {
  std::string name{};   ///< "nvswitch"
  std::string title{};  ///< "eight modules with NVSwitch"
  int num_gpus = 0;     ///< usual
  NodeLinks links = NodeLinks::device;
  double link_share = 0;  ///< of the links' rate in large collectives; on a bus, of the host's
  CollectiveWay small{}, large{};  ///< collectives inside the node
  double host_memory_bytes_per_s = 0;
  double adam_parameters_per_s = 0;  ///< that the host's processors update, with copies
  double disk_bytes_per_s = 0;
  FigureSources sources{};
  bool operator==(const NodeSpec&) const = default;
};

/// The network between nodes.
struct NetworkSpec {
  std::string name{};                 ///< as --network takes it: "ib-hdr"
  std::string title{};                ///< "InfiniBand HDR, 4 x 200 Gb/s a node"
  std::vector<std::string> others{};  ///< other names that --network takes
  double node_bytes_per_s = 0;        ///< of a node, one way
  double share = 0;                   ///< of that rate in large collectives
  CollectiveWay small{}, large{};     ///< latencies are those of two nodes
  FigureSources sources{};
  bool operator==(const NetworkSpec&) const = default;
};

/// The machine that a plan is for where it is not this one, as far as it is known.
struct Cluster {
  std::optional<DeviceSpec> device{};
  std::optional<NodeSpec> node{};
  std::optional<NetworkSpec> network{};
  std::optional<int> gpus_per_node{}, num_nodes{};
  std::optional<std::int64_t> host_memory_bytes{};  ///< of a node
  bool operator==(const Cluster&) const = default;
};

/// Rates at which trainings with PyTorch's and Hugging Face's kernels use the published ones.
struct TrainingRates {
  double attention_share = 0;        ///< of large products' rate, by attention in one kernel
  double eager_attention_share = 0;  ///< likewise, by attention's own products
  double unaligned_share = 0;        ///< likewise, by those with a size that is no multiple of 8
  double overlap_slowdown = 0;       ///< as DeviceProfile's
  /// Parameters of a second that a node's host updates for several ranks without cores of their
  /// own.
  double shared_adam_parameters_per_s = 0;
  double band = 1;  ///< a time may be so many times shorter or longer
  FigureSources sources{};
};
[[nodiscard]] const TrainingRates& training_rates();

/// The lists of members (base/archive.hpp). Figures that are not known are left out.
template <class Archive>
void members(Archive& archive, json::Of<Archive, DeviceSpec>& device);
template <class Archive>
void members(Archive& archive, json::Of<Archive, NodeSpec>& node);
template <class Archive>
void members(Archive& archive, json::Of<Archive, NetworkSpec>& network);
template <class Archive>
void members(Archive& archive, json::Of<Archive, Cluster>& cluster);

/// Returns it with what follows from a device by a known name: figures that it lacks, the usual
/// node and as many GPUs.
[[nodiscard]] Cluster completed(Cluster cluster);
/// Null: no such name. Names in any case of letters, with blanks or underscores for hyphens.
[[nodiscard]] const DeviceSpec* find_device_spec(std::string_view name);
[[nodiscard]] const NodeSpec* find_node_spec(std::string_view name);
[[nodiscard]] const NetworkSpec* find_network_spec(std::string_view name);
/// The names in the order of the file.
[[nodiscard]] std::vector<std::string_view> device_names();
[[nodiscard]] std::vector<std::string_view> node_names();
[[nodiscard]] std::vector<std::string_view> network_names();
/// The texts of sources by their keys.
[[nodiscard]] const std::map<std::string, std::string>& device_sources();

}  // namespace dstune
