#include "watchdog.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace dstune::test {
namespace {

// How much later than the others a process may bark that only waits for them.
constexpr std::chrono::duration<double> head_start{2.0};

}  // namespace

double test_limit_s() {
  constexpr double default_limit_s = 60.0;
  const char* text = std::getenv("DSTUNE_TEST_TIMEOUT_S");
  if (text == nullptr || *text == '\0') return default_limit_s;
  char* rest = nullptr;
  const double limit_s = std::strtod(text, &rest);
  if (*rest != '\0' || !(limit_s >= 0.0)) {
    std::fprintf(stderr, "DSTUNE_TEST_TIMEOUT_S: \"%s\" is no number of seconds\n", text);
    std::exit(2);
  }
  return limit_s;
}

Watchdog::Watchdog(std::string who, std::function<void()> end)
    : who_(std::move(who)), end_(std::move(end)), limit_(test_limit_s()) {
  if (limit_.count() > 0) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch(std::string phase) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
  phase_began_ = Clock::now();
  waiting_ = false;
}

void Watchdog::wait_for_others(std::string phase) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
  waiting_ = true;
}

void Watchdog::run() {
  // Looking now and then, instead of being woken for each phase, keeps short tests short.
  const auto look = std::min(limit_ / 10, std::chrono::duration<double>(1.0));
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const auto allowed = waiting_ ? limit_ + head_start : limit_;
    if (Clock::now() - phase_began_ > allowed) {
      std::fprintf(stderr, "[  HUNG    ] %s: %s, no end after %g s\n", who_.c_str(), phase_.c_str(),
                   limit_.count());
      std::fflush(nullptr);
      // Other ranks that hang too get the time to say so before this one takes them down.
      std::this_thread::sleep_for(head_start / 4);
      end_();
    }
    changed_.wait_for(lock, look);
  }
}

void WatchdogListener::OnTestSuiteStart(const testing::TestSuite& suite) {
  watchdog_.watch(std::string("the set-up of ") + suite.name());
}

void WatchdogListener::OnTestStart(const testing::TestInfo& test) {
  watchdog_.watch(full_name(test));
}

void WatchdogListener::OnTestEnd(const testing::TestInfo& test) {
  watchdog_.watch("what follows " + full_name(test));
}

void WatchdogListener::OnTestProgramEnd(const testing::UnitTest&) {
  watchdog_.watch("the end of the program");
}

std::string full_name(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

}  // namespace dstune::test
