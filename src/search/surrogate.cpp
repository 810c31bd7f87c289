#include "surrogate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// The constant's variance: predictions may be off by any factor that is common to all.
constexpr double constant_variance = 1.0;
/// Keeps matrices positive definite where points coincide.
constexpr double jitter = 1e-9;
constexpr int num_draws = 2000;
/// Leave-one-out errors count as if so many that were just right were among them.
constexpr double prior_observations = 4;

/// What is learnt, as logarithms: where the search starts, and how freely it leaves from there.
struct Hyperparameter {
  double start, freedom;
};
enum HyperparameterIndex : Index { linear, smooth, length, own, first_feature };
constexpr std::array<Hyperparameter, first_feature> common = {{
    {-2.3, 1.5},  // linear: a feature is worth 10 % from one end to the other
    {-3.0, 1.2},  // smooth: 5 %
    {0.0, 0.7},   // length of the smooth part, in ranges of a feature
    {-4.0, 1.2},  // own: 2 %
}};
constexpr Hyperparameter of_feature{0.0, 1.0};  // what stretches it: where large, it is irrelevant

const Hyperparameter& prior_of(Index parameter) {
  return parameter < first_feature ? common[static_cast<std::size_t>(parameter)] : of_feature;
}

/// The covariances that hyperparameters give. Columns are points, rows features.
class Kernel {
 public:
  explicit Kernel(const VectorXd& hyperparameters)
      : linear_variance_(std::exp(2 * hyperparameters[linear])),
        smooth_variance_(std::exp(2 * hyperparameters[smooth])),
        own_variance_(std::exp(2 * hyperparameters[own])),
        length_(std::exp(hyperparameters[length])),
        scales_((-hyperparameters.tail(hyperparameters.size() - first_feature)).array().exp()) {}

  [[nodiscard]] MatrixXd scaled(const MatrixXd& columns) const {
    return scales_.asDiagonal() * columns;
  }
  /// Between scaled columns, without what is a point's own.
  [[nodiscard]] MatrixXd between(const MatrixXd& rows, const MatrixXd& columns) const {
    const MatrixXd products = rows.transpose() * columns;
    MatrixXd result = -2 * products;
    result.colwise() += rows.colwise().squaredNorm().transpose();
    result.rowwise() += columns.colwise().squaredNorm();
    result = (result.array().max(0.0) * (-0.5 / (length_ * length_))).exp() * smooth_variance_ +
             linear_variance_ * products.array() + constant_variance;
    return result;
  }
  /// Of scaled columns, with what is a point's own.
  [[nodiscard]] VectorXd variances(const MatrixXd& columns) const {
    const VectorXd squares = columns.colwise().squaredNorm();
    return (linear_variance_ * squares).array() + smooth_variance_ + constant_variance +
           own_variance_;
  }
  [[nodiscard]] double own_variance() const { return own_variance_; }

 private:
  double linear_variance_, smooth_variance_, own_variance_, length_;
  VectorXd scales_;
};

/// Of all columns those of the samples.
MatrixXd columns_of(const MatrixXd& features, std::span<const Sample> samples) {
  MatrixXd columns(features.rows(), static_cast<Index>(samples.size()));
  for (Index column = 0; column < columns.cols(); ++column)
    columns.col(column) =
        features.col(static_cast<Index>(samples[static_cast<std::size_t>(column)].point));
  return columns;
}

VectorXd values_of(std::span<const Sample> samples) {
  VectorXd values(static_cast<Index>(samples.size()));
  for (Index i = 0; i < values.size(); ++i) values[i] = samples[static_cast<std::size_t>(i)].value;
  return values;
}

/// Of the samples, with their noise.
MatrixXd covariance(const Kernel& kernel, const MatrixXd& scaled, std::span<const Sample> samples) {
  MatrixXd result = kernel.between(scaled, scaled);
  for (Index i = 0; i < result.rows(); ++i) {
    const Sample& one = samples[static_cast<std::size_t>(i)];
    result(i, i) += one.noise * one.noise + jitter;
    for (Index j = 0; j < result.cols(); ++j)
      if (samples[static_cast<std::size_t>(j)].point == one.point)
        result(i, j) += kernel.own_variance();
  }
  return result;
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
  MatrixXd features;  ///< [feature][point], from −½ to ½
  VectorXd hyperparameters;
  MatrixXd scaled;  ///< features as learnt
  std::optional<Kernel> kernel;
  MatrixXd whitened;  ///< [sample][point]: L⁻¹ of the covariances between samples and points
  VectorXd mean, variance;
  double inflation = 1;  ///< of variances

  [[nodiscard]] double covariance_between(Index one, Index other) const {
    double before = kernel->between(scaled.col(one), scaled.col(other))(0, 0);
    if (one == other) before += kernel->own_variance();
    return before - whitened.col(one).dot(whitened.col(other));
  }

  /// How likely the samples are under the hyperparameters, and these themselves; a logarithm.
  [[nodiscard]] static double likelihood(const VectorXd& parameters, const MatrixXd& columns,
                                         std::span<const Sample> samples, const VectorXd& values) {
    const Kernel kernel(parameters);
    const Eigen::LLT<MatrixXd> factor(covariance(kernel, kernel.scaled(columns), samples));
    if (factor.info() != Eigen::Success) return -std::numeric_limits<double>::infinity();
    const VectorXd white = factor.matrixL().solve(values);
    const MatrixXd& lower = factor.matrixLLT();
    double result = -0.5 * white.squaredNorm() - lower.diagonal().array().log().sum();
    for (Index parameter = 0; parameter < parameters.size(); ++parameter) {
      const auto& [start, freedom] = prior_of(parameter);
      const double away = (parameters[parameter] - start) / freedom;
      result -= 0.5 * away * away;
    }
    return result;
  }
};

Surrogate::Surrogate(const Points& points) : state_(std::make_unique<State>()) {
  const auto num_features = static_cast<Index>(points.num_features);
  const Eigen::Map<const MatrixXd> features(points.features.data(), num_features,
                                            static_cast<Index>(points.size));
  state_->features = features.array() - 0.5;
  state_->hyperparameters.resize(first_feature + num_features);
  for (Index parameter = 0; parameter < state_->hyperparameters.size(); ++parameter)
    state_->hyperparameters[parameter] = prior_of(parameter).start;
}

Surrogate::~Surrogate() = default;

void Surrogate::learn(std::span<const Sample> samples) {
  const MatrixXd columns = columns_of(state_->features, samples);
  const VectorXd values = values_of(samples);
  VectorXd& hyperparameters = state_->hyperparameters;
  double best = State::likelihood(hyperparameters, columns, samples, values);
  // Uphill along one parameter after the other, in ever smaller steps.
  for (const double stride : {1.0, 0.5, 0.25}) {
    for (Index parameter = 0; parameter < hyperparameters.size(); ++parameter) {
      for (const double direction : {stride, -stride}) {
        VectorXd tried = hyperparameters;
        tried[parameter] += direction;
        const double likelihood = State::likelihood(tried, columns, samples, values);
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
  const Kernel& kernel = state.kernel.emplace(state.hyperparameters);
  state.scaled = kernel.scaled(state.features);
  const MatrixXd of_samples = kernel.scaled(columns_of(state_->features, samples));
  const Eigen::LLT<MatrixXd> factor(covariance(kernel, of_samples, samples));
  MatrixXd cross = kernel.between(of_samples, state.scaled);
  for (Index i = 0; i < cross.rows(); ++i)
    cross(i, static_cast<Index>(samples[static_cast<std::size_t>(i)].point)) +=
        kernel.own_variance();
  const VectorXd values = values_of(samples);
  const VectorXd weights = factor.solve(values);
  state.mean = cross.transpose() * weights;
  state.whitened = factor.matrixL().solve(cross);
  state.variance =
      kernel.variances(state.scaled) - state.whitened.colwise().squaredNorm().transpose();
  // Each sample against what the others say of it: where it is further off than they admit, all
  // posteriors are less certain.
  const MatrixXd inverse = factor.solve(MatrixXd::Identity(values.size(), values.size()));
  const double squares = (weights.array().square() / inverse.diagonal().array()).sum();
  state.inflation = std::max(1.0, (squares + prior_observations) /
                                      (static_cast<double>(values.size()) + prior_observations));
}

Posterior Surrogate::at(std::size_t point) const {
  const auto index = static_cast<Index>(point);
  return {state_->mean[index],
          std::sqrt(std::max(0.0, state_->variance[index]) * state_->inflation)};
}

Posterior Surrogate::difference(std::size_t point, std::size_t other) const {
  const auto one = static_cast<Index>(point);
  const auto two = static_cast<Index>(other);
  const double variance =
      state_->variance[one] + state_->variance[two] - 2 * state_->covariance_between(one, two);
  return {state_->mean[one] - state_->mean[two],
          std::sqrt(std::max(0.0, variance) * state_->inflation)};
}

double Surrogate::chance_of_any(std::span<const Challenger> challengers, std::size_t other,
                                std::uint64_t seed) const {
  if (challengers.empty()) return 0;
  const State& state = *state_;
  const auto count = static_cast<Index>(challengers.size());
  // The last column is `other`'s.
  MatrixXd scaled(state.scaled.rows(), count + 1);
  MatrixXd whitened(state.whitened.rows(), count + 1);
  VectorXd mean(count + 1);
  for (Index i = 0; i <= count; ++i) {
    const auto point =
        static_cast<Index>(i < count ? challengers[static_cast<std::size_t>(i)].point : other);
    scaled.col(i) = state.scaled.col(point);
    whitened.col(i) = state.whitened.col(point);
    mean[i] = state.mean[point];
    if (i < count) mean[i] += challengers[static_cast<std::size_t>(i)].offset;
  }
  MatrixXd joint = state.kernel->between(scaled, scaled) - whitened.transpose() * whitened;
  joint.diagonal().array() += state.kernel->own_variance() + jitter;
  joint *= state.inflation;
  const MatrixXd lower = Eigen::LLT<MatrixXd>(joint).matrixL();
  Normal normal(seed);
  int above = 0;
  VectorXd draw(count + 1);
  for (int number = 0; number < num_draws; ++number) {
    for (double& each : draw) each = normal();
    const VectorXd values = mean + lower.triangularView<Eigen::Lower>() * draw;
    if (values.head(count).maxCoeff() > values[count]) ++above;
  }
  return static_cast<double>(above) / num_draws;
}

double chance_above_zero(const Posterior& posterior) {
  if (posterior.deviation <= 0) return posterior.mean > 0 ? 1 : 0;
  return 0.5 * std::erfc(-posterior.mean / posterior.deviation / std::numbers::sqrt2);
}

double expected_improvement(const Posterior& posterior) {
  if (posterior.deviation <= 0) return std::max(0.0, posterior.mean);
  const double z = posterior.mean / posterior.deviation;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
  return posterior.mean * chance_above_zero(posterior) + posterior.deviation * density;
}

namespace {

/// A column before it is scaled: NaN-free numbers, of which words are told apart only.
struct Column {
  std::string name;
  bool is_word = false;
  std::vector<double> values;
};

template <class Value>
double amount_of(Value value) {
  // The largest thresholds stand for "no limit", which is not so much more than a large one.
  constexpr double most = 1e13;
  return std::log1p(std::min(most, std::max(0.0, static_cast<double>(value))));
}

std::vector<Column> columns_of(std::span<const Experiment* const> experiments) {
  std::vector<Column> columns;
  std::map<std::string, double> texts;  // in order of appearance
  for (const Experiment* experiment : experiments) {
    std::size_t at = 0;
    const auto add = [&](const char* name, double value, bool is_word) {
      if (at == columns.size()) columns.push_back({name, is_word, {}});
      columns[at++].values.push_back(value);
    };
    for_each_member(experiment->config, [&](const char* name, const auto& value) {
      using Value = std::decay_t<decltype(value)>;
      if constexpr (std::is_enum_v<Value>)
        add(name, static_cast<double>(value), true);
      else if constexpr (std::is_same_v<Value, std::string>)
        add(name, texts.try_emplace(value, static_cast<double>(texts.size())).first->second, true);
      else if (&value == static_cast<const void*>(&experiment->config.zero_stage))
        add(name, static_cast<double>(value), true);  // a number that is none
      else
        add(name, amount_of(value), false);
    });
    add("num_gpus", amount_of(experiment->shape.num_gpus), false);
    add("num_nodes", amount_of(experiment->shape.num_nodes), false);
  }
  return columns;
}

}  // namespace

double Features::similarity(std::size_t one, std::size_t other) const {
  if (points.num_features == 0) return 1;
  std::size_t equal = 0;
  for (std::size_t feature = 0; feature < points.num_features; ++feature)
    if (points[one][feature] == points[other][feature]) ++equal;
  return static_cast<double>(equal) / static_cast<double>(points.num_features);
}

Features features_of(std::span<const Experiment* const> experiments) {
  Features features;
  std::vector<std::vector<double>> of_feature;
  const auto add = [&](const Column& column, const auto& feature_of) {
    features.names.push_back(column.name);
    auto& values = of_feature.emplace_back();
    for (const double value : column.values) values.push_back(feature_of(value));
  };
  for (const Column& column : columns_of(experiments)) {
    const std::set<double> levels(column.values.begin(), column.values.end());
    if (levels.size() < 2) continue;
    const double low = *levels.begin();
    const double range = *levels.rbegin() - low;
    if (column.is_word && levels.size() > 2) {
      for (const double level : levels)
        add(column, [&](double value) { return value == level ? 1.0 : 0.0; });
    } else {
      add(column, [&](double value) { return (value - low) / range; });
    }
  }
  Points& points = features.points;
  points.size = experiments.size();
  points.num_features = of_feature.size();
  for (std::size_t point = 0; point < points.size; ++point)
    for (const auto& values : of_feature) points.features.push_back(values[point]);
  return features;
}

}  // namespace dstune
