#pragma once
/// What the user's own runs say about the figures that are measured and planned here. Local.

#include <vector>

#include "dstune/core/calibration.hpp"

namespace dstune {

/// One configuration that ran here and in the user's training.
struct CalibrationPoint {
  double measured_s = 0;  ///< an optimizer step here
  double target_s = 0;    ///< there
  Overheads overheads{};  ///< of the step
};

/// Least squares of the relative errors over the scale and the costs, none below 0. The costs are
/// drawn to 0, each as strongly as a normal prior of what such a thing may cost says beside the
/// errors that measurements have (ridge regression: Hoerl and Kennard, Technometrics 12, 1970; with
/// the bounds: Lawson and Hanson, Solving Least Squares Problems, 1974): so what the points do not
/// tell apart changes the scale, and one point gives the scale alone. At least one point; times
/// are positive and finite.
TimeCalibration fit_time(const std::vector<CalibrationPoint>& points);

}  // namespace dstune
