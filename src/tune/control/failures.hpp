#pragma once
/// Experiments that failed for the same reason are told once, and counted. Knows no clock. Local.

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/clock.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

class FailureCounts {
 public:
  /// Counts one. Returns whether it is the first of its reason, which is a line of its own.
  bool add(Status status, const std::string& reason);
  /// One that add() named the first, and that had no line after all.
  void leave_untold(Status status, const std::string& reason);
  /// Lines on those that were counted since the last ones, the largest groups first, at most once
  /// in `interval`.
  std::vector<std::string> due(SteadyClock::time_point now);
  /// … now, because the phase ends.
  std::vector<std::string> rest();

  static constexpr std::chrono::seconds interval{10};

 private:
  struct Group {
    std::string first_reason{};
    bool was_told = false;
    std::size_t num_untold = 0;
  };
  /// The reason with its figures replaced.
  using Key = std::pair<Status, std::string>;

  std::map<Key, Group> groups_;
  std::optional<SteadyClock::time_point> told_at_{};
  bool is_any_untold_ = false;
};

}  // namespace dstune
