#pragma once
/// The other load of a host, as Linux counts it (/proc/stat, /proc/loadavg; man 5 proc). Local.

#include <optional>

namespace dstune {

/// Times of all processors, since the host started; seconds.
struct HostTimes {
  double all_s = 0;
  double busy_s = 0;    ///< in which they were not idle
  double stolen_s = 0;  ///< in which other virtual machines ran instead
};
/// Nothing where nobody counts.
[[nodiscard]] std::optional<HostTimes> host_times();
/// Threads that ran or wanted to, mean over the last five minutes; likewise.
[[nodiscard]] std::optional<double> load_average();
/// Threads that run beside so many of the caller's. It is the lower of those at this moment and the
/// mean of the last minute. So neither an instant nor ended work counts. Likewise.
[[nodiscard]] std::optional<double> load_beside(int own_threads);

}  // namespace dstune
