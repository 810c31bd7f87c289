#pragma once
/// What the user's own runs say about the figures that are measured and planned here. Local.

#include <cstdint>
#include <vector>

#include "dstune/core/calibration.hpp"

namespace dstune {

/// One configuration that ran here and in the user's training.
struct CalibrationPoint {
  double measured_s = 0;  ///< an optimizer step here
  double target_s = 0;    ///< there
  std::int64_t num_micro_steps = 1;
};

/// Least squares of the relative errors over scale and module cost, both at least 0; the module
/// cost is drawn to 0 (ridge regression: Hoerl and Kennard, Technometrics 12, 1970), so that points
/// which do not tell the two apart change the scale. One point, or points of equal measured time a
/// micro-step, give the scale alone. At least one point; times are positive and finite.
TimeCalibration fit_time(const std::vector<CalibrationPoint>& points, std::int64_t num_modules);

}  // namespace dstune
