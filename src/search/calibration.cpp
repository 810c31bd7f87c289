#include "dstune/search/calibration.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

/// Of the sum of squares of the host's share: what a share of 10 % costs is what an error of 0.1 %
/// costs in one point.
constexpr double ridge = 1e-4;

}  // namespace

TimeCalibration fit_time(const std::vector<CalibrationPoint>& points, std::int64_t num_modules) {
  require(!points.empty(), "there is something to fit to");
  // Errors are relative: point i wants scale · a + cost · b = 1.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double a_sum = 0;
  double b_sum = 0;
  for (const CalibrationPoint& point : points) {
    const double a = point.measured_s / point.target_s;
    const double b = static_cast<double>(num_modules * point.num_micro_steps) / point.target_s;
    aa += a * a;
    ab += a * b;
    bb += b * b;
    a_sum += a;
    b_sum += b;
  }
  TimeCalibration fit{a_sum / aa, 0, num_modules};
  const double penalised = bb * (1 + ridge);
  const double determinant = aa * penalised - ab * ab;
  if (points.size() < 2 || num_modules <= 0 || determinant <= 0) return fit;
  const double cost_s = (aa * b_sum - ab * a_sum) / determinant;
  // A negative cost has no meaning; nor has a machine whose kernels take no time.
  const double scale = (a_sum - ab * cost_s) / aa;
  if (cost_s <= 0 || scale <= 0) return fit;
  fit.scale = scale;
  fit.module_cost_s = cost_s;
  return fit;
}

}  // namespace dstune
