#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/base/cgroup.hpp"
#include "dstune/base/error.hpp"
#include "dstune/device/device.hpp"
#include "folder_test.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

/// A made-up file system under which control groups are looked for.
class CgroupTest : public test::FolderTest {
 protected:
  std::vector<std::string> read() const {
    return read_cgroup_files({"memory", "memory.limit_in_bytes", "memory.max"}, folder_.string());
  }
};

TEST_F(CgroupTest, ReadsVersion2UpToTheMount) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/job/step/memory.max", "max");
  write("sys/fs/cgroup/job/memory.max", "1000");
  EXPECT_THAT(read(), ElementsAre("max", "1000"));
}

TEST_F(CgroupTest, ReadsTheControllerOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n");
  write("proc/self/mountinfo",
        "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "31 20 0:27 / /sys/fs/cgroup/memory rw master:1 - cgroup cgroup rw,memory\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "77");
  write("sys/fs/cgroup/cpu/other/memory.limit_in_bytes", "1");
  EXPECT_THAT(read(), ElementsAre("77"));
}

TEST_F(CgroupTest, UnderstandsAMountOfASubtree) {
  write("proc/self/cgroup", "0::/docker/abc\n");
  write("proc/self/mountinfo", "30 20 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/memory.max", "42");
  EXPECT_THAT(read(), ElementsAre("42"));
}

TEST_F(CgroupTest, FindsNothingWhereThereIsNone) {
  EXPECT_THAT(read(), IsEmpty());
}

TEST(HostTest, MemoryIsThatOfTheMachineOrLess) {
  const auto physical = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  EXPECT_GT(host_memory_bytes(), 0);
  EXPECT_LE(host_memory_bytes(), physical);
}

TEST(HostTest, ResidentBytesFollowWhatIsTouched) {
  constexpr std::size_t size = std::size_t{64} << 20;
  const std::int64_t before = process_resident_bytes();
  {
    const std::vector<char> touched(size, 1);
    EXPECT_GE(process_resident_bytes(), before + static_cast<std::int64_t>(size) / 2);
    EXPECT_EQ(touched.back(), 1);
  }
}

TEST(HostTest, TheProcessorHasAName) {
  EXPECT_FALSE(processor_name().empty());
}

TEST(CpuDeviceTest, IsMemoryKernelsAndThreads) {
  CpuDevice device(std::int64_t{1} << 20, 2);
  EXPECT_EQ(device.threads(), 2);
  EXPECT_EQ(kernels::cpu_threads(), 2);
  EXPECT_EQ(&device.kernels(), &kernels::cpu_table());
  device.arena().prepare(1 << 20);
  EXPECT_EQ(device.budget().held_bytes(), 1 << 20);
  EXPECT_THROW(device.arena().prepare((1 << 20) + 1), OutOfMemory);
  EXPECT_THAT(device.description(), testing::HasSubstr(device.kernels().name));
  EXPECT_THAT(device.description(), testing::EndsWith("2 threads)"));
  EXPECT_THROW(CpuDevice(1, 0), LogicError);
}

TEST(CpuDeviceTest, HasDoneWhatItsQueuesAreAskedForAtOnce) {
  CpuDevice device(1, 1);
  EXPECT_EQ(&device.host_kernels(), &device.kernels());
  Queues& queues = device.queues();
  queues.prepare({.queues = 2, .events = 1, .stamps = 2}, Waiter());
  queues.stamp(0);
  const std::string from = "seven bytes and four";
  std::string to(from.size(), ' ');
  queues.copy(to.data(), from.data(), 7);
  EXPECT_EQ(to.substr(0, 8), "seven b ");
  queues.use(1);
  queues.copy(to.data(), from.data(), static_cast<std::int64_t>(from.size()));
  EXPECT_EQ(to, from);
  queues.stamp(1);
  queues.finish_all();
  EXPECT_GE(queues.seconds_between(0, 1), 0.0);
  EXPECT_EQ(queues.native(), nullptr);
}

}  // namespace
}  // namespace dstune
