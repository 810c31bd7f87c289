#pragma once
/// The speeds of members and the machine's drift, where the noise of each run is known: all of that
/// is normal, so both are drawn together, in time in proportion to the runs. Local.

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "drift.hpp"

namespace dstune {

/// A normal belief.
struct NormalBelief {
  double mean = 0, variance = 1;
};

/// Draws them again and again, with other noise each time.
class RunSpeeds {
 public:
  /// `place_of`: the member of each run; every one of `num_members` has a run. The drift outlives
  /// it.
  RunSpeeds(const Drift& drift, const std::vector<std::size_t>& place_of, std::size_t num_members);

  /// `speeds` of the runs, cleared of all that is known to have slowed them, with the variances of
  /// their noise; `priors` of the members without their runs.
  void draw(std::size_t drift_length, double drift_variance, std::span<const double> speeds,
            std::span<const double> variances, std::span<const NormalBelief> priors,
            std::mt19937_64& random);
  /// The members once more, by the same noise; into draws[place].
  void draw_members_again(std::span<double> draws, std::mt19937_64& random);

  /// The last draw.
  [[nodiscard]] std::span<const double> members() const { return members_; }
  [[nodiscard]] std::span<const double> drift() const { return drift_draw_; }
  /// The members' expected speeds by the noise of the last draw.
  [[nodiscard]] std::span<const double> expected() const { return expected_; }

 private:
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  double normal(std::mt19937_64& random) { return normal_(random); }
  void eliminate_drift(std::span<const double> speeds, std::span<const double> variances,
                       std::span<const NormalBelief> priors);
  void draw_drift(std::mt19937_64& random);

  const Drift& process_;
  const std::vector<std::size_t>& place_of_;
  /// A member with a single run is only one more thing that is not known of the run. Members with
  /// several have columns.
  std::vector<std::size_t> column_of_, place_of_column_;
  std::vector<std::size_t> only_run_of_;
  std::normal_distribution<double> normal_;

  std::vector<double> diagonal_, below_;  ///< the drift's precision with the runs, then its factor
  Rows coupling_;                         ///< moments × (columns, right side)
  Eigen::MatrixXd precision_;             ///< of the columns, without the drift
  Eigen::VectorXd right_, mean_, drawn_;
  Eigen::LLT<Eigen::MatrixXd> factor_;
  std::vector<double> members_, expected_, drift_draw_, expected_drift_;
  /// Mean and deviation of the draws of members with a single run, given the drift.
  std::vector<double> given_drift_, deviation_;
};

}  // namespace dstune
