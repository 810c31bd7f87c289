#include "run_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// The prior of a deviation: its logarithm is normal.
struct Scale {
  double usual, freedom;
};
/// Keeps runs apart that began at once.
constexpr double nugget = 1e-3;

/// Values that a deviation is drawn from.
constexpr int num_levels = 32;
double square(double number) {
  return number * number;
}

/// The logarithm of a normal density, but for a constant.
double log_normal(double distance, double variance) {
  return -(std::log(variance) + square(distance) / variance) / 2;
}

double log_prior(double deviation, const Scale& scale) {
  return log_normal(std::log(deviation / scale.usual), square(scale.freedom));
}

class Sampler {
 public:
  Sampler(const std::vector<ModelledRun>& runs, const std::vector<std::optional<double>>& predicted,
          const PredictionErrors& errors, const RunModelOptions& options)
      : policy_(*options.policy),
        runs_(runs),
        predicted_(predicted),
        errors_(errors),
        random_(options.seed),
        num_runs_(runs.size()),
        prediction_scale_{policy_.prediction_deviation, policy_.prediction_freedom},
        disturbed_(runs.size(), false),
        runs_of_(predicted.size()),
        tail_weights_(predicted.size(), 1),
        is_wrong_(predicted.size(), false),
        members_(VectorXd::Zero(predicted.size())),
        drift_(VectorXd::Zero(num_runs_)) {
    double sum = 0;
    for (const ModelledRun& run : runs) {
      sum += run.log_speed;
      has_alone_ |= run.is_alone;
      has_neighbours_ |= !run.is_alone;
    }
    middle_ = sum / static_cast<double>(runs.size());
    for (Index index = 0; index < num_runs_; ++index) runs_of_[runs_[index].place].push_back(index);
    if (errors.count >= policy_.enough_predictions) {
      // It was estimated from so many.
      prediction_scale_ = {std::clamp(errors.deviation, level(0), level(num_levels - 1)),
                           1 / std::sqrt(static_cast<double>(errors.count))};
    }
    prediction_deviation_ = prediction_scale_.usual;
    shift_ = errors.center;
    lay_out_drift();
  }

  /// One sweep over all that is unknown.
  void sweep() {
    draw_what_is_wrong();
    draw_speeds();
    draw_neighbour();
    draw_slowdown();
    draw_run_deviation();
    draw_drift_scale();
    draw_predictions();
  }

  [[nodiscard]] const VectorXd& members() const { return members_; }
  [[nodiscard]] const VectorXd& expected() const { return expected_; }
  [[nodiscard]] double run_deviation() const { return run_deviation_; }
  [[nodiscard]] double drift_deviation() const { return drift_deviation_; }
  [[nodiscard]] double num_disturbed() const {
    return static_cast<double>(std::ranges::count(disturbed_, true));
  }

 private:
  /// The inverse of the correlations, and their determinant, for each length of the drift.
  struct DriftShape {
    MatrixXd inverse;
    double log_determinant = 0;
  };

  void lay_out_drift() {
    std::vector<double> times;
    for (const ModelledRun& run : runs_) times.push_back(run.at_s);
    std::ranges::sort(times);
    const double between =
        std::max((times.back() - times.front()) / static_cast<double>(times.size()), 1e-9);
    for (const double length : policy_.drift_lengths) {
      MatrixXd correlation(num_runs_, num_runs_);
      for (Index one = 0; one < num_runs_; ++one)
        for (Index other = 0; other < num_runs_; ++other)
          correlation(one, other) =
              std::exp(-std::abs(runs_[one].at_s - runs_[other].at_s) / (length * between));
      correlation.diagonal().array() += nugget;
      const Eigen::LLT<MatrixXd> factor(correlation);
      DriftShape& shape = drift_shapes_.emplace_back();
      shape.inverse = factor.solve(MatrixXd::Identity(num_runs_, num_runs_));
      shape.log_determinant = 2 * factor.matrixLLT().diagonal().array().log().sum();
    }
  }

  [[nodiscard]] double level(int index) const {
    const double lowest = policy_.lowest_deviation;
    return lowest * std::pow(policy_.highest_deviation / lowest, index / (num_levels - 1.0));
  }
  [[nodiscard]] double normal() { return normal_(random_); }
  [[nodiscard]] double gamma(double shape) {
    return std::gamma_distribution<double>(shape)(random_);
  }
  /// One of several, by the logarithms of their weights.
  template <std::size_t size>
  std::size_t choose(const std::array<double, size>& log_weights) {
    const double most = *std::ranges::max_element(log_weights);
    std::array<double, size> sums{};
    double sum = 0;
    for (std::size_t each = 0; each < size; ++each)
      sums[each] = sum += std::exp(log_weights[each] - most);
    const double drawn = sum * std::uniform_real_distribution<double>()(random_);
    return static_cast<std::size_t>(std::ranges::lower_bound(sums, drawn) - sums.begin());
  }
  template <class LogWeight>
  double choose_level(const LogWeight& log_weight) {
    std::array<double, num_levels> log_weights{};
    for (int each = 0; each < num_levels; ++each)
      log_weights[static_cast<std::size_t>(each)] = log_weight(level(each));
    return level(static_cast<int>(choose(log_weights)));
  }

  [[nodiscard]] double variance(Index index, bool is_disturbed, double run_deviation) const {
    const double undisturbed = square(runs_[index].error) + square(run_deviation);
    return is_disturbed ? undisturbed + square(slowdown_ / 2) : undisturbed;
  }
  [[nodiscard]] double variance(Index index) const {
    return variance(index, disturbed_[index], run_deviation_);
  }
  /// The prior of a member's speed, without its runs.
  struct Prior {
    double mean, variance;
  };
  [[nodiscard]] Prior prior_of(std::size_t place) const {
    if (!predicted_[place]) return {middle_, square(policy_.unknown_deviation)};
    return {*predicted_[place] + shift_,
            is_wrong_[place] ? square(policy_.wrong_deviation)
                             : square(prediction_deviation_) / tail_weights_[place]};
  }

  /// A run's speed for its member and the drift, without the effects that are known to have slowed
  /// it.
  [[nodiscard]] double cleared(Index index) const {
    return runs_[index].log_speed + (disturbed_[index] ? slowdown_ : 0) -
           (runs_[index].is_alone ? 0 : neighbour_);
  }
  [[nodiscard]] double residual(Index index) const {
    return runs_[index].log_speed - members_[runs_[index].place] - drift_[index] -
           (runs_[index].is_alone ? 0 : neighbour_);
  }

  /// How likely a member's runs are, whatever its speed is; a logarithm.
  [[nodiscard]] double log_likelihood(std::size_t place) const {
    const Prior prior = prior_of(place);
    double weight = 1 / prior.variance, sum = prior.mean * weight, result = 0;
    for (const Index index : runs_of_[place]) {
      const double measured = cleared(index) - drift_[index];
      result += log_normal(measured - sum / weight, 1 / weight + variance(index));
      weight += 1 / variance(index);
      sum += measured / variance(index);
    }
    return result;
  }

  /// A run that is far from its prediction was disturbed, or the prediction is wrong. Both are
  /// drawn together, and for any speed of the member: one after the other they would never change.
  void draw_what_is_wrong() {
    const double log_odds_disturbed = std::log(disturbed_share_ / (1 - disturbed_share_));
    const double log_odds_wrong = std::log(wrong_share_ / (1 - wrong_share_));
    for (Index index = 0; index < num_runs_; ++index) {
      const std::size_t place = runs_[index].place;
      const std::size_t num_cases = predicted_[place] ? 4 : 2;
      std::array<double, 4> log_weights{};
      log_weights.fill(-std::numeric_limits<double>::infinity());
      const auto take = [&](std::size_t which) {
        disturbed_[index] = which % 2 == 1;
        is_wrong_[place] = which / 2 == 1;
      };
      for (std::size_t which = 0; which < num_cases; ++which) {
        take(which);
        log_weights[which] = log_likelihood(place) + (disturbed_[index] ? log_odds_disturbed : 0) +
                             (is_wrong_[place] ? log_odds_wrong : 0);
      }
      take(choose(log_weights));
    }
  }

  /// Members and drift together: members are eliminated, so that a matrix of the runs is left.
  void draw_speeds() {
    const Index num_members = members_.size();
    VectorXd weights(num_members), sums(num_members);
    for (Index place = 0; place < num_members; ++place) {
      const auto [mean, variance] = prior_of(place);
      weights[place] = 1 / variance;
      sums[place] = mean / variance;
    }
    VectorXd precisions(num_runs_);
    for (Index index = 0; index < num_runs_; ++index) {
      const std::size_t place = runs_[index].place;
      precisions[index] = 1 / variance(index);
      weights[place] += precisions[index];
      sums[place] += precisions[index] * cleared(index);
    }
    MatrixXd matrix = drift_shapes_[drift_length_].inverse / square(drift_deviation_);
    matrix.diagonal() += precisions;
    VectorXd right(num_runs_);
    for (Index one = 0; one < num_runs_; ++one) {
      const std::size_t place = runs_[one].place;
      right[one] = precisions[one] * (cleared(one) - sums[place] / weights[place]);
      for (Index other = 0; other < num_runs_; ++other)
        if (runs_[other].place == runs_[one].place)
          matrix(one, other) -= precisions[one] * precisions[other] / weights[place];
    }
    const Eigen::LLT<MatrixXd> factor(matrix);
    require(factor.info() == Eigen::Success, "the precision of all runs is positive definite");
    const VectorXd expected_drift = factor.solve(right);
    VectorXd noise(num_runs_);
    for (double& each : noise) each = normal();
    drift_ = expected_drift + factor.matrixU().solve(noise);
    expected_ = sums;
    members_ = sums;
    for (Index index = 0; index < num_runs_; ++index) {
      const std::size_t place = runs_[index].place;
      expected_[place] -= precisions[index] * expected_drift[index];
      members_[place] -= precisions[index] * drift_[index];
    }
    expected_.array() /= weights.array();
    for (Index place = 0; place < num_members; ++place)
      members_[place] = members_[place] / weights[place] + normal() / std::sqrt(weights[place]);
  }

  /// Only where some ran alone and some did not is it told from the speeds.
  void draw_neighbour() {
    if (!has_alone_ || !has_neighbours_) return;
    double weight = 1 / square(policy_.neighbour_deviation), sum = 0;
    for (Index index = 0; index < num_runs_; ++index) {
      if (runs_[index].is_alone) continue;
      weight += 1 / variance(index);
      const double slowed = disturbed_[index] ? slowdown_ : 0;
      sum += (residual(index) + neighbour_ + slowed) / variance(index);
    }
    neighbour_ = sum / weight + normal() / std::sqrt(weight);
  }

  /// Draws a share of which `num` in `of` were seen. The prior counts as `before` more, one of them
  /// in the share.
  [[nodiscard]] double draw_share(double num, double of, double before) {
    const double yes = gamma(1 + num);
    const double no = gamma(before - 1 + of - num);
    return std::clamp(yes / (yes + no), 1e-6, policy_.most_disturbed);
  }

  void draw_slowdown() {
    disturbed_share_ =
        draw_share(num_disturbed(), static_cast<double>(num_runs_), policy_.runs_seen_before);
    const auto& slowdowns = policy_.slowdowns;
    std::array<double, decltype(Policy::Runs::slowdowns){}.size()> log_weights{};
    for (std::size_t each = 0; each < slowdowns.size(); ++each) {
      slowdown_ = slowdowns[each];
      for (Index index = 0; index < num_runs_; ++index)
        if (disturbed_[index])
          log_weights[each] += log_normal(residual(index) + slowdown_, variance(index));
    }
    slowdown_ = slowdowns[choose(log_weights)];
  }

  void draw_run_deviation() {
    run_deviation_ = choose_level([&](double deviation) {
      double sum = log_prior(deviation, {policy_.run_deviation, policy_.run_freedom});
      for (Index index = 0; index < num_runs_; ++index) {
        const bool is_disturbed = disturbed_[index];
        sum += log_normal(residual(index) + (is_disturbed ? slowdown_ : 0),
                          variance(index, is_disturbed, deviation));
      }
      return sum;
    });
  }

  void draw_drift_scale() {
    std::array<double, decltype(Policy::Runs::drift_lengths){}.size()> log_weights{};
    for (std::size_t each = 0; each < log_weights.size(); ++each)
      log_weights[each] =
          -(drift_shapes_[each].log_determinant +
            drift_.dot(drift_shapes_[each].inverse * drift_) / square(drift_deviation_)) /
          2;
    drift_length_ = choose(log_weights);
    const double squares = drift_.dot(drift_shapes_[drift_length_].inverse * drift_);
    drift_deviation_ = choose_level([&](double deviation) {
      return log_prior(deviation, {policy_.drift_deviation, policy_.drift_freedom}) -
             static_cast<double>(num_runs_) * std::log(deviation) - squares / square(deviation) / 2;
    });
  }

  /// How far predictions are off, in common, usually, and each.
  void draw_predictions() {
    double weight = 0, sum = 0;
    if (errors_.count > 0) {
      weight = static_cast<double>(errors_.count) / square(prediction_scale_.usual);
      sum = weight * errors_.center;
    }
    const double tails = policy_.tails;
    std::vector<double> squares;
    double num_predicted = 0, num_wrong = 0;
    for (std::size_t place = 0; place < predicted_.size(); ++place) {
      if (!predicted_[place]) continue;
      ++num_predicted;
      if (is_wrong_[place]) {
        ++num_wrong;
        tail_weights_[place] = gamma(tails / 2) / (tails / 2);
        continue;
      }
      const double off = members_[place] - *predicted_[place];
      const double own = tail_weights_[place] / square(prediction_deviation_);
      // Those of the members are among the errors of all.
      if (errors_.count == 0) {
        weight += own;
        sum += own * off;
      }
      const double apart = square((off - shift_) / prediction_deviation_);
      tail_weights_[place] = gamma((tails + 1) / 2) / ((tails + apart) / 2);
      squares.push_back(tail_weights_[place] * square(off - shift_));
    }
    wrong_share_ = draw_share(num_wrong, num_predicted, policy_.predictions_seen_before);
    if (squares.empty()) return;
    shift_ = sum / weight + normal() / std::sqrt(weight);
    prediction_deviation_ = choose_level([&](double deviation) {
      double log_weight = log_prior(deviation, prediction_scale_);
      for (const double each : squares)
        log_weight -= std::log(deviation) + each / square(deviation) / 2;
      return log_weight;
    });
  }

  const Policy::Runs& policy_;
  const std::vector<ModelledRun>& runs_;
  const std::vector<std::optional<double>>& predicted_;
  PredictionErrors errors_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  Index num_runs_;
  double middle_ = 0;
  bool has_alone_ = false, has_neighbours_ = false;
  std::vector<DriftShape> drift_shapes_;
  Scale prediction_scale_;

  double run_deviation_ = policy_.run_deviation;
  double drift_deviation_ = policy_.drift_deviation;
  std::size_t drift_length_ = policy_.drift_lengths.size() / 2;
  double neighbour_ = 0;  ///< what one does to the logarithm of a speed
  std::vector<bool> disturbed_;
  double disturbed_share_ = 1 / policy_.runs_seen_before;
  double slowdown_ = policy_.slowdowns[policy_.slowdowns.size() / 2];
  double shift_ = 0;  ///< of all predictions
  double prediction_deviation_ = policy_.prediction_deviation;
  std::vector<std::vector<Index>> runs_of_;  ///< each member
  std::vector<double> tail_weights_;         ///< of each member's prediction, as of Student's t
  std::vector<bool> is_wrong_;               ///< each member's prediction
  double wrong_share_ = 1 / policy_.predictions_seen_before;
  VectorXd members_, drift_, expected_;
};

}  // namespace

RunBeliefs believe_runs(const std::vector<ModelledRun>& runs,
                        const std::vector<std::optional<double>>& predicted,
                        const PredictionErrors& errors, const RunModelOptions& options) {
  RunBeliefs beliefs;
  if (runs.empty()) return beliefs;
  Sampler sampler(runs, predicted, errors, options);
  for (int each = 0; each < options.policy->num_forgotten; ++each) sampler.sweep();
  beliefs.draws.resize(predicted.size());
  VectorXd sum = VectorXd::Zero(predicted.size());
  for (int each = 0; each < options.num_draws; ++each) {
    sampler.sweep();
    sum += sampler.expected();
    for (std::size_t place = 0; place < predicted.size(); ++place)
      beliefs.draws[place].push_back(sampler.members()[place]);
    beliefs.run_deviation += sampler.run_deviation() / options.num_draws;
    beliefs.drift_deviation += sampler.drift_deviation() / options.num_draws;
    beliefs.disturbed_runs += sampler.num_disturbed() / options.num_draws;
  }
  sum /= options.num_draws;
  beliefs.log_speeds.assign(sum.begin(), sum.end());
  return beliefs;
}

}  // namespace dstune
