// What the user's own runs say of the target's time, beside what was believed before them.
#include "dstune/ranking/calibration.hpp"

#include <algorithm>
#include <cmath>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

/// Orders of magnitude, not measurements: what one of each costs may be so much, in the order of
/// Overhead. A hook runs a little Python, a collective call some more, what a module does to gather
/// is a lot of it, and a byte more is a network of 1 GB/s.
constexpr Overheads likely_costs_s{20e-3,  0.1e-3, 0.1e-3, 1e-3,   1e-3,   0.1e-3, 0.5e-3,
                                   0.5e-3, 0.5e-3, 0.5e-3, 0.5e-3, 0.5e-3, 1e-9};
/// Constants may be off by such a share of themselves.
constexpr double doubt = 0.2;
/// Relative, of one run's time over another's.
constexpr double noise_of_runs = 0.03;
/// Likewise, of a tiny engine's step.
constexpr double noise_of_tiny = 0.05;
/// By which shares constants may be off: standard deviations.
struct Doubts {
  double scale = 0, cost = 0;
  double host = 0, network = 0;  ///< of a factor that all costs of the host have, or the network's
  double least_known = 0;        ///< the least cost that the doubt is a share of; in likely costs
};
/// On another machine, before its tiny engines.
constexpr Doubts before_tiny_engines{.scale = 0.05, .cost = doubt, .host = 2, .network = 2};
/// Before a job's own runs in the engine: chosen on the recorded spaces, as what makes their runs
/// likeliest, in any order (docs/fidelity.md).
constexpr Doubts before_own_runs{
    .scale = 0.7, .cost = 0.4, .host = 0.5, .network = 0.3, .least_known = 1};
/// … and where there are no constants.
constexpr Doubts without_constants{.scale = 3, .cost = 1, .least_known = 1};
/// A step is never overheads alone: at least so much of its own share stays.
constexpr double least_scale = 0.05;
/// Of fits, each with weights by the one before.
constexpr int num_rounds = 10;

constexpr Eigen::Index num_unknowns = num_overheads + 1;  // the scale first

/// The prior with all of its times longer or shorter by a factor.
TimeCalibration times(double factor, const TimeCalibration& prior) {
  TimeCalibration result = prior;
  for (double& scale : result.scale) scale *= factor;
  for (double& cost_s : result.costs_s) cost_s *= factor;
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

/// What each unknown adds to the point's relative time, which is to be 1: the scale's factor, then
/// the costs, each in units of what is likely, so that numbers are of one order. Where the device
/// works behind the host, a step has the longer of two times: which one that is, the prior says,
/// and the fit does not ask again. What is hidden by it tells nothing.
Eigen::VectorXd row_of(const CalibrationPoint& point, const TimeCalibration& prior) {
  const double device_s = prior.scale_of(point.precision) * point.measured_s;
  double host_s = 0;
  for (std::size_t each = 0; each < num_overheads; ++each)
    if (is_beside_device(static_cast<Overhead>(each)))
      host_s += prior.costs_s[each] * point.overheads[each];
  const bool hides_host = prior.is_device_behind_host && host_s <= device_s;
  const bool hides_device = prior.is_device_behind_host && host_s > device_s;
  Eigen::VectorXd row(num_unknowns);
  row[0] = hides_device ? 0 : device_s / point.target_s;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const bool is_hidden = hides_host && is_beside_device(static_cast<Overhead>(each));
    row[static_cast<Eigen::Index>(each + 1)] =
        is_hidden ? 0 : point.overheads[each] / point.target_s * likely_costs_s[each];
  }
  return row;
}

/// What minimises x' left x / 2 - right' x with nothing below 0, from `start` on; the first number
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

/// As row_of() counts them.
struct Unknowns {
  Eigen::VectorXd mean;
  Eigen::MatrixXd covariance;
};

Unknowns unknowns_of(const TimeCalibration& time, const Doubts& doubts) {
  Unknowns unknowns{Eigen::VectorXd::Zero(num_unknowns),
                    Eigen::MatrixXd::Zero(num_unknowns, num_unknowns)};
  Eigen::VectorXd host = unknowns.mean;
  Eigen::VectorXd network = unknowns.mean;
  unknowns.mean[0] = 1;
  unknowns.covariance(0, 0) = doubts.scale * doubts.scale;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const auto i = static_cast<Eigen::Index>(each + 1);
    const double cost = time.costs_s[each] / likely_costs_s[each];
    unknowns.mean[i] = cost;
    (is_of_network(static_cast<Overhead>(each)) ? network : host)[i] = cost;
    // Many recorded runs told the costs that they have; of the others only the order is known.
    const double known = cost > 0 ? std::max(cost, doubts.least_known) : 1;
    unknowns.covariance(i, i) = std::pow(doubts.cost * known, 2);
  }
  unknowns.covariance += doubts.host * doubts.host * host * host.transpose() +
                         doubts.network * doubts.network * network * network.transpose();
  return unknowns;
}

TimeCalibration time_of(const Eigen::VectorXd& unknowns, const TimeCalibration& before) {
  TimeCalibration time = before;
  for (double& scale : time.scale) scale *= unknowns[0];
  for (std::size_t each = 0; each < num_overheads; ++each)
    time.costs_s[each] = unknowns[static_cast<Eigen::Index>(each + 1)] * likely_costs_s[each];
  return time;
}

Eigen::MatrixXd inverse_of(const Eigen::MatrixXd& matrix) {
  return matrix.llt().solve(Eigen::MatrixXd::Identity(matrix.rows(), matrix.cols()));
}

}  // namespace

CalibrationPrior unknown_target() {
  return {{}, likely_costs_s};
}

CalibrationPrior prior_of(const TargetConstants& constants) {
  CalibrationPrior prior{constants.time, likely_costs_s, true};
  for (std::size_t each = 0; each < num_overheads; ++each)
    prior.deviations_s[each] = doubt * std::max(constants.time.costs_s[each], likely_costs_s[each]);
  return prior;
}

TargetConstants fit_machine(const std::vector<CalibrationPoint>& points,
                            const TargetConstants& constants) {
  require(!points.empty(), "there is something to fit to");
  const Unknowns unknowns = unknowns_of(constants.time, before_tiny_engines);
  const Eigen::VectorXd& mean = unknowns.mean;
  const Eigen::MatrixXd precision = inverse_of(unknowns.covariance);
  TargetConstants result = constants;
  std::vector<double> weights(points.size(), 1);
  // Steps that something disturbed are much too long: a point counts for less the farther it is off
  // (Huber's weights: Robust Statistics, 1981, section 7.8).
  for (int round = 0; round < num_rounds; ++round) {
    Eigen::MatrixXd left = precision;
    Eigen::VectorXd right = precision * mean;
    for (std::size_t place = 0; place < points.size(); ++place) {
      const Eigen::VectorXd row = row_of(points[place], constants.time);
      const double strength = weights[place] / (noise_of_tiny * noise_of_tiny);
      left += strength * row * row.transpose();
      right += strength * row;
    }
    const Eigen::VectorXd fitted = least_above_0(left, right, mean);
    result.time = time_of(fitted, constants.time);
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
  return result;
}

std::vector<BelievedTime> believed_times(const std::vector<CalibrationPoint>& members,
                                         const std::vector<CalibrationPoint>& runs,
                                         const std::optional<TargetConstants>& constants) {
  const TimeCalibration before = constants ? constants->time : TimeCalibration{};
  const Unknowns prior = unknowns_of(before, constants ? before_own_runs : without_constants);
  Eigen::MatrixXd left = inverse_of(prior.covariance);
  Eigen::VectorXd right = left * prior.mean;
  for (const CalibrationPoint& run : runs) {
    const Eigen::VectorXd row = row_of(run, before);
    left += row * row.transpose() / std::pow(error_of_believed_time, 2);
    right += row / std::pow(error_of_believed_time, 2);
  }
  const TimeCalibration time = time_of(least_above_0(left, right, prior.mean, least_scale), before);
  const Eigen::MatrixXd after = inverse_of(left);
  const Eigen::MatrixXd deviations = prior.covariance.llt().matrixL();
  std::vector<BelievedTime> believed;
  for (CalibrationPoint member : members) {
    member.target_s = time.target_s(member.measured_s, member.precision, member.overheads);
    const Eigen::VectorXd row = row_of(member, before);
    const Eigen::VectorXd unknowns = deviations.transpose() * row;
    believed.push_back(
        {member.target_s, std::sqrt(row.dot(after * row)), {unknowns.begin(), unknowns.end()}});
  }
  return believed;
}

TimeCalibration fit_time(const std::vector<CalibrationPoint>& points,
                         const CalibrationPrior& prior) {
  require(!points.empty(), "there is something to fit to");
  const double factor = common_factor(points, prior.mean);
  const TimeCalibration by_factor = times(factor, prior.mean);
  // One point tells nothing apart: the order of the configurations is left as it was.
  if (points.size() == 1) return by_factor;
  Eigen::MatrixXd left = Eigen::MatrixXd::Zero(num_unknowns, num_unknowns);
  Eigen::VectorXd right = Eigen::VectorXd::Zero(num_unknowns);
  for (const CalibrationPoint& point : points) {
    const Eigen::VectorXd row = row_of(point, prior.mean);
    left += row * row.transpose();
    right += row;
  }
  Eigen::VectorXd start(num_unknowns);
  start[0] = factor;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const auto i = static_cast<Eigen::Index>(each + 1);
    const double deviation_s = prior.deviations_s[each] * (prior.is_of_one_machine ? factor : 1.0);
    const double weight = std::pow(noise_of_runs * likely_costs_s[each] / deviation_s, 2);
    start[i] = by_factor.costs_s[each] / likely_costs_s[each];
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
  return fitted[0] == 0 ? by_factor : time_of(fitted, prior.mean);
}

}  // namespace dstune
