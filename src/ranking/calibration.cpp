#include "dstune/ranking/calibration.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// Orders of magnitude, not measurements: what one of each costs may be so much. In the order of
/// Overhead; a hook runs a little Python, what a module does to gather is a lot of it, and a byte
/// more is a network of 1 GB/s.
constexpr Overheads likely_costs_s{20e-3, 0.1e-3, 0.1e-3, 1e-3, 1e-9};
/// Relative, of one run's time over another's.
constexpr double noise = 0.03;
/// Sweeps over the unknowns, one at a time; there are six.
constexpr int num_sweeps = 1000;

constexpr std::size_t num_unknowns = num_overheads + 1;  // the scale first
using Vector = std::array<double, num_unknowns>;

/// What each unknown adds to a point's relative time, which is to be 1.
Vector row_of(const CalibrationPoint& point) {
  Vector row{point.measured_s / point.target_s};
  for (std::size_t each = 0; each < num_overheads; ++each)
    row[each + 1] = point.overheads[each] / point.target_s;
  return row;
}

}  // namespace

TimeCalibration fit_time(const std::vector<CalibrationPoint>& points) {
  require(!points.empty(), "there is something to fit to");
  std::array<Vector, num_unknowns> left{};
  Vector right{};
  for (const CalibrationPoint& point : points) {
    const Vector row = row_of(point);
    for (std::size_t i = 0; i < num_unknowns; ++i) {
      right[i] += row[i];
      for (std::size_t j = 0; j < num_unknowns; ++j) left[i][j] += row[i] * row[j];
    }
  }
  const double scale_alone = right[0] / left[0][0];
  // One point tells nothing apart: the order of the configurations is left as it was measured.
  if (points.size() == 1) return {scale_alone, {}};
  Vector fitted{scale_alone};
  for (std::size_t i = 1; i < num_unknowns; ++i) {
    const double strength = noise / likely_costs_s[i - 1];
    left[i][i] += strength * strength;
  }
  for (int sweep = 0; sweep < num_sweeps; ++sweep) {
    for (std::size_t i = 0; i < num_unknowns; ++i) {
      double rest = right[i];
      for (std::size_t j = 0; j < num_unknowns; ++j)
        if (j != i) rest -= left[i][j] * fitted[j];
      fitted[i] = std::max(0.0, rest / left[i][i]);
    }
  }
  // A step is never overheads alone.
  if (fitted[0] == 0) return {scale_alone, {}};
  TimeCalibration result{fitted[0], {}};
  std::copy(fitted.begin() + 1, fitted.end(), result.costs_s.begin());
  return result;
}

}  // namespace dstune
