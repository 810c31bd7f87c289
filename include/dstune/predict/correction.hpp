#pragma once
/// What measured experiments say about the predictions of the others: a regression of the logarithm
/// of measured over predicted time on a few features of the configuration. Local.

#include <array>
#include <cstddef>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

/// Bayesian linear regression (Bishop, Pattern Recognition and Machine Learning, section 3.3) with
/// a normal prior of mean 0 on every weight: with few measurements it stays near 1, and what
/// resembles nothing measured keeps the prior's spread. Features: a constant, ZeRO stage 1, 2 and
/// 3 (of several ranks), offload, the logarithms of micro-batch, accumulation and group size.
class PredictionCorrection {
 public:
  struct Factor {
    double factor = 1;  ///< on the predicted time
    double log_standard_deviation = 0;
  };

  PredictionCorrection();
  /// Both positive and finite.
  void observe(const TrainingConfig& config, int group_size, double predicted_s, double measured_s);
  [[nodiscard]] Factor at(const TrainingConfig& config, int group_size) const;

 private:
  static constexpr std::size_t num_features = 8;
  using Vector = std::array<double, num_features>;
  using Matrix = std::array<Vector, num_features>;
  struct Observation {
    Vector features;
    double log_ratio;
  };

  static Vector features_of(const TrainingConfig& config, int group_size);
  void fit();

  std::vector<Observation> observations_;
  Vector weights_{};
  Matrix covariance_{};  ///< of the weights
  double noise_ = 0;     ///< standard deviation of one observation about the regression
};

}  // namespace dstune
