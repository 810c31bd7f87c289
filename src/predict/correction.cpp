#include "dstune/predict/correction.hpp"

#include <algorithm>
#include <cmath>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// What is thought likely before anything was measured, of logarithms of ratios: the machine as a
/// whole may be off by a tenth, a stage or a doubling of a size by less.
constexpr double prior_of_constant = 0.10;
constexpr double prior_of_feature = 0.03;
/// A measurement is off by its own: not less than this is believed.
constexpr double least_noise = 0.01;
constexpr double prior_noise = 0.03;
/// How many measurements the prior of the noise counts as.
constexpr double prior_noise_weight = 4;

}  // namespace

PredictionCorrection::Vector PredictionCorrection::features_of(const TrainingConfig& config,
                                                               int group_size) {
  const auto is = [](bool holds) { return holds ? 1.0 : 0.0; };
  const auto log2 = [](std::int64_t count) { return std::log2(static_cast<double>(count)); };
  // In a group of one that offloads nothing every stage is the same step.
  const bool stages_differ =
      group_size > 1 || is_optimizer_offloaded(config) || are_parameters_offloaded(config);
  const auto is_stage = [&](int stage) { return is(stages_differ && config.zero_stage == stage); };
  return {1.0,
          is_stage(1),
          is_stage(2),
          is_stage(3),
          is(is_optimizer_offloaded(config)),
          log2(config.micro_batch),
          log2(config.accumulation_steps),
          log2(group_size)};
}

PredictionCorrection::PredictionCorrection() {
  fit();
}

void PredictionCorrection::observe(const TrainingConfig& config, int group_size, double predicted_s,
                                   double measured_s) {
  const double log_ratio = std::log(measured_s / predicted_s);
  require(std::isfinite(log_ratio), "times are positive");
  observations_.push_back({features_of(config, group_size), log_ratio});
  fit();
}

PredictionCorrection::Factor PredictionCorrection::at(const TrainingConfig& config,
                                                      int group_size) const {
  const Vector x = features_of(config, group_size);
  double mean = 0;
  double variance = noise_ * noise_;
  for (std::size_t i = 0; i < num_features; ++i) {
    mean += weights_[i] * x[i];
    for (std::size_t j = 0; j < num_features; ++j) variance += x[i] * covariance_[i][j] * x[j];
  }
  return {std::exp(mean), std::sqrt(variance)};
}

/// Twice: the second time with the noise about the first fit.
void PredictionCorrection::fit() {
  noise_ = prior_noise;
  for (int round = 0; round < 2; ++round) {
    // The inverse covariance, then by Gauss and Jordan (it is positive definite) its inverse.
    Matrix left{};
    Vector right{};
    for (std::size_t i = 0; i < num_features; ++i) {
      covariance_[i] = {};
      covariance_[i][i] = 1;
      const double prior = i == 0 ? prior_of_constant : prior_of_feature;
      left[i][i] = 1 / (prior * prior);
    }
    const double precision = 1 / (noise_ * noise_);
    for (const Observation& seen : observations_) {
      for (std::size_t i = 0; i < num_features; ++i) {
        right[i] += precision * seen.features[i] * seen.log_ratio;
        for (std::size_t j = 0; j < num_features; ++j)
          left[i][j] += precision * seen.features[i] * seen.features[j];
      }
    }
    for (std::size_t pivot = 0; pivot < num_features; ++pivot) {
      const double scale = 1 / left[pivot][pivot];
      for (std::size_t j = 0; j < num_features; ++j) {
        left[pivot][j] *= scale;
        covariance_[pivot][j] *= scale;
      }
      for (std::size_t row = 0; row < num_features; ++row) {
        const double factor = left[row][pivot];
        if (row == pivot || factor == 0) continue;
        for (std::size_t j = 0; j < num_features; ++j) {
          left[row][j] -= factor * left[pivot][j];
          covariance_[row][j] -= factor * covariance_[pivot][j];
        }
      }
    }
    double squares = prior_noise_weight * prior_noise * prior_noise;
    for (std::size_t i = 0; i < num_features; ++i) {
      weights_[i] = 0;
      for (std::size_t j = 0; j < num_features; ++j) weights_[i] += covariance_[i][j] * right[j];
    }
    for (const Observation& seen : observations_) {
      double residual = seen.log_ratio;
      for (std::size_t i = 0; i < num_features; ++i) residual -= weights_[i] * seen.features[i];
      squares += residual * residual;
    }
    const double count = prior_noise_weight + static_cast<double>(observations_.size());
    noise_ = std::max(least_noise, std::sqrt(squares / count));
  }
}

}  // namespace dstune
