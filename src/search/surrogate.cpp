#include "surrogate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Keeps matrices positive definite where points coincide.
constexpr double jitter = 1e-9;
/// The degrees of Student's t, where tails are heavy: heavy_chance_below() is its formula.
constexpr int heavy_degrees = 4;

using Hyperparameter = Policy::Surrogate::Hyperparameter;
/// Hyperparameters that do not belong to a knob or a feature.
enum HyperparameterIndex : Index {
  linear,
  smooth,
  length,
  own,
  slope,
  pair,
  noise,
  shape_pair,
  twofold,
  threefold,
  num_common
};

/// The places of points, and how much values of a knob resemble each other. Nothing of it is
/// learnt.
class Geometry {
 public:
  Geometry(const Points& points, std::span<const double> predicted,
           std::span<const std::vector<double>> of_unknowns, const Policy::Surrogate& chosen)
      : policy(&chosen) {
    const Index num_features = points.num_features;
    const Eigen::Map<const MatrixXd> given(points.features.data(), num_features, points.size);
    features = given.array() - 0.5;
    for (const auto& each : points.pairs) {
      const bool is_of_shape =
          std::ranges::find(points.of_shape, each.first) != points.of_shape.end();
      (is_of_shape ? shape_pairs : pairs).push_back(each);
    }
    knobs = knob_values(points);
    for (const KnobValues& knob : knobs) resemblance.push_back(resemblance_of(knob));
    std::size_t num_unknowns = 0;
    for (const auto& of_point : of_unknowns) num_unknowns = std::max(num_unknowns, of_point.size());
    if (num_unknowns > 0) unknowns.setZero(num_unknowns, features.cols());
    for (std::size_t point = 0; point < of_unknowns.size(); ++point)
      for (std::size_t unknown = 0; unknown < of_unknowns[point].size(); ++unknown)
        unknowns(unknown, point) = of_unknowns[point][unknown];
    if (predicted.empty()) return;
    predictions = Eigen::Map<const VectorXd>(predicted.data(), predicted.size());
    is_informed = predictions.minCoeff() < predictions.maxCoeff();
    predictions.array() -= predictions.mean();
  }

  const Policy::Surrogate* policy;
  MatrixXd features;  ///< [feature][point], from −½ to ½
  std::vector<KnobValues> knobs;
  std::vector<MatrixXd> resemblance;  ///< [knob](value, value)
  std::vector<std::pair<std::size_t, std::size_t>> pairs, shape_pairs;
  bool is_informed = false;  ///< predictions tell points apart
  VectorXd predictions;      ///< less their mean; empty where nothing is predicted
  MatrixXd unknowns;         ///< [unknown][point]; empty where there are none

 private:
  [[nodiscard]] MatrixXd resemblance_of(const KnobValues& knob) const {
    MatrixXd of_values(knob.size(), knob.size());
    for (int row = 0; row < knob.size(); ++row)
      for (int column = 0; column < knob.size(); ++column) {
        const auto& one = knob.values[row];
        const auto& other = knob.values[column];
        double distance = 0;
        for (std::size_t each = 0; each < one.size(); ++each)
          distance += std::abs(one[each] - other[each]);
        of_values(row, column) = std::exp(-policy->forgetting * distance);
      }
    return of_values;
  }
};

using Places = std::vector<Index>;

MatrixXd columns_of(const MatrixXd& matrix, const Places& places) {
  return matrix(Eigen::seqN(0, matrix.rows()), places);
}

/// The covariances that hyperparameters give.
class Kernel {
 public:
  Kernel(const Geometry& geometry, const VectorXd& hyperparameters)
      : geometry_(&geometry),
        linear_variance_(std::exp(2 * hyperparameters[linear])),
        smooth_variance_(std::exp(2 * hyperparameters[smooth])),
        own_variance_(std::exp(2 * hyperparameters[own])),
        slope_variance_(std::exp(2 * hyperparameters[slope])),
        pair_variance_(std::exp(2 * hyperparameters[pair])),
        shape_pair_variance_(std::exp(2 * hyperparameters[shape_pair])),
        twofold_(geometry.is_informed ? 0 : std::exp(2 * hyperparameters[twofold])),
        threefold_(geometry.is_informed ? 0 : std::exp(2 * hyperparameters[threefold])),
        length_(std::exp(hyperparameters[length])),
        noise_scale_(std::exp(hyperparameters[noise])) {
    const Index num_knobs = geometry.resemblance.size();
    knob_variances_ = (2 * hyperparameters.segment(num_common, num_knobs)).array().exp();
    scaled_ =
        (-hyperparameters.tail(geometry.features.rows())).array().exp().matrix().asDiagonal() *
        geometry.features;
  }

  [[nodiscard]] static VectorXd starts(const Geometry& geometry) {
    VectorXd all(size(geometry));
    for (Index parameter = 0; parameter < all.size(); ++parameter)
      all[parameter] = prior_of(geometry, parameter).start;
    return all;
  }
  [[nodiscard]] static const Hyperparameter& prior_of(const Geometry& geometry, Index parameter) {
    const Policy::Surrogate& policy = *geometry.policy;
    const std::array<const Hyperparameter*, num_common> common = {
        &policy.linear,  &policy.smooth,
        &policy.length,  &policy.own,
        &policy.slope,   &policy.pair,
        &policy.noise,   geometry.is_informed ? &policy.shape_pair : &policy.shape_pair_unpredicted,
        &policy.twofold, &policy.threefold};
    if (parameter < num_common) return *common[parameter];
    const bool is_knob = parameter - num_common < std::ssize(geometry.resemblance);
    return is_knob ? policy.knob : policy.feature;
  }

  /// Tells whether any covariance depends on it.
  [[nodiscard]] static bool is_used(const Geometry& geometry, Index parameter) {
    if (parameter == shape_pair) return !geometry.shape_pairs.empty();
    return !geometry.is_informed || (parameter != twofold && parameter != threefold);
  }

  /// Covariances without the part that is each point's own.
  [[nodiscard]] MatrixXd between(const Places& rows, const Places& columns) const {
    const MatrixXd left = columns_of(scaled_, rows), right = columns_of(scaled_, columns);
    const MatrixXd products = left.transpose() * right;
    MatrixXd result = -2 * products;
    result.colwise() += left.colwise().squaredNorm().transpose();
    result.rowwise() += right.colwise().squaredNorm();
    result = (result.array().max(0.0) * (-0.5 / (length_ * length_))).exp() * smooth_variance_ +
             linear_variance_ * products.array() + geometry_->policy->constant_variance;
    const Geometry& geometry = *geometry_;
    for (Index column = 0; column < result.cols(); ++column)
      for (Index row = 0; row < result.rows(); ++row)
        result(row, column) += of_values(rows[row], columns[column]);
    if (geometry.predictions.size() > 0)
      result +=
          slope_variance_ * geometry.predictions(rows) * geometry.predictions(columns).transpose();
    if (geometry.unknowns.size() > 0)
      result +=
          columns_of(geometry.unknowns, rows).transpose() * columns_of(geometry.unknowns, columns);
    return result;
  }
  /// The variances of points, with the part that is each point's own.
  [[nodiscard]] VectorXd variances() const {
    const VectorXd squares = scaled_.colwise().squaredNorm();
    VectorXd result = (linear_variance_ * squares).array() + smooth_variance_ +
                      geometry_->policy->constant_variance + own_variance_ +
                      of_alike([](std::size_t) { return 1.0; });
    if (geometry_->predictions.size() > 0)
      result.array() += slope_variance_ * geometry_->predictions.array().square();
    if (geometry_->unknowns.size() > 0)
      result += geometry_->unknowns.colwise().squaredNorm().transpose();
    return result;
  }
  [[nodiscard]] double own_variance() const { return own_variance_; }
  [[nodiscard]] double noise_scale() const { return noise_scale_; }

 private:
  [[nodiscard]] static Index size(const Geometry& geometry) {
    return num_common + geometry.resemblance.size() + geometry.features.rows();
  }
  /// How much the values of two points' knobs make them resemble each other.
  [[nodiscard]] double of_values(std::size_t one, std::size_t other) const {
    const Geometry& geometry = *geometry_;
    const auto resemblance = [&](std::size_t knob) {
      return geometry.resemblance[knob](geometry.knobs[knob].value_of[one],
                                        geometry.knobs[knob].value_of[other]);
    };
    return of_alike(resemblance);
  }
  /// `resemblance`: of two points' values of a knob.
  template <class Resemblance>
  [[nodiscard]] double of_alike(const Resemblance& resemblance) const {
    const Geometry& geometry = *geometry_;
    double sum = 0, squares = 0, cubes = 0;
    for (std::size_t knob = 0; knob < geometry.resemblance.size(); ++knob) {
      const double of_knob = knob_variances_[knob] * resemblance(knob);
      sum += of_knob;
      squares += of_knob * of_knob;
      cubes += of_knob * of_knob * of_knob;
    }
    // All products of two, and of three, by their sums of powers (Newton and Girard).
    double result = sum + twofold_ * (sum * sum - squares) / 2 +
                    threefold_ * (sum * sum * sum - 3 * sum * squares + 2 * cubes) / 6;
    for (const auto& [first, second] : geometry.pairs)
      result += pair_variance_ * resemblance(first) * resemblance(second);
    for (const auto& [first, second] : geometry.shape_pairs)
      result += shape_pair_variance_ * resemblance(first) * resemblance(second);
    return result;
  }

  const Geometry* geometry_;
  double linear_variance_, smooth_variance_, own_variance_, slope_variance_, pair_variance_,
      shape_pair_variance_, twofold_, threefold_, length_, noise_scale_;
  VectorXd knob_variances_;
  MatrixXd scaled_;
};

Places places_of(std::span<const Sample> samples) {
  Places places;
  for (const Sample& sample : samples) places.push_back(sample.point);
  return places;
}

VectorXd values_of(std::span<const Sample> samples) {
  VectorXd values(samples.size());
  for (Index i = 0; i < values.size(); ++i) values[i] = samples[i].value;
  return values;
}

/// Covariance of the samples, with their noise.
MatrixXd covariance(const Kernel& kernel, std::span<const Sample> samples) {
  const Places places = places_of(samples);
  MatrixXd result = kernel.between(places, places);
  for (Index i = 0; i < result.rows(); ++i) {
    const Sample& one = samples[i];
    result(i, i) += std::pow(kernel.noise_scale() * one.noise, 2) + jitter;
    for (Index j = 0; j < result.cols(); ++j)
      if (samples[j].point == one.point) result(i, j) += kernel.own_variance();
  }
  return result;
}

double normal_chance_below(double z) {
  return 0.5 * std::erfc(-z / std::numbers::sqrt2);
}

/// The distribution function of Student's t with four degrees of freedom.
double heavy_chance_below(double t) {
  const double share = t / std::sqrt(4 + t * t);
  return 0.5 + 0.75 * share - 0.25 * share * share * share;
}

/// The normal number that is as rare as this one of Student's t. It is the smaller one.
double as_normal(double t) {
  const double wanted = heavy_chance_below(-std::abs(t));
  double least = 0, most = std::abs(t);
  while (most - least > 1e-6) {
    const double middle = (least + most) / 2;
    (normal_chance_below(-middle) > wanted ? least : most) = middle;
  }
  return std::copysign(most, t);
}

/// A normal number of its own making: std::normal_distribution differs between libraries.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : bits_(seed) {}
  double operator()() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  std::mt19937_64 bits_;
};

}  // namespace

struct Surrogate::State {
  Geometry geometry;
  VectorXd hyperparameters{};
  Places all{};  ///< points
  std::optional<Kernel> kernel{};
  MatrixXd whitened{};  ///< [sample][point]: L⁻¹ of the covariances between samples and points
  VectorXd mean{}, variance{};
  double inflation = 1;  ///< of variances, as samples say of each other
  double scale = 1;      ///< of deviations, as the record says
  bool has_heavy_tails = false;

  [[nodiscard]] Posterior posterior(double of_mean, double of_variance) const {
    return {of_mean, scale * std::sqrt(std::max(0.0, of_variance) * inflation), has_heavy_tails};
  }
  [[nodiscard]] double covariance_between(Index one, Index other) const {
    double before = kernel->between({one}, {other})(0, 0);
    if (one == other) before += kernel->own_variance();
    return before - whitened.col(one).dot(whitened.col(other));
  }

  /// How likely the samples are under the hyperparameters, and these themselves; a logarithm.
  [[nodiscard]] double likelihood(const VectorXd& parameters, std::span<const Sample> samples,
                                  const VectorXd& values) const {
    const Eigen::LLT<MatrixXd> factor(covariance(Kernel(geometry, parameters), samples));
    if (factor.info() != Eigen::Success) return -std::numeric_limits<double>::infinity();
    const VectorXd white = factor.matrixL().solve(values);
    const MatrixXd& lower = factor.matrixLLT();
    double result = -0.5 * white.squaredNorm() - lower.diagonal().array().log().sum();
    for (Index parameter = 0; parameter < parameters.size(); ++parameter) {
      const auto& [start, freedom] = Kernel::prior_of(geometry, parameter);
      const double away = (parameters[parameter] - start) / freedom;
      result -= 0.5 * away * away;
    }
    return result;
  }
};

Surrogate::Surrogate(const Points& points, std::span<const double> predicted,
                     std::span<const std::vector<double>> unknowns, const Policy::Surrogate& policy)
    : state_(std::make_unique<State>(
          State{.geometry = Geometry(points, predicted, unknowns, policy)})) {
  state_->hyperparameters = Kernel::starts(state_->geometry);
  state_->all.resize(points.size);
  std::iota(state_->all.begin(), state_->all.end(), Index{0});
}

Surrogate::~Surrogate() = default;

void Surrogate::learn(std::span<const Sample> samples) {
  const VectorXd values = values_of(samples);
  VectorXd& hyperparameters = state_->hyperparameters;
  double best = state_->likelihood(hyperparameters, samples, values);
  // Uphill along one parameter after the other, in ever smaller steps.
  for (const double stride : {1.0, 0.5, 0.25}) {
    for (Index parameter = 0; parameter < hyperparameters.size(); ++parameter) {
      if (!Kernel::is_used(state_->geometry, parameter)) continue;
      for (const double direction : {stride, -stride}) {
        VectorXd tried = hyperparameters;
        tried[parameter] += direction;
        const double likelihood = state_->likelihood(tried, samples, values);
        if (likelihood <= best) continue;
        best = likelihood;
        hyperparameters = tried;
        break;
      }
    }
  }
}

void Surrogate::condition(std::span<const Sample> samples) {
  require(!samples.empty(), "something to learn from");
  State& state = *state_;
  const Kernel& kernel = state.kernel.emplace(state.geometry, state.hyperparameters);
  const Eigen::LLT<MatrixXd> factor(covariance(kernel, samples));
  MatrixXd cross = kernel.between(places_of(samples), state.all);
  for (Index i = 0; i < cross.rows(); ++i) cross(i, samples[i].point) += kernel.own_variance();
  const VectorXd values = values_of(samples);
  const VectorXd weights = factor.solve(values);
  state.mean = cross.transpose() * weights;
  state.whitened = factor.matrixL().solve(cross);
  state.variance = kernel.variances() - state.whitened.colwise().squaredNorm().transpose();
  // Each sample against what the others say of it: where it is further off than they admit, all
  // posteriors are less certain.
  const MatrixXd inverse = factor.solve(MatrixXd::Identity(values.size(), values.size()));
  const double squares = (weights.array().square() / inverse.diagonal().array()).sum();
  const double prior_observations = state.geometry.policy->prior_observations;
  state.inflation = std::max(1.0, (squares + prior_observations) /
                                      (static_cast<double>(values.size()) + prior_observations));
}

double Surrogate::noise_scale() const {
  return state_->kernel ? state_->kernel->noise_scale() : 1;
}

void Surrogate::trust(double scale, bool has_heavy_tails) {
  state_->scale = scale;
  state_->has_heavy_tails = has_heavy_tails;
}

Posterior Surrogate::at(std::size_t point) const {
  return state_->posterior(state_->mean[point], state_->variance[point]);
}

Posterior Surrogate::difference(std::size_t point, std::size_t other) const {
  const double variance = state_->variance[point] + state_->variance[other] -
                          2 * state_->covariance_between(point, other);
  return state_->posterior(state_->mean[point] - state_->mean[other], variance);
}

double Surrogate::chance_of_any(std::span<const Challenger> challengers, std::size_t other,
                                std::uint64_t seed, int num_draws) const {
  if (challengers.empty()) return 0;
  const State& state = *state_;
  const Index count = challengers.size();
  // The last one is `other`.
  Places places;
  for (const Challenger& each : challengers) places.push_back(each.point);
  places.push_back(other);
  VectorXd mean = state.mean(places);
  for (Index i = 0; i < count; ++i) mean[i] += challengers[i].offset;
  const MatrixXd whitened = columns_of(state.whitened, places);
  MatrixXd joint = state.kernel->between(places, places) - whitened.transpose() * whitened;
  joint.diagonal().array() += state.kernel->own_variance() + jitter;
  joint *= state.inflation * state.scale * state.scale;
  const MatrixXd lower = Eigen::LLT<MatrixXd>(joint).matrixL();
  Normal normal(seed);
  int above = 0;
  VectorXd draw(count + 1);
  for (int number = 0; number < num_draws; ++number) {
    for (double& each : draw) each = normal();
    double stretch = 1;
    if (state.has_heavy_tails) {
      double squares = 0;
      for (int degree = 0; degree < heavy_degrees; ++degree) squares += std::pow(normal(), 2);
      stretch = std::sqrt(heavy_degrees / squares);
    }
    const VectorXd correlated = lower.triangularView<Eigen::Lower>() * draw;
    const VectorXd values = mean + stretch * correlated;
    if (values.head(count).maxCoeff() > values[count]) ++above;
  }
  return static_cast<double>(above) / num_draws;
}

void TrackRecord::note(double error) {
  const double widened = error / scale();
  widened_.push_back(has_heavy_tails() ? as_normal(widened) : widened);
  errors_.push_back(error);
}

double TrackRecord::scale() const {
  // Only the most recent errors count: beliefs from before much was learnt say little of now.
  const std::size_t count = std::min(errors_.size(), policy_->recent_errors);
  double squares = policy_->prior_observations;
  for (std::size_t back = 1; back <= count; ++back)
    squares += std::pow(errors_[errors_.size() - back], 2);
  const double scale =
      std::sqrt(squares / (policy_->prior_observations + static_cast<double>(count)));
  return std::max(narrowest_, has_heavy_tails() ? scale * policy_->heavy_share : scale);
}

bool TrackRecord::has_heavy_tails() const {
  if (errors_.size() < policy_->enough_errors) return false;
  std::vector<double> sizes;
  for (const double error : errors_) sizes.push_back(std::abs(error));
  std::ranges::sort(sizes);
  // Half of a normal distribution is within 0.674 deviations, and of 100 numbers one beyond 2.6.
  return sizes.back() >
         policy_->heavy_ratio * std::max(policy_->least_median, sizes[sizes.size() / 2]);
}

bool TrackRecord::holds() const {
  if (widened_.size() < policy_->enough_errors) return false;
  double squares = 0;
  for (std::size_t back = 1; back <= policy_->enough_errors; ++back)
    squares += std::pow(widened_[widened_.size() - back], 2);
  return squares <= policy_->most_squares;
}

double TrackRecord::chance_unforeseen() const {
  return policy_->favourable_share / (static_cast<double>(errors_.size()) + 2);
}

double chance_above_zero(const Posterior& posterior) {
  if (posterior.deviation <= 0) return posterior.mean > 0 ? 1 : 0;
  const double z = posterior.mean / posterior.deviation;
  return posterior.has_heavy_tails ? heavy_chance_below(z) : normal_chance_below(z);
}

double expected_improvement(const Posterior& posterior) {
  if (posterior.deviation <= 0) return std::max(0.0, posterior.mean);
  const double z = posterior.mean / posterior.deviation;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
  return posterior.mean * chance_above_zero(posterior) + posterior.deviation * density;
}

}  // namespace dstune
