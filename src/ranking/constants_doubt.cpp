// How sure the order of members is beside the errors of the constants.
#include <algorithm>
#include <cmath>

#include <Eigen/Cholesky>

#include "calibration_unknowns.hpp"
#include "draws.hpp"
#include "dstune/base/error.hpp"

namespace dstune {

ConstantsDoubt doubt_of_constants(const std::vector<CalibrationPoint>& members,
                                  const std::vector<double>& lead, double gain,
                                  const TargetConstants& constants,
                                  const Policy::Calibrating& policy) {
  constexpr int num_draws = 2000;
  // A cost is not below 0, and no step there is shorter than a part of what is believed.
  constexpr double shortest = 0.05;
  require(!members.empty() && members.size() == lead.size(), "each member has a lead");
  const bool is_measured_here = constants.num_engines > 0;
  Policy::Calibrating::Doubts doubts = policy.before_own_runs;
  if (is_measured_here) doubts.host = doubts.network = 0;
  const Unknowns unknowns = unknowns_of(constants, doubts, policy.likely_costs_s);
  // Some costs may be known for sure.
  constexpr double least_variance = 1e-12;
  const Eigen::MatrixXd deviations =
      (unknowns.covariance + least_variance * Eigen::MatrixXd::Identity(num_unknowns, num_unknowns))
          .llt()
          .matrixL();
  Eigen::MatrixXd rows(static_cast<Eigen::Index>(members.size()), num_unknowns);
  for (std::size_t place = 0; place < members.size(); ++place)
    rows.row(static_cast<Eigen::Index>(place)) =
        row_of(members[place], constants.time, policy.likely_costs_s);
  const Eigen::VectorXd believed = rows * unknowns.mean;
  Draws draws(1);
  std::vector<int> counts(members.size(), 0);
  int count = 0;
  for (int draw = 0; draw < num_draws; ++draw) {
    Eigen::VectorXd normal(num_unknowns);
    for (double& one : normal) one = draws.normal();
    Eigen::VectorXd drawn = unknowns.mean + deviations * normal;
    drawn = drawn.cwiseMax(0);
    drawn[0] = std::max(drawn[0], policy.least_scale);
    const Eigen::ArrayXd longer = ((rows * drawn).array() / believed.array()).max(shortest).log();
    Eigen::Index best = 0;
    double most = std::log1p(gain);
    for (std::size_t place = 1; place < members.size(); ++place) {
      const auto at = static_cast<Eigen::Index>(place);
      const double better = longer[0] - longer[at] - lead[place];
      if (better > most) {
        most = better;
        best = at;
      }
    }
    if (best == 0) continue;
    ++count;
    ++counts[static_cast<std::size_t>(best)];
  }
  ConstantsDoubt doubt;
  doubt.chance = static_cast<double>(count) / num_draws;
  const auto likeliest = std::ranges::max_element(counts);
  if (*likeliest > 0) doubt.likeliest = static_cast<std::size_t>(likeliest - counts.begin());
  doubt.chance_of_it = static_cast<double>(*likeliest) / num_draws;
  return doubt;
}

}  // namespace dstune
