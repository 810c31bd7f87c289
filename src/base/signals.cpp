#include "dstune/base/signals.hpp"

#include <ctime>

#include <pthread.h>

namespace dstune {

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU}) sigaddset(&signals, number);
  return signals;
}

void block_stop_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int take_stop_signal(std::chrono::milliseconds timeout) {
  const sigset_t signals = stop_signals();
  const auto whole_s = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec limit{};
  limit.tv_sec = static_cast<std::time_t>(whole_s.count());
  limit.tv_nsec = static_cast<long>(std::chrono::nanoseconds(timeout - whole_s).count());
  const int number = sigtimedwait(&signals, nullptr, &limit);
  return number > 0 ? number : 0;
}

}  // namespace dstune
