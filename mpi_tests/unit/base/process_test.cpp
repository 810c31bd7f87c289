#include "dstune/base/process.hpp"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dstune {
namespace {

TEST(ProcessTest, ReadsWhatTheKernelSays) {
  // The name of a program may hold anything.
  const auto status = parse_process_status(
      "4711 (a ) b) S 1 4711 4711 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 987654321 10000 5\n");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state, 'S');
  EXPECT_EQ(status->started_at, 987654321U);
  EXPECT_FALSE(parse_process_status(""));
  EXPECT_FALSE(parse_process_status("4711 (a) S 1 2"));
  EXPECT_FALSE(parse_process_status(
      "4711 (a) S 1 4711 4711 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 soon 10000 5\n"));
}

TEST(ProcessTest, ThisOneIsThere) {
  const ProcessId own = process_of(getpid());
  EXPECT_GT(own.started_at, 0U);
  EXPECT_FALSE(is_gone(own));
  const ProcessId younger{own.number, own.started_at + 1};
  EXPECT_TRUE(is_gone(younger)) << "another process has its number";
  EXPECT_NE(process_numbering(), 0U);
}

TEST(ProcessTest, OneThatIsStoppedIsThereAndOneThatHasEndedIsGone) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  ASSERT_GT(child, 0);
  const ProcessId process = process_of(child);
  kill(child, SIGSTOP);
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_FALSE(is_gone(process));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_TRUE(is_gone(process)) << "although its parent has not asked";
  waitpid(child, &status, 0);
  EXPECT_TRUE(is_gone(process));
}

}  // namespace
}  // namespace dstune
