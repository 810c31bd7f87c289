#include "failure_rules.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/units.hpp"

namespace dstune {

namespace {

/// One failure may be the machine's; several with the same value are the value's.
constexpr int enough_failures = 3;

}  // namespace

FailureRules::FailureRules(std::vector<const PlannedExperiment*> members, const Features& features)
    : members_(std::move(members)), features_(&features) {}

FailureRules::Level& FailureRules::level_of(std::size_t feature, double value) {
  const auto found = std::find_if(levels_.begin(), levels_.end(), [&](const Level& level) {
    return level.feature == feature && level.value == value;
  });
  return found != levels_.end() ? *found : levels_.emplace_back(Level{feature, value});
}

bool FailureRules::needs_no_less(std::size_t place, std::size_t than) const {
  const PlannedExperiment& one = *members_[place];
  const PlannedExperiment& other = *members_[than];
  if (one.experiment.shape != other.experiment.shape) return false;
  if (other.predicted.peak_memory_bytes > 0)
    return one.predicted.peak_memory_bytes >= other.predicted.peak_memory_bytes;
  TrainingConfig smaller = one.experiment.config;
  if (smaller.micro_batch < other.experiment.config.micro_batch) return false;
  smaller.micro_batch = other.experiment.config.micro_batch;
  return smaller == other.experiment.config;
}

std::vector<std::pair<std::size_t, std::string>> FailureRules::observe(std::size_t place,
                                                                       Status status) {
  std::vector<std::pair<std::size_t, std::string>> excluded;
  const std::string& name = members_[place]->experiment.name;
  if (status == Status::out_of_memory) {
    for (std::size_t other = 0; other < members_.size(); ++other)
      if (other != place && needs_no_less(other, place))
        excluded.emplace_back(
            other, fmt::format("needs no less memory than {}, which ran out of it", name));
    return excluded;
  }
  const bool has_failed = status == Status::failed || status == Status::timed_out;
  if (!has_failed) ++succeeded_;
  const Points& points = features_->points;
  for (std::size_t feature = 0; feature < points.num_features; ++feature) {
    Level& level = level_of(feature, points[place][feature]);
    ++(has_failed ? level.failed : level.succeeded);
  }
  if (succeeded_ == 0) return excluded;
  for (const Level& level : levels_) {
    if (level.failed < enough_failures || level.succeeded > 0) continue;
    for (std::size_t other = 0; other < members_.size(); ++other)
      if (points[other][level.feature] == level.value)
        excluded.emplace_back(other, fmt::format("all {} members with the same {} failed",
                                                 level.failed, features_->names[level.feature]));
  }
  return excluded;
}

}  // namespace dstune
