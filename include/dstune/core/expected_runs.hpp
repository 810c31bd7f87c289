#pragma once
/// How many more runs somebody will ask for, as far as that can be said. For estimates of the time
/// that a job still takes: nothing is decided by it. Local.

#include <algorithm>

namespace dstune {

/// Beside those that were begun. It lies between the ends in about four of five searches.
struct ExpectedRuns {
  double likely = 0;
  double low = 0, high = 0;

  [[nodiscard]] static ExpectedRuns exactly(double count) { return {count, count, count}; }
  [[nodiscard]] ExpectedRuns at_most(double count) const {
    return {std::min(likely, count), std::min(low, count), std::min(high, count)};
  }
  [[nodiscard]] ExpectedRuns at_least(double count) const {
    return {std::max(likely, count), std::max(low, count), std::max(high, count)};
  }
  ExpectedRuns& operator+=(const ExpectedRuns& other) {
    likely += other.likely;
    low += other.low;
    high += other.high;
    return *this;
  }
};

}  // namespace dstune
