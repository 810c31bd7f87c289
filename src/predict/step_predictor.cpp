#include "dstune/predict/step_predictor.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>
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

std::size_t hash_of(const TrainingConfig& config, GroupShape shape) {
  std::size_t hash = std::hash<int>()(shape.num_gpus) * 31 + std::hash<int>()(shape.num_nodes);
  for_each_member(config, [&](const char*, const auto& field) {
    hash = hash * 0x9E3779B97F4A7C15 + std::hash<std::decay_t<decltype(field)>>()(field);
  });
  return hash;
}

}  // namespace

StepPredictor::StepPredictor(const ModelSpec& model, DeviceProfile profile,
                             const WorkspaceSizes& workspaces)
    : model_(model), profile_(std::move(profile)), workspaces_(&workspaces) {}

StepTime StepPredictor::model_time(const Experiment& experiment) {
  const TrainingConfig config = what_matters(experiment.config);
  const GroupShape shape = experiment.shape;
  auto& alike = known_[hash_of(config, shape)];
  auto found = std::find_if(alike.begin(), alike.end(), [&](const Known& known) {
    return known.shape == shape && known.config == config;
  });
  if (found == alike.end()) {
    rebuild_step_plan(plan_, model_, config, shape.size(), 0, *workspaces_);
    auto [times, is_new] = times_.try_emplace(shape, profile_, shape);
    found = alike.insert(alike.end(), Known{config, shape, cycle_time(plan_, times->second)});
  }
  return found->time.with_middles(
      std::max<std::int64_t>(0, experiment.config.accumulation_steps - 2));
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
