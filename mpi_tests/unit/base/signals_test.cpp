#include "dstune/base/signals.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace dstune {
namespace {

using namespace std::chrono_literals;

/// 0: what was sent to a process whose threads block it reached the thread that asks, and only it.
int take_one_of_each() {
  block_stop_signals();
  if (take_stop_signal(10ms) != 0) return 1;
  std::thread worker([] { std::this_thread::sleep_for(300ms); });
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP}) {
    kill(getpid(), number);
    if (take_stop_signal(10s) != number) return 2;
  }
  worker.join();
  return 0;
}

TEST(StopSignalsTest, AreTakenByWhoAsksForThem) {
  // In a process of its own, since a mask stays.
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(_exit(take_one_of_each()), testing::ExitedWithCode(0), "");
}

TEST(StopSignalsTest, AHangupThatIsIgnoredIsNone) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        block_stop_signals();
        kill(getpid(), SIGHUP);
        _exit(take_stop_signal(10ms));
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignalsTest, ThreadsInheritTheMask) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(
      {
        block_stop_signals();
        bool is_blocked = false;
        std::thread([&] {
          sigset_t mask;
          pthread_sigmask(SIG_BLOCK, nullptr, &mask);
          is_blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGXCPU) == 1 &&
                       sigismember(&mask, SIGSEGV) == 0;
        }).join();
        _exit(is_blocked ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace dstune
