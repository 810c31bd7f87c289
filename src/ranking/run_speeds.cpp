#include "run_speeds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

using Eigen::Index;

constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

}  // namespace

RunSpeeds::RunSpeeds(const Drift& drift, const std::vector<std::size_t>& place_of,
                     std::size_t num_members)
    : process_(drift),
      place_of_(place_of),
      column_of_(num_members, none),
      only_run_of_(num_members, none),
      diagonal_(drift.num_moments()),
      below_(drift.num_moments()),
      members_(num_members),
      expected_(num_members),
      drift_draw_(drift.num_moments()),
      expected_drift_(drift.num_moments()),
      given_drift_(num_members),
      deviation_(num_members) {
  std::vector<std::size_t> counts(num_members);
  for (std::size_t run = 0; run < place_of.size(); ++run) {
    ++counts[place_of[run]];
    only_run_of_[place_of[run]] = run;
  }
  for (std::size_t place = 0; place < num_members; ++place) {
    if (counts[place] < 2) continue;
    column_of_[place] = place_of_column_.size();
    place_of_column_.push_back(place);
  }
  const auto num_columns = static_cast<Index>(place_of_column_.size());
  coupling_.resize(static_cast<Index>(drift.num_moments()), num_columns + 1);
  precision_.resize(num_columns, num_columns);
  right_.resize(num_columns);
  drawn_.resize(num_columns);
}

/// Leaves a matrix of the columns. The rows of `coupling_` are then scaled by the factor of the
/// drift's precision.
void RunSpeeds::eliminate_drift(std::span<const double> speeds, std::span<const double> variances,
                                std::span<const NormalBelief> priors) {
  const Index num_columns = right_.size();
  coupling_.setZero();
  precision_.setZero();
  for (Index column = 0; column < num_columns; ++column) {
    const NormalBelief& prior = priors[place_of_column_[static_cast<std::size_t>(column)]];
    precision_(column, column) = 1 / prior.variance;
    right_[column] = prior.mean / prior.variance;
  }
  for (std::size_t run = 0; run < place_of_.size(); ++run) {
    const std::size_t moment = process_.moment_of(run);
    const std::size_t place = place_of_[run];
    const auto row = static_cast<Index>(moment);
    if (column_of_[place] == none) {
      const double weight = 1 / (priors[place].variance + variances[run]);
      diagonal_[moment] += weight;
      coupling_(row, num_columns) += weight * (speeds[run] - priors[place].mean);
      continue;
    }
    const auto column = static_cast<Index>(column_of_[place]);
    const double weight = 1 / variances[run];
    diagonal_[moment] += weight;
    coupling_(row, column) += weight;
    coupling_(row, num_columns) += weight * speeds[run];
    precision_(column, column) += weight;
    right_[column] += weight * speeds[run];
  }
  // Cholesky's factor of three diagonals has two.
  const std::size_t num_moments = process_.num_moments();
  for (std::size_t moment = 0; moment < num_moments; ++moment) {
    const auto row = static_cast<Index>(moment);
    if (moment > 0) {
      const double before = below_[moment - 1];
      diagonal_[moment] -= before * before;
      coupling_.row(row) -= before * coupling_.row(row - 1);
    }
    require(diagonal_[moment] > 0, "the precision of the drift is positive definite");
    const double scale = 1 / std::sqrt(diagonal_[moment]);
    diagonal_[moment] = scale;
    coupling_.row(row) *= scale;
    if (moment + 1 < num_moments) below_[moment] *= scale;
  }
  if (num_columns == 0) return;
  const auto columns = coupling_.leftCols(num_columns);
  precision_.selfadjointView<Eigen::Lower>().rankUpdate(columns.transpose(), -1);
  right_.noalias() -= columns.transpose() * coupling_.col(num_columns);
  factor_.compute(precision_);
  require(factor_.info() == Eigen::Success, "the precision of the speeds is positive definite");
  mean_ = factor_.solve(right_);
}

/// The drift that is expected, and a draw of it, by the expected speeds of the columns and by those
/// that were drawn.
void RunSpeeds::draw_drift(std::mt19937_64& random) {
  const Index num_columns = right_.size();
  const std::size_t num_moments = process_.num_moments();
  for (std::size_t moment = num_moments; moment-- > 0;) {
    const auto row = coupling_.row(static_cast<Index>(moment));
    double expected = row[num_columns], drawn = row[num_columns] + normal(random);
    for (Index column = 0; column < num_columns; ++column) {
      expected -= row[column] * mean_[column];
      drawn -= row[column] * drawn_[column];
    }
    if (moment + 1 < num_moments) {
      expected -= below_[moment] * expected_drift_[moment + 1];
      drawn -= below_[moment] * drift_draw_[moment + 1];
    }
    expected_drift_[moment] = expected * diagonal_[moment];
    drift_draw_[moment] = drawn * diagonal_[moment];
  }
}

void RunSpeeds::draw(std::size_t drift_length, double drift_variance,
                     std::span<const double> speeds, std::span<const double> variances,
                     std::span<const NormalBelief> priors, std::mt19937_64& random) {
  std::ranges::fill(diagonal_, 0);
  std::ranges::fill(below_, 0);
  process_.add_precision(drift_length, drift_variance, diagonal_, below_);
  eliminate_drift(speeds, variances, priors);
  for (double& each : drawn_) each = normal(random);
  if (drawn_.size() > 0) {
    factor_.matrixU().solveInPlace(drawn_);
    drawn_ += mean_;
  }
  draw_drift(random);
  for (std::size_t place = 0; place < members_.size(); ++place) {
    if (column_of_[place] != none) {
      const auto column = static_cast<Index>(column_of_[place]);
      expected_[place] = mean_[column];
      members_[place] = drawn_[column];
      continue;
    }
    const std::size_t run = only_run_of_[place];
    const NormalBelief& prior = priors[place];
    const double weight = 1 / prior.variance + 1 / variances[run];
    const auto at = [&](double drift) {
      return (prior.mean / prior.variance + (speeds[run] - drift) / variances[run]) / weight;
    };
    const std::size_t moment = process_.moment_of(run);
    expected_[place] = at(expected_drift_[moment]);
    given_drift_[place] = at(drift_draw_[moment]);
    deviation_[place] = 1 / std::sqrt(weight);
    members_[place] = given_drift_[place] + deviation_[place] * normal(random);
  }
}

void RunSpeeds::draw_members_again(std::span<double> draws, std::mt19937_64& random) {
  for (double& each : drawn_) each = normal(random);
  if (drawn_.size() > 0) {
    factor_.matrixU().solveInPlace(drawn_);
    drawn_ += mean_;
  }
  for (std::size_t place = 0; place < members_.size(); ++place)
    draws[place] = column_of_[place] != none
                       ? drawn_[static_cast<Index>(column_of_[place])]
                       : given_drift_[place] + deviation_[place] * normal(random);
}

}  // namespace dstune
