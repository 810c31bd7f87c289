#include "calibration_unknowns.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <Eigen/Cholesky>

namespace dstune {

namespace {

/// The errors of constants that were fitted to recorded runs. Nobody knows those of others.
std::optional<Eigen::MatrixXd> covariance_of(const TargetConstants& constants,
                                             const Overheads& likely_costs_s) {
  if (constants.scale_deviation <= 0) return std::nullopt;
  Eigen::VectorXd deviations(num_unknowns);
  deviations[0] = constants.scale_deviation;
  for (std::size_t each = 0; each < num_overheads; ++each)
    deviations[each + 1] = constants.deviations_s[each] / likely_costs_s[each];
  Eigen::MatrixXd correlations = Eigen::MatrixXd::Identity(num_unknowns, num_unknowns);
  // A release with other unknowns had other pairs.
  if (constants.correlations.size() == num_overheads * (num_overheads + 1) / 2) {
    auto next = constants.correlations.begin();
    for (std::size_t i = 1; i < num_unknowns; ++i)
      for (std::size_t j = 0; j < i; ++j) correlations(i, j) = correlations(j, i) = *next++;
  }
  // Figures with few digits need not make a matrix that is positive.
  constexpr double least_share = 1e-3;
  correlations.diagonal().array() += least_share;
  // Somebody may have written what no correlations are.
  if (correlations.llt().info() != Eigen::Success)
    correlations = Eigen::MatrixXd::Identity(num_unknowns, num_unknowns);
  return deviations.asDiagonal() * correlations * deviations.asDiagonal();
}

}  // namespace

Eigen::VectorXd row_of(const CalibrationPoint& point, const TimeCalibration& prior,
                       const Overheads& likely_costs_s) {
  const double scaled_s = prior.scale_of(point.precision) * point.measured_s;
  const double device_s = prior.device_scale(point.precision, point.overheads) * point.measured_s;
  double host_s = 0;
  for (std::size_t each = 0; each < num_overheads; ++each)
    if (is_beside_device(static_cast<Overhead>(each)))
      host_s += prior.costs_s[each] * point.overheads[each];
  const bool hides_host = prior.is_device_behind_host && host_s <= device_s;
  const bool hides_device = prior.is_device_behind_host && host_s > device_s;
  Eigen::VectorXd row(num_unknowns);
  row[0] = hides_device ? 0 : scaled_s / point.target_s;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const auto overhead = static_cast<Overhead>(each);
    const bool is_hidden = is_time(each) ? hides_host && is_beside_device(overhead) : hides_device;
    const double count = point.overheads[each] * (is_time(each) ? 1 : scaled_s);
    row[each + 1] = is_hidden ? 0 : count / point.target_s * likely_costs_s[each];
  }
  return row;
}

Unknowns unknowns_of(const TargetConstants& constants, const Policy::Calibrating::Doubts& doubts,
                     const Overheads& likely_costs_s) {
  const TimeCalibration& time = constants.time;
  Unknowns unknowns{Eigen::VectorXd::Zero(num_unknowns),
                    Eigen::MatrixXd::Zero(num_unknowns, num_unknowns)};
  Eigen::VectorXd host = unknowns.mean;
  Eigen::VectorXd network = unknowns.mean;
  unknowns.mean[0] = 1;
  const std::optional<Eigen::MatrixXd> fitted = covariance_of(constants, likely_costs_s);
  if (fitted) unknowns.covariance = *fitted;
  unknowns.covariance(0, 0) += doubts.scale * doubts.scale;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const std::size_t i = each + 1;
    const double cost = time.costs_s[each] / likely_costs_s[each];
    unknowns.mean[i] = cost;
    if (is_time(each)) (is_of_network(static_cast<Overhead>(each)) ? network : host)[i] = cost;
    // A cost that no recorded run has: only its order is known.
    if (fitted && constants.deviations_s[each] > 0) continue;
    // Many recorded runs told the costs that they have; of the others only the order is known.
    const double known = cost > 0 ? std::max(cost, doubts.least_known) : 1;
    unknowns.covariance(i, i) = std::pow(doubts.cost * known, 2);
  }
  unknowns.covariance += doubts.host * doubts.host * host * host.transpose() +
                         doubts.network * doubts.network * network * network.transpose();
  return unknowns;
}

void set_errors(TargetConstants& constants, const Eigen::MatrixXd& covariance,
                const Overheads& likely_costs_s) {
  const Eigen::VectorXd deviations = covariance.diagonal().cwiseSqrt();
  constants.scale_deviation = deviations[0];
  for (std::size_t each = 0; each < num_overheads; ++each)
    constants.deviations_s[each] = deviations[each + 1] * likely_costs_s[each];
  constants.correlations.clear();
  for (std::size_t i = 1; i < num_unknowns; ++i)
    for (std::size_t j = 0; j < i; ++j)
      constants.correlations.push_back(
          std::clamp(covariance(i, j) / (deviations[i] * deviations[j]), -1.0, 1.0));
}

Eigen::MatrixXd inverse_of(const Eigen::MatrixXd& matrix) {
  return matrix.llt().solve(Eigen::MatrixXd::Identity(matrix.rows(), matrix.cols()));
}

}  // namespace dstune
