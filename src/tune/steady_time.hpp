#pragma once
/// Seconds on the steady clock.

#include <chrono>

namespace dstune {

using SteadyClock = std::chrono::steady_clock;

inline double seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline SteadyClock::duration to_duration(double duration_s) {
  return std::chrono::duration_cast<SteadyClock::duration>(
      std::chrono::duration<double>(duration_s));
}

}  // namespace dstune
