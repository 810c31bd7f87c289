// The target's time from the user's own runs, beside the beliefs before them.
#include "dstune/ranking/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "calibration_unknowns.hpp"
#include "dstune/base/error.hpp"

namespace dstune {

namespace {

/// Number of fits; each has weights by the one before.
constexpr int num_rounds = 10;

/// The prior with all of its times longer or shorter by a factor.
TimeCalibration times(double factor, const TimeCalibration& prior) {
  TimeCalibration result = prior;
  for (double& scale : result.scale) scale *= factor;
  for (std::size_t each = 0; each < num_overheads; ++each)
    if (is_time(each)) result.costs_s[each] *= factor;
  return result;
}

/// The factor that brings the prior nearest to all points.
double common_factor(const std::vector<CalibrationPoint>& points, const TimeCalibration& prior) {
  double sum = 0;
  double squares = 0;
  for (const CalibrationPoint& point : points) {
    const double relative =
        prior.target_s(point.measured_s, point.precision, point.overheads) / point.target_s;
    sum += relative;
    squares += relative * relative;
  }
  return sum / squares;
}

/// Minimises x' left x / 2 - right' x with nothing below 0, from `start` on; the first number is
/// not below `least_first`.
Eigen::VectorXd least_above_0(const Eigen::MatrixXd& left, const Eigen::VectorXd& right,
                              const Eigen::VectorXd& start, double least_first = 0) {
  constexpr int max_sweeps = 100'000;
  constexpr double settled = 1e-10;
  Eigen::VectorXd x = start;
  for (int sweep = 0; sweep < max_sweeps; ++sweep) {
    double change = 0;
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      const double better =
          std::max(i == 0 ? least_first : 0.0, x[i] + (right[i] - left.row(i).dot(x)) / left(i, i));
      change = std::max(change, std::abs(better - x[i]));
      x[i] = better;
    }
    if (change < settled) break;
  }
  return x;
}

TimeCalibration time_of(const Eigen::VectorXd& unknowns, const TimeCalibration& before,
                        const Overheads& likely_costs_s) {
  TimeCalibration time = before;
  for (double& scale : time.scale) scale *= unknowns[0];
  for (std::size_t each = 0; each < num_overheads; ++each)
    time.costs_s[each] = unknowns[each + 1] * likely_costs_s[each];
  if (unknowns[0] > 0) of(time.costs_s, Overhead::recompute) /= unknowns[0];
  return time;
}

}  // namespace

CalibrationPrior unknown_target(const Policy::Calibrating& policy) {
  return {{}, policy.likely_costs_s};
}

CalibrationPrior prior_of(const TargetConstants& constants, const Policy::Calibrating& policy) {
  CalibrationPrior prior{constants.time, policy.likely_costs_s, true};
  for (std::size_t each = 0; each < num_overheads; ++each)
    prior.deviations_s[each] =
        constants.deviations_s[each] > 0
            ? constants.deviations_s[each]
            : policy.doubt * std::max(constants.time.costs_s[each], policy.likely_costs_s[each]);
  return prior;
}

TargetConstants fit_machine(const std::vector<CalibrationPoint>& points,
                            const TargetConstants& constants, const Policy::Calibrating& policy) {
  require(!points.empty(), "there is something to fit to");
  const Unknowns unknowns =
      unknowns_of(constants, policy.before_tiny_engines, policy.likely_costs_s);
  const double noise_of_tiny = policy.noise_of_tiny;
  const Eigen::VectorXd& mean = unknowns.mean;
  const Eigen::MatrixXd precision = inverse_of(unknowns.covariance);
  TargetConstants result = constants;
  std::vector<double> weights(points.size(), 1);
  Eigen::MatrixXd left;
  // Steps that something disturbed are much too long: a point counts for less the farther it is off
  // (Huber's weights: Robust Statistics, 1981, section 7.8).
  for (int round = 0; round < num_rounds; ++round) {
    left = precision;
    Eigen::VectorXd right = precision * mean;
    for (std::size_t place = 0; place < points.size(); ++place) {
      const Eigen::VectorXd row = row_of(points[place], constants.time, policy.likely_costs_s);
      const double strength = weights[place] / (noise_of_tiny * noise_of_tiny);
      left += strength * row * row.transpose();
      right += strength * row;
    }
    const Eigen::VectorXd fitted = least_above_0(left, right, mean);
    result.time = time_of(fitted, constants.time, policy.likely_costs_s);
    result.fit_error = 0;
    for (std::size_t place = 0; place < points.size(); ++place) {
      const CalibrationPoint& point = points[place];
      const double fitted_s =
          result.time.target_s(point.measured_s, point.precision, point.overheads);
      const double off = std::abs(fitted_s / point.target_s - 1);
      weights[place] = std::min(1.0, 2 * noise_of_tiny / std::max(off, noise_of_tiny));
      result.fit_error += off / static_cast<double>(points.size());
    }
  }
  result.error = 0;  // Nobody has judged them.
  set_errors(result, inverse_of(left), policy.likely_costs_s);
  return result;
}

std::vector<BelievedTime> believed_times(const std::vector<CalibrationPoint>& members,
                                         const std::vector<CalibrationPoint>& runs,
                                         const std::optional<TargetConstants>& constants,
                                         const Policy::Calibrating& policy) {
  const TargetConstants known = constants.value_or(TargetConstants{});
  const TimeCalibration& before = known.time;
  const Unknowns prior = unknowns_of(
      known, constants ? policy.before_own_runs : policy.without_constants, policy.likely_costs_s);
  Eigen::MatrixXd left = inverse_of(prior.covariance);
  Eigen::VectorXd right = left * prior.mean;
  for (const CalibrationPoint& run : runs) {
    const Eigen::VectorXd row = row_of(run, before, policy.likely_costs_s);
    left += row * row.transpose() / std::pow(policy.error_of_believed_time, 2);
    right += row / std::pow(policy.error_of_believed_time, 2);
  }
  const TimeCalibration time = time_of(least_above_0(left, right, prior.mean, policy.least_scale),
                                       before, policy.likely_costs_s);
  const Eigen::MatrixXd after = inverse_of(left);
  const Eigen::MatrixXd deviations = prior.covariance.llt().matrixL();
  std::vector<BelievedTime> believed;
  for (CalibrationPoint member : members) {
    member.target_s = time.target_s(member.measured_s, member.precision, member.overheads);
    const Eigen::VectorXd row = row_of(member, before, policy.likely_costs_s);
    const Eigen::VectorXd unknowns = deviations.transpose() * row;
    believed.push_back(
        {member.target_s, std::sqrt(row.dot(after * row)), {unknowns.begin(), unknowns.end()}});
  }
  return believed;
}

TimeCalibration fit_time(const std::vector<CalibrationPoint>& points, const CalibrationPrior& prior,
                         const Policy::Calibrating& policy) {
  require(!points.empty(), "there is something to fit to");
  const double factor = common_factor(points, prior.mean);
  const TimeCalibration by_factor = times(factor, prior.mean);
  // One point tells nothing apart: the order of the configurations is left as it was.
  if (points.size() == 1) return by_factor;
  const Overheads& likely_costs_s = policy.likely_costs_s;
  Eigen::MatrixXd left = Eigen::MatrixXd::Zero(num_unknowns, num_unknowns);
  Eigen::VectorXd right = Eigen::VectorXd::Zero(num_unknowns);
  for (const CalibrationPoint& point : points) {
    const Eigen::VectorXd row = row_of(point, prior.mean, likely_costs_s);
    left += row * row.transpose();
    right += row;
  }
  Eigen::VectorXd start(num_unknowns);
  start[0] = factor;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const std::size_t i = each + 1;
    const double deviation_s = prior.deviations_s[each] * (prior.is_of_one_machine ? factor : 1.0);
    const double weight = std::pow(policy.noise_of_runs * likely_costs_s[each] / deviation_s, 2);
    start[i] = by_factor.costs_s[each] / likely_costs_s[each] * (is_time(each) ? 1 : factor);
    left(i, i) += weight;
    right[i] += weight * start[i];
  }
  // No step shows how fast kernels are where the host hides all of them: the factor stays.
  if (left(0, 0) == 0) {
    left(0, 0) = 1;
    right[0] = factor;
  }
  const Eigen::VectorXd fitted = least_above_0(left, right, start);
  // A step is never overheads alone.
  return fitted[0] == 0 ? by_factor : time_of(fitted, prior.mean, likely_costs_s);
}

}  // namespace dstune
