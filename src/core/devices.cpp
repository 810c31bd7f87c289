#include "dstune/core/devices.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "embedded/devices.hpp"

namespace dstune {

namespace {

constexpr auto node_links = numbered({"device", "mesh", "bus"});

/// A figure that may not be known.
constexpr json::Form figure{.low = 0, .nothing = json::Nothing::omitted, .may_be_missing = true};
constexpr json::Form may_be_missing{.nothing = json::Nothing::omitted, .may_be_missing = true};

/// A name as names are compared.
std::string plain_name(std::string_view name) {
  std::string plain = lower_case(trimmed(name));
  std::ranges::replace_if(
      plain, [](char letter) { return letter == ' ' || letter == '_'; }, '-');
  return plain;
}

}  // namespace

const EnumTexts& texts_of(NodeLinks) {
  static constexpr EnumTexts texts{node_links};
  return texts;
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, CollectiveWay>& way) {
  archive("latency_s", way.latency_s, json::amount);
  archive("share", way.share, json::amount);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, DeviceSpec>& device) {
  archive("name", device.name);
  archive("title", device.title, may_be_missing);
  archive("others", device.others, may_be_missing);
  archive("memory_bytes", device.memory_bytes, figure);
  archive("memory_bytes_per_s", device.memory_bytes_per_s, figure);
  archive("memory_share", device.memory_share, figure);
  std::map<std::string, double> peaks;
  const EnumTexts& precisions = texts_of(Precision{});
  for (const EnumText& one : precisions.all) {
    const double peak = device.peak_flops.at(static_cast<std::size_t>(one.value));
    if (peak > 0) peaks.emplace(one.text, peak);
  }
  archive("peak_flops", peaks, figure);
  if constexpr (Archive::is_reading) {
    for (const EnumText& one : precisions.all) {
      const auto found = peaks.find(std::string(one.text));
      device.peak_flops.at(static_cast<std::size_t>(one.value)) =
          found == peaks.end() ? 0 : found->second;
      if (found != peaks.end()) peaks.erase(found);
    }
    if (!peaks.empty()) archive.refuse("is of fp32, bf16 and fp16", "/peak_flops");
  }
  archive("product_share", device.product_share, figure);
  archive("training_share", device.training_share, figure);
  archive("launch_s", device.launch_s, figure);
  archive("copy_engines", device.copy_engines, figure);
  archive("host_bytes_per_s", device.host_bytes_per_s, figure);
  archive("node", device.node, may_be_missing);
  archive("link_bytes_per_s", device.link_bytes_per_s, figure);
  archive("all_reduce_bytes_per_s", device.all_reduce_bytes_per_s, figure);
  archive("gather_bytes_per_s", device.gather_bytes_per_s, figure);
  archive("host_work", device.host_work, figure);
  archive("sources", device.sources, may_be_missing);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, NodeSpec>& node) {
  archive("name", node.name);
  archive("title", node.title, may_be_missing);
  archive("num_gpus", node.num_gpus, figure);
  archive("links", node.links);
  archive("link_share", node.link_share, json::amount);
  archive("small", node.small);
  archive("large", node.large);
  archive("host_memory_bytes_per_s", node.host_memory_bytes_per_s, figure);
  archive("adam_parameters_per_s", node.adam_parameters_per_s, figure);
  archive("disk_bytes_per_s", node.disk_bytes_per_s, figure);
  archive("sources", node.sources, may_be_missing);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, NetworkSpec>& network) {
  archive("name", network.name);
  archive("title", network.title, may_be_missing);
  archive("others", network.others, may_be_missing);
  archive("node_bytes_per_s", network.node_bytes_per_s, json::amount);
  archive("share", network.share, json::amount);
  archive("small", network.small);
  archive("large", network.large);
  archive("sources", network.sources, may_be_missing);
}

template <class Archive>
void members(Archive& archive, json::Of<Archive, Cluster>& cluster) {
  constexpr json::Form count{.low = 1};
  archive("device", cluster.device);
  archive("node", cluster.node);
  archive("network", cluster.network);
  archive("gpus_per_node", cluster.gpus_per_node, count);
  archive("num_nodes", cluster.num_nodes, count);
  archive("host_memory_bytes", cluster.host_memory_bytes, count);
}

template void members(json::Writer&, const DeviceSpec&);
template void members(json::Reader&, DeviceSpec&);
template void members(json::Writer&, const NodeSpec&);
template void members(json::Reader&, NodeSpec&);
template void members(json::Writer&, const NetworkSpec&);
template void members(json::Reader&, NetworkSpec&);
template void members(json::Writer&, const Cluster&);
template void members(json::Reader&, Cluster&);

template <class Archive>
void members(Archive& archive, json::Of<Archive, TrainingRates>& rates) {
  archive("attention_share", rates.attention_share, json::amount);
  archive("eager_attention_share", rates.eager_attention_share, json::amount);
  archive("unaligned_share", rates.unaligned_share, json::amount);
  archive("overlap_slowdown", rates.overlap_slowdown, json::amount);
  archive("shared_adam_parameters_per_s", rates.shared_adam_parameters_per_s, json::amount);
  archive("band", rates.band, json::amount);
  archive("sources", rates.sources);
}

namespace {

/// The data that comes with the program.
struct DeviceTables {
  std::string note;
  std::map<std::string, std::string> sources;
  std::vector<DeviceSpec> devices;
  std::vector<NodeSpec> nodes;
  std::vector<NetworkSpec> networks;
  TrainingRates training;
};
template <class Archive>
void members(Archive& archive, json::Of<Archive, DeviceTables>& tables) {
  archive("note", tables.note);
  archive("sources", tables.sources);
  archive("devices", tables.devices);
  archive("nodes", tables.nodes);
  archive("networks", tables.networks);
  archive("training", tables.training);
}

DeviceTables embedded_tables() {
  try {
    const auto document = json::Document::parse(embedded::devices, "devices.json");
    return json::read<DeviceTables>(document.node());
  } catch (const InputError& error) {
    // The data is a part of the program.
    throw LogicError(error.what());
  }
}

const DeviceTables& tables() {
  static const DeviceTables all = embedded_tables();
  return all;
}

template <class Spec>
const Spec* find_spec(const std::vector<Spec>& all, std::string_view name) {
  const std::string wanted = plain_name(name);
  const auto is_it = [&](const Spec& spec) {
    const auto is_wanted = [&](const std::string& text) { return plain_name(text) == wanted; };
    if (is_wanted(spec.name) || is_wanted(spec.title)) return true;
    if constexpr (requires { spec.others; }) return std::ranges::any_of(spec.others, is_wanted);
    return false;
  };
  const auto found = std::ranges::find_if(all, is_it);
  return found == all.end() ? nullptr : &*found;
}

template <class Spec>
std::vector<std::string_view> names_of(const std::vector<Spec>& all) {
  std::vector<std::string_view> names;
  for (const Spec& spec : all) names.push_back(spec.name);
  return names;
}

}  // namespace

Cluster completed(Cluster cluster) {
  if (!cluster.device) return cluster;
  DeviceSpec& device = *cluster.device;
  if (const DeviceSpec* const known = find_device_spec(device.name)) {
    const std::int64_t memory_bytes = device.memory_bytes;
    if (device.memory_bytes_per_s == 0) device = *known;
    if (memory_bytes > 0) device.memory_bytes = memory_bytes;
  }
  if (!cluster.node)
    if (const NodeSpec* const usual = find_node_spec(device.node)) cluster.node = *usual;
  if (!cluster.gpus_per_node && cluster.node) cluster.gpus_per_node = cluster.node->num_gpus;
  return cluster;
}

const DeviceSpec* find_device_spec(std::string_view name) {
  return find_spec(tables().devices, name);
}
const NodeSpec* find_node_spec(std::string_view name) {
  return find_spec(tables().nodes, name);
}
const NetworkSpec* find_network_spec(std::string_view name) {
  return find_spec(tables().networks, name);
}
std::vector<std::string_view> device_names() {
  return names_of(tables().devices);
}
std::vector<std::string_view> node_names() {
  return names_of(tables().nodes);
}
std::vector<std::string_view> network_names() {
  return names_of(tables().networks);
}
const TrainingRates& training_rates() {
  return tables().training;
}
const std::map<std::string, std::string>& device_sources() {
  return tables().sources;
}

}  // namespace dstune
