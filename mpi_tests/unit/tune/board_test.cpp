#include "watch/board.hpp"

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

class BoardTest : public testing::Test {
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

TEST_F(BoardTest, RanksOfAJobSeeEachOther) {
  const auto first = Board::attach({.world_rank = 4, .key = "a", .ranks_here = 2}, folder_);
  ASSERT_TRUE(first);
  EXPECT_EQ(num_files(), 1);
  const auto second = Board::attach({.world_rank = 7, .key = "a", .ranks_here = 2}, folder_);
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

TEST_F(BoardTest, JobsHaveBoardsOfTheirOwn) {
  const auto one = Board::attach({.key = "a", .ranks_here = 2}, folder_);
  const auto other = Board::attach({.key = "b", .ranks_here = 2}, folder_);
  EXPECT_EQ(one->lines().size(), 1);
  EXPECT_EQ(other->lines().size(), 1);
  EXPECT_EQ(num_files(), 2);
  one->close();
  other->close();
  EXPECT_EQ(num_files(), 0);
}

TEST_F(BoardTest, WithoutAJobOrAFolderThereIsNone) {
  EXPECT_FALSE(Board::attach({}, folder_));
  EXPECT_FALSE(Board::attach({.key = "a"}, folder_ + "/nowhere"));
}

TEST_F(BoardTest, WhatAKilledJobLeftGoesAtTheNextStart) {
  run_and_die([&] { Board::attach({.key = "a", .ranks_here = 2}, folder_).release(); });
  ASSERT_EQ(num_files(), 1);
  const auto alive = Board::attach({.key = "b", .ranks_here = 2}, folder_);
  run_and_die([&] { Board::attach({.key = "b", .ranks_here = 3}, folder_).release(); });
  std::ofstream(folder_ + "/somebody's") << "else";
  Board::remove_stale(folder_);
  EXPECT_EQ(num_files(), 2) << "one rank of the other job lives";
  alive->close();
  EXPECT_EQ(num_files(), 1);
}

TEST_F(BoardTest, WhatIsJustBeingMadeStays) {
  const auto made = Board::attach({.key = "a", .ranks_here = 2}, folder_);
  const fs::path path = fs::directory_iterator(folder_)->path();
  fs::resize_file(path, 0);
  Board::remove_stale(folder_);
  EXPECT_EQ(num_files(), 1);
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  Board::remove_stale(folder_);
  EXPECT_EQ(num_files(), 0);
}

}  // namespace
}  // namespace dstune
