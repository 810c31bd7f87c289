#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace dstune::test {

/// Seconds a test may take: DSTUNE_TEST_TIMEOUT_S, else 60; 0 switches the watchdog off.
double test_limit_s();

/// A thread that ends the program when one phase of it takes longer than test_limit_s(), and first
/// says which phase and whose it was. Local.
class Watchdog {
 public:
  /// `who` opens the message ("rank 2"); `end` must not return.
  Watchdog(std::string who, std::function<void()> end);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// A phase begins and the clock starts anew.
  void watch(std::string phase);

  /// This process has ended its part and waits for others. The clock runs on, and those who are
  /// still at it get a head start, so that the message comes from the one that hangs.
  void wait_for_others(std::string phase);

 private:
  using Clock = std::chrono::steady_clock;

  void run();

  std::string who_;
  std::function<void()> end_;
  std::chrono::duration<double> limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string phase_ = "the start of the program";
  Clock::time_point phase_began_ = Clock::now();
  bool waiting_ = false;
  bool stop_ = false;
  std::thread thread_;
};

/// Tells a watchdog what GoogleTest is at: each test, and what happens between tests.
class WatchdogListener : public testing::EmptyTestEventListener {
 public:
  explicit WatchdogListener(Watchdog& watchdog) : watchdog_(watchdog) {}

  void OnTestSuiteStart(const testing::TestSuite& suite) override;
  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestEnd(const testing::TestInfo& test) override;
  void OnTestProgramEnd(const testing::UnitTest& program) override;

 private:
  Watchdog& watchdog_;
};

/// "Suite.Name".
std::string full_name(const testing::TestInfo& test);

/// CTest takes this code as "skipped" (SKIP_RETURN_CODE): every test of the program was skipped.
inline constexpr int all_skipped_exit_code = 77;

}  // namespace dstune::test
