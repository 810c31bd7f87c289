#pragma once
/// Members as points of numbers, for the surrogate. Local.

#include <span>
#include <string>
#include <vector>

#include "dstune/search/planner.hpp"
#include "surrogate.hpp"

namespace dstune {

struct Features {
  Points points;
  std::vector<std::string> names;  ///< of the feature: TrainingConfig's member, or the group's
  /// The share of features in which two members are equal; 1 where nothing differs.
  [[nodiscard]] double likeness(std::size_t one, std::size_t other) const;
};

/// One point a member, in the same order: what differs between them, by TrainingConfig's members
/// and the group's shape. Amounts count by their logarithm, words and switches as one feature a
/// value; all from 0 to 1.
Features features_of(std::span<const Experiment* const> experiments);

}  // namespace dstune
