#pragma once
/// How long an experiment's steps will take, with an uncertainty, learning from those that were
/// measured. Plans are built once for all configurations that differ in what takes no time, or in
/// how often the middle micro-step is repeated. Local.

#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/plan/step_plan.hpp"
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
  struct Known {
    TrainingConfig config;  ///< what matters of it
    GroupShape shape;
    CycleTime time;
  };
  StepTime model_time(const Experiment& experiment);

  ModelSpec model_;
  DeviceProfile profile_;
  const WorkspaceSizes* workspaces_;
  StepPlan plan_;  ///< the latest, for its memory
  std::map<GroupShape, OperationTimes> times_;
  std::unordered_map<std::size_t, std::vector<Known>> known_;  ///< by hash
  PredictionCorrection correction_;
};

}  // namespace dstune
