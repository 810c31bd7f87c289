#include "dstune/device/disk.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "thrown.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

constexpr std::int64_t page = 4096;

/// Memory that a disk may be read into, with a pattern that tells places apart.
class Pages {
 public:
  explicit Pages(std::int64_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(
            std::aligned_alloc(static_cast<std::size_t>(page), static_cast<std::size_t>(bytes)))) {}
  ~Pages() { std::free(memory_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] std::byte* at(std::int64_t offset) const { return memory_ + offset; }
  void number(int seed) {
    for (std::int64_t i = 0; i < bytes_; ++i)
      memory_[i] = static_cast<std::byte>((i / 7 + i / page + seed) % 251);
  }
  void clear() { std::memset(memory_, 0, static_cast<std::size_t>(bytes_)); }
  [[nodiscard]] bool equals(const Pages& other) const {
    return std::memcmp(memory_, other.memory_, static_cast<std::size_t>(bytes_)) == 0;
  }

 private:
  std::int64_t bytes_;
  std::byte* memory_;
};

class DiskFileTest : public testing::Test {
 protected:
  DiskFileTest() : folder_(testing::TempDir() + "disk_file_test" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~DiskFileTest() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::unique_ptr<DiskFile> open(std::int64_t bytes, const DiskAccess& access = {},
                                               std::size_t transfers = 16) {
    return std::make_unique<DiskFile>(folder_, bytes, transfers, access, budget_);
  }
  [[nodiscard]] bool is_folder_empty() const { return std::filesystem::is_empty(folder_); }

  std::string folder_;
  MemoryBudget budget_{std::numeric_limits<std::int64_t>::max(), "disk budget"};
};

TEST_F(DiskFileTest, GivesBackWhatWasWrittenWhateverTheBlocksAndThreads) {
  constexpr std::int64_t bytes = 40 * page;
  Pages written(bytes);
  Pages read(bytes);
  int seed = 0;
  for (const std::int64_t block_bytes : {std::int64_t{1}, 3 * page, 64 * page}) {
    for (const int threads : {1, 3, 8}) {
      const auto file = open(bytes, {.block_bytes = block_bytes, .threads = threads});
      written.number(++seed);
      read.clear();
      // In parts, the last one first.
      for (std::int64_t part = 3; part >= 0; --part)
        file->write(written.at(part * bytes / 4), part * bytes / 4, bytes / 4);
      EXPECT_EQ(file->num_writes(), 4);
      file->wait_for_writes(4);
      file->read(read.at(0), 0, page);
      file->read(read.at(page), page, bytes - page);
      file->wait_for_reads(file->num_reads());
      EXPECT_TRUE(read.equals(written)) << block_bytes << " bytes, " << threads << " threads";
    }
  }
}

TEST_F(DiskFileTest, TakesMoreTransfersThanItKeepsAtOnce) {
  constexpr std::int64_t bytes = 64 * page;
  const auto file = open(bytes, {.block_bytes = page, .threads = 2}, 1);
  Pages written(bytes);
  Pages read(bytes);
  written.number(5);
  for (int number = 0; number < 64; ++number)
    file->write(written.at(number * page), number * page, page);
  file->wait_for_writes(64);
  for (int number = 0; number < 64; ++number)
    file->read(read.at(number * page), number * page, page);
  file->wait_for_reads(64);
  EXPECT_TRUE(read.equals(written));
}

TEST_F(DiskFileTest, HasNoNameAndGivesItsBytesBack) {
  {
    const auto file = open(256 * page);
    EXPECT_TRUE(is_folder_empty());
    EXPECT_EQ(budget_.held_bytes(), 256 * page);
  }
  EXPECT_TRUE(is_folder_empty());
  EXPECT_EQ(budget_.held_bytes(), 0);
}

TEST_F(DiskFileTest, LiesBesideAFolderThatIsNotThere) {
  const std::string missing = folder_ + "/not/there";
  const DiskFile file(missing, page, 1, {}, budget_);
  EXPECT_TRUE(is_folder_empty());
  EXPECT_EQ(free_disk_bytes(missing), free_disk_bytes(folder_));
  EXPECT_GT(free_disk_bytes(missing), 0);
}

TEST_F(DiskFileTest, AFullDiskIsOutOfMemory) {
  budget_.set_limit_bytes(3 * page);
  EXPECT_THAT(test::thrown<OutOfMemory>([&] { static_cast<void>(open(4 * page)); }),
              testing::AllOf(HasSubstr("disk budget"),
                             HasSubstr("16.0 KiB asked for, 12.0 KiB available")));
  EXPECT_EQ(budget_.held_bytes(), 0);
  EXPECT_TRUE(is_folder_empty());
}

TEST_F(DiskFileTest, AFileThatMayNotBeSoLargeIsOutOfMemory) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 8 * page;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(static_cast<void>(open(9 * page)), OutOfMemory);
  EXPECT_NO_THROW(static_cast<void>(open(8 * page)));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(budget_.held_bytes(), 0);
}

TEST_F(DiskFileTest, ATransferBeyondTheEndFails) {
  const auto file = open(4 * page, {.block_bytes = 8 * page, .threads = 1});
  Pages memory(8 * page);
  memory.number(1);
  file->write(memory.at(0), 0, 4 * page);
  EXPECT_NO_THROW(file->wait_for_writes(1));
  // The first half of it is there: a short read, then nothing.
  file->read(memory.at(0), 2 * page, 4 * page);
  EXPECT_THROW(file->wait_for_reads(1), DeviceError);
}

// Sanitizers need memory of their own for a thread.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/// Of this process's address space.
std::int64_t mapped_bytes() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST_F(DiskFileTest, WhereAThreadCanNotBeHadNoneIsLeft) {
  constexpr std::int64_t stacks_of_a_few_bytes = 32 << 20;
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &usual), 0);
  rlimit tight = usual;
  tight.rlim_cur = static_cast<rlim_t>(mapped_bytes() + stacks_of_a_few_bytes);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  EXPECT_THROW(open(page, {.block_bytes = page, .threads = 64}), std::system_error);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &usual), 0);
  EXPECT_EQ(budget_.held_bytes(), 0);
}

#endif

}  // namespace
}  // namespace dstune
