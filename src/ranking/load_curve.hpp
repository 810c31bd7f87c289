#pragma once
/// The load of the machine over time: by how much it is slower for a while. Two runs of one member
/// tell it, and so does a prediction, less well. docs/inside/measuring.md has the model. Local.

#include <cstddef>
#include <optional>
#include <vector>

#include "dstune/ranking/verdict.hpp"

namespace dstune {

/// A run of a member, first or later, as the load slows it.
struct LoadedRun {
  std::size_t place = 0;  ///< of its member, in `predicted`
  double log_speed = 0;   ///< a logarithm, larger is faster
  double error = 0;       ///< standard error that its own steps give it
  /// Runs that took turns have one load. Periods count from 0, and each has a run.
  std::size_t period = 0;
};

/// The load of each run, and more that they tell.
struct LoadCurve {
  std::vector<Load> loads;  ///< of each period
  /// A run is much slower or faster than it was expected to be: a load may have come, or the one
  /// that was there before may have gone.
  std::vector<bool> is_surprise;
};

/// `runs`: in the order of their periods. `predicted`: of each member, the logarithm of its speed.
/// The load is 0 where the machine was fastest; a load that was there all the time is not seen.
/// Every member has a run.
LoadCurve estimate_loads(const std::vector<LoadedRun>& runs,
                         const std::vector<std::optional<double>>& predicted);

}  // namespace dstune
