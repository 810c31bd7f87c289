#pragma once
/// How long an experiment's steps will take, with an uncertainty, learning from those that were
/// measured. Plans are built once for all configurations that differ in what takes no time, or in
/// how often the middle micro-step is repeated. Local.

#include <map>
#include <unordered_map>

#include "dstune/core/experiment.hpp"
#include "dstune/core/training_config_hash.hpp"
#include "dstune/plan/step_planner.hpp"
#include "dstune/predict/correction.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/step_time.hpp"

namespace dstune {

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

}  // namespace dstune
