#include "dstune/device/energy.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "folder_test.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;

/// A made-up /sys/class/powercap.
class PowercapTest : public test::FolderTest {
 protected:
  void add_zone(const std::string& zone, const std::string& name, std::int64_t range_uj) {
    write(zone, "name", name);
    write(zone, "max_energy_range_uj", std::to_string(range_uj));
    count(zone, 0);
  }
  void count(const std::string& zone, std::int64_t energy_uj) {
    write(zone, "energy_uj", std::to_string(energy_uj));
  }
  void write(const std::string& zone, const std::string& file, const std::string& text) {
    FolderTest::write(zone + "/" + file, text + "\n");
  }
  [[nodiscard]] FoundEnergyMeter find() const { return find_powercap_meter(folder_.string()); }
};

TEST_F(PowercapTest, AddsPackagesAndTheirMemory) {
  add_zone("intel-rapl", "", 0);
  add_zone("intel-rapl:0", "package-0", 1'000'000'000);
  add_zone("intel-rapl:0:0", "core", 1'000'000'000);
  add_zone("intel-rapl:0:1", "dram", 1'000'000'000);
  add_zone("intel-rapl:1", "package-1", 1'000'000'000);
  add_zone("intel-rapl:2", "psys", 1'000'000'000);
  add_zone("intel-rapl-mmio:0", "package-0", 1'000'000'000);
  count("intel-rapl:0", 500'000);
  const auto [meter, reason] = find();
  ASSERT_TRUE(meter) << reason;
  EXPECT_EQ(meter->description(), "package-0, dram, package-1");
  EXPECT_EQ(meter->joules(), 0.0) << "what was counted before is nobody's";
  count("intel-rapl:0", 2'500'000);
  count("intel-rapl:0:0", 1'000'000);
  count("intel-rapl:0:1", 250'000);
  count("intel-rapl:1", 4'000'000);
  count("intel-rapl:2", 9'000'000);
  count("intel-rapl-mmio:0", 2'000'000);
  EXPECT_EQ(meter->joules(), 6.25);
}

TEST_F(PowercapTest, GoesOnWhereACounterBeginsAgain) {
  add_zone("intel-rapl:0", "package-0", 262'143'000'000);
  count("intel-rapl:0", 262'142'000'000);
  const auto meter = find().meter;
  count("intel-rapl:0", 2'000'000);
  EXPECT_EQ(meter->joules(), 3.0);
  count("intel-rapl:0", 1'000'000);
  EXPECT_EQ(meter->joules(), 3.0 + 262'142);
}

TEST_F(PowercapTest, SaysWhyThereIsNone) {
  EXPECT_NE(find().reason.find("no counters of energy"), std::string::npos);
  EXPECT_NE(find_powercap_meter((folder_ / "missing").string()).reason, "");
  add_zone("intel-rapl:0", "psys", 1'000'000'000);
  EXPECT_NE(find().reason.find("no counter of a processor"), std::string::npos);
  add_zone("intel-rapl:1", "package-0", 1'000'000'000);
  // Root may read everything, so a counter that can not be read is one that is not there.
  fs::remove(folder_ / "intel-rapl:1/energy_uj");
  const auto [meter, reason] = find();
  EXPECT_FALSE(meter);
  EXPECT_NE(reason.find("energy_uj"), std::string::npos) << reason;
}

TEST_F(PowercapTest, WhatCanNotBeReadAnyMoreIsNoFigure) {
  add_zone("intel-rapl:0", "package-0", 1'000'000'000);
  const auto meter = find().meter;
  fs::remove(folder_ / "intel-rapl:0/energy_uj");
  EXPECT_FALSE(meter->joules());
  count("intel-rapl:0", 5);
  EXPECT_FALSE(meter->joules()) << "what was used meanwhile is not known";
}

}  // namespace
}  // namespace dstune
