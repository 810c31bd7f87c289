#include "dstune/report/folder_lock.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "lock_holder.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr LockTimes fast{.settling = std::chrono::milliseconds(20)};

class FolderLockTest : public testing::Test {
 protected:
  FolderLockTest() { ::unsetenv("SLURM_JOB_ID"); }
  ~FolderLockTest() override { ::unsetenv("SLURM_JOB_ID"); }

  [[nodiscard]] std::string path() const { return folder_ / "lock"; }
  /// A lock that somebody else has left there.
  void write_lock(const LockHolder& holder, int age_s = 0) const {
    write_file_atomically(path(), holder.text());
    const auto written = fs::last_write_time(path());
    fs::last_write_time(path(), written - std::chrono::seconds(age_s));
  }
  /// A process of a host that nobody can ask.
  [[nodiscard]] static LockHolder elsewhere() {
    return {.host = "far",
            .process_id = 7,
            .boot = "b",
            .pid_namespace = "n",
            .started = "1",
            .batch_job = "SLURM_JOB_ID=41",
            .since = "2026-01-02T03:04:05.678901Z"};
  }
  [[nodiscard]] std::string refusal() const {
    try {
      const FolderLock lock(folder_.path(), fast);
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  test::TemporaryFolder folder_;
};

TEST_F(FolderLockTest, HoldsTheFolderAndLeavesNothing) {
  {
    const FolderLock lock(folder_.path(), fast);
    lock.check();
    EXPECT_EQ(entries(), 1);
    const LockHolder holder = LockHolder::parse(read_file(path()));
    EXPECT_EQ(holder.process_id, ::getpid());
    EXPECT_EQ(life_of(holder), Life::alive);
    EXPECT_THAT(refusal(), AllOf(HasSubstr(folder_.path()), HasSubstr(holder.host),
                                 HasSubstr("process " + std::to_string(::getpid())),
                                 HasSubstr("--results-dir")));
    lock.check();
    EXPECT_EQ(entries(), 1) << "who was refused leaves nothing";
  }
  EXPECT_EQ(entries(), 0);
}

TEST_F(FolderLockTest, ALivingProcessOfTheSameBatchJobIsNotTakenOver) {
  ::setenv("SLURM_JOB_ID", "41", 1);
  const FolderLock lock(folder_.path(), fast);
  EXPECT_THAT(refusal(), HasSubstr("SLURM_JOB_ID=41"));
}

TEST_F(FolderLockTest, IsTakenOverFromADeadProcessOfThisHostAtOnce) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_.path(), fast);
    std::raise(SIGKILL);
  }
  int status = 0;
  // Nobody has waited for it yet: a process that has ended still has its number.
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(fs::exists(path()));
  EXPECT_EQ(refusal(), "");
  write_lock(elsewhere());
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  LockHolder gone = this_process();
  gone.process_id = child;
  write_lock(gone);
  EXPECT_EQ(refusal(), "");
  LockHolder earlier = this_process();
  earlier.started = "1";
  write_lock(earlier);
  EXPECT_EQ(refusal(), "") << "a later process has the number now";
}

TEST_F(FolderLockTest, IsTakenOverInTheSameBatchJobAtOnce) {
  write_lock(elsewhere());
  EXPECT_THAT(refusal(), HasSubstr("host far, process 7"));
  ::setenv("SLURM_JOB_ID", "40", 1);
  EXPECT_NE(refusal(), "");
  ::setenv("SLURM_JOB_ID", "41", 1);
  EXPECT_EQ(refusal(), "");
}

TEST_F(FolderLockTest, IsStaleAfterAMinuteByTheFileSystemsTimes) {
  write_lock(elsewhere(), 50);
  EXPECT_THAT(refusal(), HasSubstr("last sign of life is 5"));
  write_lock(elsewhere(), 61);
  EXPECT_EQ(refusal(), "");
  write_file_atomically(path(), "no JSON");
  EXPECT_THAT(refusal(), HasSubstr("somebody who does not say who"));
}

TEST_F(FolderLockTest, IsTouchedMeanwhile) {
  const FolderLock lock(folder_.path(), {.heartbeat = std::chrono::milliseconds(5)});
  fs::last_write_time(path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto is_old = [&] {
    return fs::last_write_time(path()) < fs::file_time_type::clock::now() - std::chrono::minutes(5);
  };
  for (int i = 0; i < 2000 && is_old(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(is_old());
}

TEST_F(FolderLockTest, NoticesThatItIsGoneAndLeavesTheOtherAlone) {
  {
    const FolderLock lock(folder_.path(), fast);
    fs::remove(path());
    EXPECT_THROW(lock.check(), IoError);
    write_lock(elsewhere());
    try {
      lock.check();
      ADD_FAILURE();
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("taken"), HasSubstr("host far, process 7")));
    }
  }
  EXPECT_TRUE(fs::exists(path()));
}

TEST_F(FolderLockTest, RefusesWhatIsNoFile) {
  fs::create_symlink(folder_ / "other", path());
  EXPECT_NE(refusal(), "");
  fs::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("no regular file"));
}

/// Many processes at once, on a free folder and on a stale lock: one has it.
TEST_F(FolderLockTest, OneOfManyHasIt) {
  constexpr int num_processes = 8;
  constexpr int max_wait_ms = 20'000;
  for (const bool is_stale : {false, true}) {
    if (is_stale) write_lock(elsewhere(), 100);
    std::array<int, 2> start{};
    std::array<int, 2> end{};
    ASSERT_EQ(::pipe(start.data()), 0);
    ASSERT_EQ(::pipe(end.data()), 0);
    // A pipe says that its other ends are closed.
    const auto wait_for = [](const std::array<int, 2>& ends) {
      ::close(ends[1]);
      pollfd reader{ends[0], POLLIN, 0};
      ::poll(&reader, 1, max_wait_ms);
    };
    for (int i = 0; i < num_processes; ++i) {
      if (::fork() != 0) continue;
      wait_for(start);
      bool has_it = false;
      try {
        const FolderLock lock(folder_.path(), {.settling = std::chrono::milliseconds(300)});
        wait_for(end);
        lock.check();
        has_it = true;
      } catch (const IoError&) {
      }
      ::_exit(has_it ? 1 : 0);
    }
    ::close(start[1]);
    ::close(start[0]);
    int num_holders = 0;
    for (int ended = 0; ended < num_processes; ++ended) {
      if (ended == num_processes - 1) ::close(end[1]);
      int status = 0;
      ASSERT_GT(::wait(&status), 0);
      num_holders += WIFEXITED(status) && WEXITSTATUS(status) == 1 ? 1 : 0;
    }
    ::close(end[0]);
    EXPECT_EQ(num_holders, 1) << is_stale;
    EXPECT_EQ(entries(), 0);
  }
}

}  // namespace
}  // namespace dstune
