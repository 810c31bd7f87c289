#include "dstune/base/signals.hpp"

#include <ctime>

#include <pthread.h>

namespace dstune {

namespace {

/// A blocked signal is taken although it is ignored: nohup would not protect the job.
bool is_hangup_ignored() {
  struct sigaction action {};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

sigset_t stop_signals() {
  // The action is the one at the start: scripts change it.
  static const bool stops_at_hangup = !is_hangup_ignored();
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU}) sigaddset(&signals, number);
  if (stops_at_hangup) sigaddset(&signals, SIGHUP);
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
