#include "dstune/core/devices.hpp"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "dstune/base/json.hpp"

namespace dstune {
namespace {

/// The sources of these figures are in the table, and of no others.
void expect_sources(const std::string& name, const FigureSources& named,
                    const std::set<std::string>& figures) {
  for (const std::string& figure : figures)
    EXPECT_TRUE(named.contains(figure)) << name << ": nobody is named for " << figure;
  for (const auto& [figure, source] : named) {
    EXPECT_TRUE(figures.contains(figure)) << name << ": " << figure << " is not there";
    EXPECT_TRUE(device_sources().contains(source)) << name << ": " << source;
  }
}

void expect_way(const std::string& name, const CollectiveWay& way) {
  EXPECT_GT(way.latency_s, 1e-6) << name;
  EXPECT_LT(way.latency_s, 1e-2) << name;
  EXPECT_GT(way.share, 0) << name;
  EXPECT_LE(way.share, 1) << name;
}

TEST(Devices, EachHasEveryFigureAndItsSource) {
  for (const std::string_view name : device_names()) {
    SCOPED_TRACE(name);
    const DeviceSpec& device = *find_device_spec(name);
    EXPECT_GT(device.memory_bytes, std::int64_t{1} << 33);
    EXPECT_GT(device.memory_bytes_per_s, 1e11);
    EXPECT_LT(device.memory_bytes_per_s, 1e13);
    EXPECT_GT(device.memory_share, 0.5);
    EXPECT_LE(device.memory_share, 1);
    // Every device has fp32 and fp16; those before Ampere have no bf16.
    EXPECT_GT(device.peak_flops[0], 1e12);
    EXPECT_GT(device.peak_flops[2], device.peak_flops[0]);
    EXPECT_TRUE(device.peak_flops[1] == 0 || device.peak_flops[1] == device.peak_flops[2]);
    EXPECT_GE(device.product_share, 0.4);
    EXPECT_LE(device.product_share, 1);
    EXPECT_GE(device.training_share, 0.5);
    EXPECT_LE(device.training_share, 1);
    EXPECT_GT(device.launch_s, 0);
    EXPECT_LT(device.launch_s, 1e-4);
    EXPECT_GE(device.copy_engines, 1);
    EXPECT_GT(device.host_bytes_per_s, 1e9);
    const NodeSpec* const node = find_node_spec(device.node);
    ASSERT_NE(node, nullptr) << device.node;
    std::set<std::string> figures = {
        "memory_bytes", "memory_bytes_per_s", "memory_share",     "peak_flops", "product_share",
        "launch_s",     "copy_engines",       "host_bytes_per_s", "host_work",  "training_share"};
    EXPECT_GE(device.host_work, 0.5);
    EXPECT_LE(device.host_work, 2);
    if (node->links != NodeLinks::bus) {
      EXPECT_GT(device.gather_bytes_per_s, 1e9);
      EXPECT_LE(device.gather_bytes_per_s, device.link_bytes_per_s);
      EXPECT_GE(device.all_reduce_bytes_per_s, device.gather_bytes_per_s);
      // What a switch adds up counts as more than the links carry.
      EXPECT_LT(device.all_reduce_bytes_per_s, 1.1 * device.link_bytes_per_s);
      figures.insert({"link_bytes_per_s", "all_reduce_bytes_per_s", "gather_bytes_per_s"});
    } else {
      EXPECT_EQ(device.link_bytes_per_s, 0);
    }
    expect_sources(device.name, device.sources, figures);
  }
}

TEST(Devices, NodesAndNetworksHaveEveryFigureAndItsSource) {
  for (const std::string_view name : node_names()) {
    SCOPED_TRACE(name);
    const NodeSpec& node = *find_node_spec(name);
    EXPECT_GE(node.num_gpus, 1);
    EXPECT_GT(node.link_share, 0);
    EXPECT_LE(node.link_share, 1);
    expect_way(node.name, node.small);
    expect_way(node.name, node.large);
    EXPECT_GT(node.host_memory_bytes_per_s, 1e10);
    EXPECT_GT(node.adam_parameters_per_s, 1e8);
    EXPECT_GT(node.disk_bytes_per_s, 1e8);
    expect_sources(node.name, node.sources,
                   {"link_share", "small", "large", "host_memory_bytes_per_s",
                    "adam_parameters_per_s", "disk_bytes_per_s"});
  }
  for (const std::string_view name : network_names()) {
    SCOPED_TRACE(name);
    const NetworkSpec& network = *find_network_spec(name);
    EXPECT_GT(network.node_bytes_per_s, 1e9);
    EXPECT_GT(network.share, 0);
    EXPECT_LE(network.share, 1);
    expect_way(network.name, network.small);
    expect_way(network.name, network.large);
    expect_sources(network.name, network.sources, {"node_bytes_per_s", "share", "small", "large"});
  }
}

TEST(Devices, TrainingsUseLessThanWhatIsPublished) {
  const TrainingRates& rates = training_rates();
  for (const double share :
       {rates.attention_share, rates.eager_attention_share, rates.unaligned_share}) {
    EXPECT_GT(share, 0);
    EXPECT_LE(share, 1);
  }
  EXPECT_GE(rates.overlap_slowdown, 0);
  EXPECT_GT(rates.shared_adam_parameters_per_s, 0);
  // The band is at most a factor of two wide.
  EXPECT_GT(rates.band, 1);
  EXPECT_LE(rates.band * rates.band, 2);
  expect_sources("training", rates.sources,
                 {"attention_share", "eager_attention_share", "unaligned_share", "overlap_slowdown",
                  "shared_adam_parameters_per_s", "band"});
}

TEST(Devices, AClusterIsCompletedByItsDevice) {
  const Cluster a100 = completed(
      {.device = DeviceSpec{.name = "NVIDIA A100-SXM4-80GB", .memory_bytes = 85'000'000'000}});
  EXPECT_EQ(a100.device->name, "a100-80gb");
  EXPECT_EQ(a100.device->memory_bytes, 85'000'000'000);
  EXPECT_EQ(a100.device->memory_bytes_per_s, find_device_spec("a100-80gb")->memory_bytes_per_s);
  EXPECT_EQ(a100.node->name, "nvswitch");
  EXPECT_EQ(a100.gpus_per_node, 8);
  EXPECT_FALSE(a100.network);
  const Cluster unknown = completed({.device = DeviceSpec{.name = "X"}, .gpus_per_node = 3});
  EXPECT_FALSE(unknown.node);
  EXPECT_EQ(unknown.gpus_per_node, 3);
  EXPECT_EQ(completed({}), Cluster{});
}

TEST(Devices, NamesAreUnique) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    EXPECT_TRUE(names.insert(lower_case(name)).second) << name;
  };
  for (const std::string_view name : device_names()) {
    const DeviceSpec& device = *find_device_spec(name);
    EXPECT_EQ(device.name, name);
    add(device.name);
    for (const std::string& other : device.others) {
      add(other);
      EXPECT_EQ(find_device_spec(other), &device) << other;
    }
  }
  for (const std::string_view name : network_names()) {
    const NetworkSpec& network = *find_network_spec(name);
    add(network.name);
    for (const std::string& other : network.others) {
      add(other);
      EXPECT_EQ(find_network_spec(other), &network) << other;
    }
  }
}

TEST(Devices, AreFoundByTheNamesThatPeopleAndDriversWrite) {
  EXPECT_EQ(find_device_spec("A100-80GB")->name, "a100-80gb");
  EXPECT_EQ(find_device_spec(" a100 80gb ")->name, "a100-80gb");
  EXPECT_EQ(find_device_spec("NVIDIA H100 80GB HBM3")->name, "h100");
  EXPECT_EQ(find_device_spec("rtx_4090")->name, "rtx-4090");
  EXPECT_EQ(find_network_spec("IB-HDR")->name, "ib-hdr");
  EXPECT_EQ(find_device_spec("a100-81gb"), nullptr);
  EXPECT_EQ(find_device_spec(""), nullptr);
  EXPECT_EQ(find_network_spec("a100"), nullptr);
}

TEST(Devices, AClusterIsWrittenAndReadAgain) {
  Cluster cluster{.device = *find_device_spec("v100-32gb"),
                  .node = *find_node_spec("nvswitch"),
                  .network = *find_network_spec("ib-edr"),
                  .gpus_per_node = 16,
                  .num_nodes = 2,
                  .host_memory_bytes = std::int64_t{1} << 40};
  const json::Value written = json::write(cluster);
  const auto document = json::Document::parse(written.dump(), "cluster.json");
  const auto read = json::read<Cluster>(document.node());
  EXPECT_EQ(json::write(read), written);
  EXPECT_EQ(read.device->peak_flops, cluster.device->peak_flops);
  EXPECT_EQ(read.gpus_per_node, 16);

  // A machine that was seen has a name and sizes, and no rates.
  Cluster seen{.device = DeviceSpec{.name = "NVIDIA X", .memory_bytes = 1000}, .gpus_per_node = 4};
  EXPECT_EQ(json::write(seen).dump(),
            R"({"device":{"name":"NVIDIA X","memory_bytes":1000},"gpus_per_node":4})");
}

}  // namespace
}  // namespace dstune
