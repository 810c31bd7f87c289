#pragma once
/// Fits the constants of the target's time to tables that were recorded on several machines, or on
/// one at several times: one cost of each kind for all of them, and for each table a factor of all
/// costs of the host, one of all of the network and one of the kernels. Local.

#include <array>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "dstune/core/target_time.hpp"
#include "dstune/ranking/calibration.hpp"

namespace dstune::bench {

/// What is believed of each unknown before any table, and how far it may be off: the scale, then
/// each cost; the network's calls share one cost where nothing tells them apart.
struct CommonBelief {
  double mean = 0, deviation = 0;
};

struct HierarchicalFit {
  /// Which factor multiplies an unknown.
  enum Group { host, network, kernels, num_groups };

  TimeCalibration common;  ///< of a machine whose factors are 1
  /// Of the scale, relative, and of the costs, in their own units: what tables of this size leave
  /// open, widened where they are off by more than they were believed to be.
  Eigen::MatrixXd covariance;
  std::vector<std::array<double, num_groups>> factors;  ///< of each table
  std::array<double, num_groups> spread{};  ///< of the factors' logarithms between tables
  double error = 0;                         ///< root of the mean square, relative
};

/// Of points in fp32 alone. Tables of one machine have factors of their own, too: hosts of one kind
/// differ by the minute. At least one table; none is empty.
[[nodiscard]] HierarchicalFit fit_hierarchy(
    const std::vector<std::vector<CalibrationPoint>>& tables);

}  // namespace dstune::bench
