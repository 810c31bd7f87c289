#pragma once
/// How long an experiment's steps will take, with an uncertainty, learning from those that were
/// measured. Plans are built once for all configurations that differ in what takes no time, or in
/// how often the middle micro-step is repeated. Local.

#include <array>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include "dstune/core/calibration.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/training_config_hash.hpp"
#include "dstune/plan/step_planner.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/step_time.hpp"

namespace dstune {

/// What measured experiments say about the predictions of the others: a regression of the logarithm
/// of measured over predicted time on a few features of the configuration.
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

struct PredictedTime {
  double step_s = 0;  ///< of an optimizer step, corrected by what was measured
  /// Of the logarithm of the measured over the predicted time, so about the relative error.
  double log_standard_deviation = 0;
  StepTime model;  ///< by the profile alone
};

class StepPredictor {
 public:
  /// The workspaces outlive it.
  StepPredictor(const ModelSpec& model, DeviceProfile profile, const WorkspaceSizes& workspaces);
  StepPredictor(const StepPredictor&) = delete;
  StepPredictor& operator=(const StepPredictor&) = delete;

  [[nodiscard]] PredictedTime predict(const Experiment& experiment);
  /// A measured mean step time.
  void observe(const Experiment& experiment, double step_s);
  [[nodiscard]] const DeviceProfile& profile() const { return profile_; }

 private:
  struct OfShape {
    OperationTimes times;
    std::unordered_map<TrainingConfig, CycleTime, TrainingConfigHash> known;
  };
  StepTime model_time(const Experiment& experiment);

  DeviceProfile profile_;
  StepPlanner planner_;
  std::map<GroupShape, OfShape> shapes_;
  PredictionCorrection correction_;
};

/// How often a step of the user's training does what costs time beside the kernels.
class OverheadCounter {
 public:
  /// The workspaces outlive it.
  OverheadCounter(const ModelSpec& model, const WorkspaceSizes& workspaces);

  /// Of an optimizer step. Bytes are those of ring algorithms.
  [[nodiscard]] Overheads count(const TrainingConfig& config, int group_size);

 private:
  StepPlanner planner_;
  // Of the Hugging Face model.
  double modules_ = 0;  ///< with parameters
  double parameters_ = 0;
};

}  // namespace dstune
