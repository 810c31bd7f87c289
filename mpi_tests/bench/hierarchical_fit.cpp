#include "hierarchical_fit.hpp"

#include <algorithm>
#include <cmath>

#include <Eigen/Cholesky>

#include "dstune/base/error.hpp"

namespace dstune::bench {
namespace {

using Group = HierarchicalFit::Group;

constexpr int num_unknowns = num_overheads + 1;  // the scale first
constexpr double noise = 0.05;                   // of a step's time, relative
constexpr double factor_deviation = 0.5;         // of a factor of a table, from 1
constexpr int num_rounds = 60;

constexpr Group group_of(int unknown) {
  if (unknown == 0) return Group::kernels;
  const auto overhead = static_cast<Overhead>(unknown - 1);
  if (overhead == Overhead::recompute) return Group::kernels;
  return is_of_network(overhead) ? Group::network : Group::host;
}

/// Tiny engines on one thread told the costs of the host (1 to 5 ms a step, 62 to 80 us a module
/// call, 47 to 68 us a gradient, 160 to 190 us a gather, which is two hooks). Of the others only
/// the order is known, and that gloo makes a reduce-scatter of an all-reduce and two copies. Calls
/// of gloo alone took 0.2 ms where others follow before anybody waits, and 0.3 to 0.5 ms else.
std::array<CommonBelief, num_unknowns> beliefs() {
  std::array<CommonBelief, num_unknowns> all{};
  all[0] = {1.2, 0.3};
  const auto believe = [&](Overhead overhead, double mean, double deviation) {
    all[static_cast<std::size_t>(overhead) + 1] = {mean, deviation};
  };
  believe(Overhead::optimizer_step, 3e-3, 3e-3);
  believe(Overhead::module_call, 70e-6, 30e-6);
  believe(Overhead::gradient_hook, 57e-6, 30e-6);
  believe(Overhead::gathering_hook, 120e-6, 100e-6);
  believe(Overhead::sub_group, 50e-6, 100e-6);
  believe(Overhead::offload_copy, 100e-6, 200e-6);
  believe(Overhead::stage_2_byte, 0.2e-9, 0.2e-9);
  believe(Overhead::recompute, 0.1, 0.2);
  believe(Overhead::all_reduce_call, 500e-6, 500e-6);
  believe(Overhead::reduce_call, 500e-6, 500e-6);
  believe(Overhead::reduce_scatter_call, 1e-3, 1e-3);
  believe(Overhead::all_gather_call, 450e-6, 100e-6);
  believe(Overhead::all_gather_ahead, 250e-6, 60e-6);
  believe(Overhead::all_to_all_call, 500e-6, 500e-6);
  believe(Overhead::small_call_byte, 2e-9, 1.5e-9);
  believe(Overhead::communicated_byte, 1e-9, 1e-9);
  believe(Overhead::link_byte, 0, 1e-12);  // one host has no link
  return all;
}

/// What one of each unknown adds to a point's relative time where all factors are 1.
Eigen::VectorXd row_of(const CalibrationPoint& point) {
  Eigen::VectorXd row(num_unknowns);
  row[0] = point.measured_s;
  for (std::size_t each = 0; each < num_overheads; ++each) row[each + 1] = point.overheads[each];
  return row / point.target_s;
}

/// Minimises x' left x / 2 - right' x with nothing below 0.
void descend(const Eigen::MatrixXd& left, const Eigen::VectorXd& right, Eigen::VectorXd& x) {
  for (int sweep = 0; sweep < 3000; ++sweep) {
    double change = 0;
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      const double better = std::max(0.0, x[i] + (right[i] - left.row(i).dot(x)) / left(i, i));
      change = std::max(change, std::abs(better - x[i]));
      x[i] = better;
    }
    if (change < 1e-9) break;
  }
}

/// The fit of one set of tables; unknowns are counted in their deviations.
class Fit {
 public:
  explicit Fit(const std::vector<std::vector<CalibrationPoint>>& tables)
      : tables_(tables), factors_(tables.size(), {1, 1, 1}), mean_(num_unknowns), unit_(mean_) {
    const auto believed = beliefs();
    for (int i = 0; i < num_unknowns; ++i) {
      unit_[i] = believed[static_cast<std::size_t>(i)].deviation;
      mean_[i] = believed[static_cast<std::size_t>(i)].mean / unit_[i];
    }
    x_ = mean_;
  }

  HierarchicalFit run() {
    for (int round = 0; round < num_rounds; ++round) {
      fit_common();
      for (std::size_t table = 0; table < tables_.size(); ++table) fit_factors(table);
      centre();
    }
    fit_common();
    return result();
  }

 private:
  /// The recompute's share is one of the scaled time: its column has the scale.
  [[nodiscard]] Eigen::VectorXd scaled_row(const CalibrationPoint& point, std::size_t table) const {
    Eigen::VectorXd row = row_of(point);
    constexpr int recompute = static_cast<int>(Overhead::recompute) + 1;
    row[recompute] *= point.measured_s * x_[0] * unit_[0];
    for (int i = 0; i < num_unknowns; ++i) row[i] *= unit_[i] * factors_[table][group_of(i)];
    return row;
  }

  void fit_common() {
    Eigen::MatrixXd left = Eigen::MatrixXd::Identity(num_unknowns, num_unknowns);
    Eigen::VectorXd right = mean_;
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      for (const CalibrationPoint& point : tables_[table]) {
        const Eigen::VectorXd row = scaled_row(point, table);
        left += row * row.transpose() / (noise * noise);
        right += row / (noise * noise);
      }
    }
    descend(left, right, x_);
  }

  void fit_factors(std::size_t table) {
    Eigen::MatrixXd left = Eigen::MatrixXd::Identity(Group::num_groups, Group::num_groups) /
                           (factor_deviation * factor_deviation);
    Eigen::VectorXd right = left.rowwise().sum();
    for (const CalibrationPoint& point : tables_[table]) {
      const Eigen::VectorXd parts = parts_of(point, table);
      left += parts * parts.transpose() / (noise * noise);
      right += parts / (noise * noise);
    }
    Eigen::VectorXd found = Eigen::VectorXd::Ones(Group::num_groups);
    descend(left, right, found);
    for (int group = 0; group < Group::num_groups; ++group) factors_[table][group] = found[group];
  }

  /// The parts of a point's relative time that the groups make, at factors of 1.
  [[nodiscard]] Eigen::VectorXd parts_of(const CalibrationPoint& point, std::size_t table) const {
    const Eigen::VectorXd row = scaled_row(point, table);
    Eigen::VectorXd parts = Eigen::VectorXd::Zero(Group::num_groups);
    for (int i = 0; i < num_unknowns; ++i) {
      const Group group = group_of(i);
      parts[group] += row[i] * x_[i] / factors_[table][group];
    }
    return parts;
  }

  /// The costs are those of the tables' middle: the factors' logarithms have the mean 0.
  void centre() {
    for (int group = 0; group < Group::num_groups; ++group) {
      double sum = 0;
      for (auto& factors : factors_) {
        factors[group] = std::max(factors[group], 1e-3);
        sum += std::log(factors[group]);
      }
      const double by = std::exp(sum / static_cast<double>(factors_.size()));
      for (auto& factors : factors_) factors[group] /= by;
    }
  }

  [[nodiscard]] HierarchicalFit result() const {
    HierarchicalFit fit;
    fit.common.scale.fill(x_[0] * unit_[0]);
    for (std::size_t each = 0; each < num_overheads; ++each) {
      const auto i = static_cast<Eigen::Index>(each + 1);
      fit.common.costs_s[each] = x_[i] * unit_[i];
    }
    fit.factors = factors_;
    for (int group = 0; group < Group::num_groups; ++group) {
      double squares = 0;
      for (const auto& factors : factors_) squares += std::pow(std::log(factors[group]), 2);
      fit.spread[static_cast<std::size_t>(group)] =
          std::sqrt(squares / static_cast<double>(factors_.size()));
    }
    fill_covariance(fit);
    return fit;
  }

  /// Of the unknowns beside the tables' factors, which are unknown, too (Laplace's approximation).
  void fill_covariance(HierarchicalFit& fit) const {
    const auto num_all =
        static_cast<Eigen::Index>(num_unknowns + Group::num_groups * tables_.size());
    Eigen::MatrixXd precision = Eigen::MatrixXd::Zero(num_all, num_all);
    precision.topLeftCorner(num_unknowns, num_unknowns).setIdentity();
    for (Eigen::Index i = num_unknowns; i < num_all; ++i)
      precision(i, i) = 1 / (factor_deviation * factor_deviation);
    double squares = 0, count = 0;
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      for (const CalibrationPoint& point : tables_[table]) {
        Eigen::VectorXd row = Eigen::VectorXd::Zero(num_all);
        row.head(num_unknowns) = scaled_row(point, table);
        const Eigen::VectorXd parts = parts_of(point, table);
        const auto first = static_cast<Eigen::Index>(num_unknowns + Group::num_groups * table);
        row.segment(first, Group::num_groups) = parts;
        precision += row * row.transpose() / (noise * noise);
        squares += std::pow(row.head(num_unknowns).dot(x_) - 1, 2);
        ++count;
      }
    }
    fit.error = std::sqrt(squares / count);
    const Eigen::MatrixXd all = precision.llt().solve(Eigen::MatrixXd::Identity(num_all, num_all)) *
                                std::max(1.0, std::pow(fit.error / noise, 2));
    Eigen::VectorXd units = unit_;
    units[0] /= x_[0] * unit_[0];  // relative
    fit.covariance =
        units.asDiagonal() * all.topLeftCorner(num_unknowns, num_unknowns) * units.asDiagonal();
  }

  const std::vector<std::vector<CalibrationPoint>>& tables_;
  std::vector<std::array<double, Group::num_groups>> factors_;
  Eigen::VectorXd mean_, unit_, x_;
};

}  // namespace

HierarchicalFit fit_hierarchy(const std::vector<std::vector<CalibrationPoint>>& tables) {
  require(!tables.empty() && std::ranges::none_of(tables, &std::vector<CalibrationPoint>::empty),
          "there is something to fit to");
  return Fit(tables).run();
}

}  // namespace dstune::bench
