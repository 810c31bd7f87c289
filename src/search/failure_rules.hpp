#pragma once
/// What a failure tells of members that were not run. Local.

#include <string>
#include <utility>
#include <vector>

#include "dstune/core/measurement.hpp"
#include "surrogate.hpp"

namespace dstune {

class FailureRules {
 public:
  /// All of them by place, as in the features, which outlive it.
  FailureRules(std::vector<const PlannedExperiment*> members, const Features& features);

  /// Places that are not worth a run after this one ended, each with the reason; some may have been
  /// run already.
  /// - Out of memory: what needs no less, by the plan, on the same group; where nothing is
  ///   planned, what differs by a larger micro-batch alone.
  /// - Anything else that failed: every member with a value of a knob with which `enough_failures`
  ///   members failed and none succeeded, while others did.
  std::vector<std::pair<std::size_t, std::string>> observe(std::size_t place, Status status);

 private:
  /// How members with one value of one feature ended.
  struct Level {
    std::size_t feature = 0;
    double value = 0;
    int failed = 0;
    int succeeded = 0;
  };
  [[nodiscard]] bool needs_no_less(std::size_t place, std::size_t than) const;
  Level& level_of(std::size_t feature, double value);

  std::vector<const PlannedExperiment*> members_;
  const Features* features_;
  std::vector<Level> levels_;
  int succeeded_ = 0;
};

}  // namespace dstune
