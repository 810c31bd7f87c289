#include "dstune/comm/cores.hpp"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "folder_test.hpp"

namespace dstune {
namespace {

constexpr double no_quota = std::numeric_limits<double>::infinity();

TEST(CpuListTest, HoldsNumbersAndRanges) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (std::vector{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), (std::vector{5}));
  for (const char* const none : {"", "\n", "x", "3-", "3-1", "1-2-3", "-1", "0-99999999"})
    EXPECT_TRUE(parse_cpu_list(none).empty()) << none;
}

/// A host of four cores with two hardware threads each: 0 and 4 are one core.
class HostCoresTest : public test::FolderTest {
 protected:
  HostCoresTest() {
    const std::string system = "sys/devices/system/cpu/";
    write(system + "online", "0-7\n");
    for (int cpu = 0; cpu < 8; ++cpu)
      write(system + "cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  /// A cpuset, as version 2 of control groups has it.
  void allow(const std::string& cpus) {
    write("proc/self/mountinfo", "30 24 0:26 / /groups rw - cgroup2 cgroup2 rw\n");
    write("proc/self/cgroup", "0::/job/step\n");
    write("groups/job/cpuset.cpus.effective", cpus);
    write("groups/cpuset.cpus.effective", "0-7\n");
  }
  HostCores find(const std::vector<int>& cpus, double quota = no_quota) {
    return host_cores({cpus, quota}, folder_.string());
  }
};

TEST_F(HostCoresTest, HardwareThreadsOfACoreCountOnce) {
  const HostCores found = find({1, 5, 6});
  EXPECT_EQ(found.own, (std::vector{1, 2}));
  EXPECT_EQ(found.of_host, 4);
  EXPECT_EQ(found.processors, 8);
  EXPECT_DOUBLE_EQ(found.allowed, 4);
}

TEST_F(HostCoresTest, TheCgroupLeavesAPart) {
  allow("0-1,4-5\n");
  EXPECT_DOUBLE_EQ(find({0, 4}).allowed, 2);
  EXPECT_DOUBLE_EQ(find({0, 4}, 1.5).allowed, 1.5);
  EXPECT_EQ(find({0, 4}).of_host, 4);
}

TEST(HostCoresHereTest, AreThoseOfTheSystem) {
  const HostCores found = host_cores(own_core_use());
  EXPECT_FALSE(found.own.empty());
  EXPECT_GE(found.of_host, 1);
  EXPECT_GE(found.processors, found.of_host);
  EXPECT_GT(found.allowed, 0);
}

}  // namespace
}  // namespace dstune
