#pragma once
/// Points in time, on both clocks, and seconds on the steady one.

#include <chrono>
#include <functional>

namespace dstune {

using SteadyClock = std::chrono::steady_clock;

inline double seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline SteadyClock::duration to_duration(double duration_s) {
  return std::chrono::duration_cast<SteadyClock::duration>(
      std::chrono::duration<double>(duration_s));
}

/// Limits are of the steady clock, records of the other.
struct Moment {
  SteadyClock::time_point steady;
  std::chrono::system_clock::time_point wall;

  static Moment now() { return {SteadyClock::now(), std::chrono::system_clock::now()}; }
};

/// Moment::now, unless a test has other clocks.
using JobClock = std::function<Moment()>;

}  // namespace dstune
