#pragma once
/// Seconds since any moment, as a trace counts them.

#include <chrono>
#include <ctime>

#include "dstune/plan/trace.hpp"

namespace dstune::train {

inline double seconds_by(TraceClock clock) {
  if (clock == TraceClock::elapsed) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace dstune::train
