#include "watch/node_board.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dstune {
namespace {

namespace fs = std::filesystem;

class NodeBoardTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dstune_board_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  /// In a process that then ends as if it were killed.
  static void run_and_die(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
  }

  std::string folder_;
};

TEST_F(NodeBoardTest, RanksOfAJobSeeEachOther) {
  const auto first = NodeBoard::attach({.world_rank = 4, .key = "a", .ranks_here = 2}, folder_);
  ASSERT_TRUE(first);
  EXPECT_EQ(num_files(), 1);
  const auto second = NodeBoard::attach({.world_rank = 7, .key = "a", .ranks_here = 2}, folder_);
  ASSERT_TRUE(second);
  EXPECT_EQ(num_files(), 0) << "nobody else comes";
  ASSERT_EQ(first->lines().size(), 2);
  EXPECT_EQ(first->lines()[1].world_rank, 7);
  EXPECT_EQ(first->lines()[1].process(), process_of(getpid()));
  second->own().beats = 12;
  EXPECT_EQ(first->lines()[1].beats, 12);
  EXPECT_FALSE(first->lines()[1].exit_code());
  second->own().end = 1 + 75;
  EXPECT_EQ(first->lines()[1].exit_code(), 75);
  EXPECT_EQ(second->exit_status_path(), "");
  first->set_exit_status_path("/results/exit_status.json");
  EXPECT_EQ(second->exit_status_path(), "/results/exit_status.json");
}

TEST_F(NodeBoardTest, JobsHaveBoardsOfTheirOwn) {
  const auto one = NodeBoard::attach({.key = "a", .ranks_here = 2}, folder_);
  const auto other = NodeBoard::attach({.key = "b", .ranks_here = 2}, folder_);
  EXPECT_EQ(one->lines().size(), 1);
  EXPECT_EQ(other->lines().size(), 1);
  EXPECT_EQ(num_files(), 2);
  one->close();
  other->close();
  EXPECT_EQ(num_files(), 0);
}

TEST_F(NodeBoardTest, WithoutAJobOrAFolderThereIsNone) {
  EXPECT_FALSE(NodeBoard::attach({}, folder_));
  EXPECT_FALSE(NodeBoard::attach({.key = "a"}, folder_ + "/nowhere"));
}

TEST_F(NodeBoardTest, WhatAKilledJobLeftGoesAtTheNextStart) {
  run_and_die([&] { NodeBoard::attach({.key = "a", .ranks_here = 2}, folder_).release(); });
  ASSERT_EQ(num_files(), 1);
  const auto alive = NodeBoard::attach({.key = "b", .ranks_here = 2}, folder_);
  run_and_die([&] { NodeBoard::attach({.key = "b", .ranks_here = 3}, folder_).release(); });
  std::ofstream(folder_ + "/somebody's") << "else";
  NodeBoard::remove_stale(folder_);
  EXPECT_EQ(num_files(), 2) << "one rank of the other job lives";
  alive->close();
  EXPECT_EQ(num_files(), 1);
}

TEST_F(NodeBoardTest, WhatIsJustBeingMadeStays) {
  const auto made = NodeBoard::attach({.key = "a", .ranks_here = 2}, folder_);
  const fs::path path = fs::directory_iterator(folder_)->path();
  fs::resize_file(path, 0);
  NodeBoard::remove_stale(folder_);
  EXPECT_EQ(num_files(), 1);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  NodeBoard::remove_stale(folder_);
  EXPECT_EQ(num_files(), 0);
}

}  // namespace
}  // namespace dstune
