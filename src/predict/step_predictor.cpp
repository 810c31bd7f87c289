#include "dstune/predict/step_predictor.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// What is thought likely before anything was measured, of logarithms of ratios: the machine as a
/// whole may be off by a tenth, a stage or a doubling of a size by less.
constexpr double prior_of_constant = 0.10;
constexpr double prior_of_feature = 0.03;
/// A measurement is off by its own: not less than this is believed.
constexpr double min_noise = 0.01;
constexpr double prior_noise = 0.03;
/// How many measurements the prior of the noise counts as.
constexpr double prior_noise_weight = 4;

template <std::size_t size>
double dot(const std::array<double, size>& one, const std::array<double, size>& other) {
  return std::inner_product(one.begin(), one.end(), other.begin(), 0.0);
}

/// Of a positive definite matrix, by Gauss and Jordan.
template <class Matrix>
Matrix inverse_of(Matrix left) {
  const std::size_t size = left.size();
  Matrix inverse{};
  for (std::size_t i = 0; i < size; ++i) inverse[i][i] = 1;
  for (std::size_t pivot = 0; pivot < size; ++pivot) {
    const double scale = 1 / left[pivot][pivot];
    for (std::size_t j = 0; j < size; ++j) {
      left[pivot][j] *= scale;
      inverse[pivot][j] *= scale;
    }
    for (std::size_t row = 0; row < size; ++row) {
      const double factor = left[row][pivot];
      if (row == pivot || factor == 0) continue;
      for (std::size_t j = 0; j < size; ++j) {
        left[row][j] -= factor * left[pivot][j];
        inverse[row][j] -= factor * inverse[pivot][j];
      }
    }
  }
  return inverse;
}

/// The fewest micro-steps with a middle one.
constexpr std::int64_t folded_micro_steps = 3;

/// The same for all configurations whose plans differ in numbers that take no time, and in how many
/// middle micro-steps there are.
TrainingConfig timing_key(const TrainingConfig& config) {
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

void PredictionCorrection::observe(const TrainingConfig& config, int group_size, double predicted_s,
                                   double measured_s) {
  const double log_ratio = std::log(measured_s / predicted_s);
  require(std::isfinite(log_ratio), "times are positive");
  observations_.push_back({features_of(config, group_size), log_ratio});
  fit();
}

double PredictionCorrection::at(const TrainingConfig& config, int group_size) const {
  return std::exp(dot(weights_, features_of(config, group_size)));
}

/// Twice: the second time with the noise about the first fit.
void PredictionCorrection::fit() {
  double noise = prior_noise;  // standard deviation of one observation about the regression
  for (int round = 0; round < 2; ++round) {
    std::array<Vector, num_features> left{};  // the inverse covariance of the weights
    Vector right{};
    for (std::size_t i = 0; i < num_features; ++i) {
      const double prior = i == 0 ? prior_of_constant : prior_of_feature;
      left[i][i] = 1 / (prior * prior);
    }
    const double precision = 1 / (noise * noise);
    for (const Observation& seen : observations_) {
      for (std::size_t i = 0; i < num_features; ++i) {
        right[i] += precision * seen.features[i] * seen.log_ratio;
        for (std::size_t j = 0; j < num_features; ++j)
          left[i][j] += precision * seen.features[i] * seen.features[j];
      }
    }
    const auto covariance = inverse_of(left);
    for (std::size_t i = 0; i < num_features; ++i) weights_[i] = dot(covariance[i], right);
    double squares = prior_noise_weight * prior_noise * prior_noise;
    for (const Observation& seen : observations_) {
      double residual = seen.log_ratio;
      for (std::size_t i = 0; i < num_features; ++i) residual -= weights_[i] * seen.features[i];
      squares += residual * residual;
    }
    const double count = prior_noise_weight + static_cast<double>(observations_.size());
    noise = std::max(min_noise, std::sqrt(squares / count));
  }
}

Overheads CycleOverheads::of_step(std::int64_t num_micro_steps) const {
  const auto middles = static_cast<double>(num_micro_steps - num_ends);
  Overheads all = ends;
  for (std::size_t each = 0; each < all.size(); ++each) all[each] += middles * middle[each];
  return all;
}

CycleOverheads cycle_overheads(const StepPlan& plan) {
  using enum Segment::Kind;
  CycleOverheads all;
  for (const Segment& segment : plan.cycle) {
    if (segment.kind == middle_micro) {
      all.middle = segment.overheads;
      continue;
    }
    all.num_ends += segment.kind == update || segment.kind == guarded_update ? 0 : 1;
    for (std::size_t each = 0; each < all.ends.size(); ++each)
      all.ends[each] += segment.overheads[each];
  }
  return all;
}

StepPredictor::StepPredictor(const ModelSpec& model, std::optional<DeviceProfile> profile,
                             const WorkspaceSizes& workspaces)
    : profile_(std::move(profile)), planner_(model, workspaces) {}

const StepPredictor::Planned& StepPredictor::planned(const Experiment& experiment) {
  const GroupShape shape = experiment.shape;
  const auto [of_shape, is_new_shape] = shapes_.try_emplace(shape);
  auto& [times, known] = of_shape->second;
  if (is_new_shape && profile_) times.emplace(*profile_, shape);
  const auto [found, is_new] = known.try_emplace(timing_key(experiment.config));
  if (is_new) {
    const StepPlan& plan = planner_.plan(found->first, shape.size());
    if (times) found->second.time = cycle_time(plan, *times);
    found->second.overheads = cycle_overheads(plan);
  }
  return found->second;
}

double StepPredictor::model_s(const Experiment& experiment) {
  require(profile_.has_value(), "times come from a profile");
  return planned(experiment).time.step_s(experiment.config.accumulation_steps);
}

double StepPredictor::predict(const Experiment& experiment) {
  return model_s(experiment) * correction_.at(experiment.config, experiment.shape.size());
}

void StepPredictor::observe(const Experiment& experiment, double step_s) {
  const double predicted_s = model_s(experiment);
  if (predicted_s > 0 && step_s > 0)
    correction_.observe(experiment.config, experiment.shape.size(), predicted_s, step_s);
}

Overheads StepPredictor::overheads(const Experiment& experiment) {
  return planned(experiment).overheads.of_step(experiment.config.accumulation_steps);
}

}  // namespace dstune
