#include "dstune/predict/step_predictor.hpp"

#include <algorithm>
#include <utility>

namespace dstune {
namespace {

/// The fewest micro-steps with a middle one.
constexpr std::int64_t folded_micro_steps = 3;

/// The same for all configurations whose plans differ in numbers that take no time, and in how many
/// middle micro-steps there are.
TrainingConfig what_matters(const TrainingConfig& config) {
  TrainingConfig same = config;
  same.accumulation_steps = config.accumulation_steps == 1 ? 1 : folded_micro_steps;
  same.loss_scale = {};
  same.gradient_clipping = config.gradient_clipping > 0 ? 1 : 0;
  same.optimizer = {};
  same.optimizer.kind = config.optimizer.kind;
  same.optimizer.momentum = config.optimizer.momentum != 0 ? 1 : 0;
  return same;
}

}  // namespace

StepPredictor::StepPredictor(const ModelSpec& model, DeviceProfile profile,
                             const WorkspaceSizes& workspaces)
    : profile_(std::move(profile)), planner_(model, workspaces) {}

StepTime StepPredictor::model_time(const Experiment& experiment) {
  const GroupShape shape = experiment.shape;
  auto& [times, known] =
      shapes_.try_emplace(shape, OfShape{OperationTimes(profile_, shape), {}}).first->second;
  const auto [found, is_new] = known.try_emplace(what_matters(experiment.config));
  if (is_new) found->second = cycle_time(planner_.plan(found->first, shape.size()), times);
  return found->second.with_micro_steps(experiment.config.accumulation_steps);
}

PredictedTime StepPredictor::predict(const Experiment& experiment) {
  const StepTime model = model_time(experiment);
  const auto factor = correction_.at(experiment.config, experiment.shape.size());
  return {model.step_s * factor.factor, factor.log_standard_deviation, model};
}

void StepPredictor::observe(const Experiment& experiment, double step_s) {
  const double predicted_s = model_time(experiment).step_s;
  if (predicted_s > 0 && step_s > 0)
    correction_.observe(experiment.config, experiment.shape.size(), predicted_s, step_s);
}

}  // namespace dstune
