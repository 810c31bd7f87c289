#pragma once
/// The unknowns of the target's time as a vector: the scale's factor, then the costs, each in units
/// of its likely value, so that numbers are of one order. Local.

#include <Eigen/Core>

#include "dstune/core/policy.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/ranking/calibration.hpp"

namespace dstune {

inline constexpr Eigen::Index num_unknowns = num_overheads + 1;

/// Recompute's is a share of the scaled time, and no time.
constexpr bool is_time(std::size_t overhead) {
  return static_cast<Overhead>(overhead) != Overhead::recompute;
}

/// A point as a row: each unknown adds so much to the point's relative time, which is to be 1.
/// Recompute's share stands there times the scale's factor.
///
/// A device that works behind the host has the longer of two times. The prior says which one that
/// is, and a fit does not ask again. The other one tells nothing.
Eigen::VectorXd row_of(const CalibrationPoint& point, const TimeCalibration& prior,
                       const Overheads& likely_costs_s);

struct Unknowns {
  Eigen::VectorXd mean;
  Eigen::MatrixXd covariance;
};
/// The constants' own errors, or the doubts where nobody knows them; and beside them how far
/// another machine's scale, host and network may be off.
Unknowns unknowns_of(const TargetConstants& constants, const Policy::Calibrating::Doubts& doubts,
                     const Overheads& likely_costs_s);

/// Keeps the errors of constants with them.
void set_errors(TargetConstants& constants, const Eigen::MatrixXd& covariance,
                const Overheads& likely_costs_s);

/// The matrix is symmetric and positive.
Eigen::MatrixXd inverse_of(const Eigen::MatrixXd& matrix);

}  // namespace dstune
