#pragma once
/// Durations in seconds, and the clock of deadlines. Local.

#include <algorithm>
#include <chrono>

namespace dstune {

using SteadyClock = std::chrono::steady_clock;

inline double seconds(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Further away than any job lasts, and near enough for sums of some to stay within 64 bits of
/// nanoseconds: 31 years.
inline constexpr double far_away_s = 1e9;

/// far_away_s stands for what is not a number, or further away.
inline SteadyClock::duration to_duration(double duration_s) {
  const double near_s = duration_s < far_away_s ? std::max(duration_s, -far_away_s) : far_away_s;
  return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(near_s));
}

}  // namespace dstune
