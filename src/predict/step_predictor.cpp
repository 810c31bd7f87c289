#include "dstune/predict/step_predictor.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "dstune/base/error.hpp"
#include "dstune/plan/memory.hpp"

namespace dstune {
namespace {

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
  same.optimizer.torch_adam = config.optimizer.torch_adam;
  return same;
}

/// A module that LoRA wraps calls four more: the module itself, dropout and two products, which
/// have parameters.
void add_adapters(std::int64_t adapters, const TrainingConfig& config, Overheads& counts) {
  const double passes = config.recompute == Recompute::none ? 1 : 2;
  const auto more = static_cast<double>(adapters * config.accumulation_steps);
  of(counts, Overhead::module_call) += 4 * more * passes;
  // Each of the two fetches and releases in each pass, and in backward.
  if (config.zero_stage == 3) of(counts, Overhead::gathering_hook) += 2 * 2 * more * (passes + 1);
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
  const Vector features = features_of(config, group_size);
  return std::exp(std::inner_product(weights_.begin(), weights_.end(), features.begin(), 0.0));
}

/// Twice: the second time with the noise about the first fit.
void PredictionCorrection::fit() {
  using Column = Eigen::Matrix<double, num_features, 1>;
  using Square = Eigen::Matrix<double, num_features, num_features>;
  const auto features_of = [](const Observation& seen) {
    return Eigen::Map<const Column>(seen.features.data());
  };
  Eigen::Map<Column> weights(weights_.data());
  Column priors = Column::Constant(policy_->prior_of_feature);
  priors[0] = policy_->prior_of_constant;
  double noise =
      policy_->prior_noise;  // standard deviation of one observation about the regression
  for (int round = 0; round < 2; ++round) {
    Square left = priors.array().square().inverse().matrix().asDiagonal();
    Column right = Column::Zero();
    const double precision = 1 / (noise * noise);
    for (const Observation& seen : observations_) {
      left += precision * features_of(seen) * features_of(seen).transpose();
      right += precision * seen.log_ratio * features_of(seen);
    }
    weights = left.llt().solve(right);
    double squares = policy_->prior_noise_weight * policy_->prior_noise * policy_->prior_noise;
    for (const Observation& seen : observations_)
      squares += std::pow(seen.log_ratio - weights.dot(features_of(seen)), 2);
    const double count = policy_->prior_noise_weight + static_cast<double>(observations_.size());
    noise = std::max(policy_->least_noise, std::sqrt(squares / count));
  }
}

Overheads CycleOverheads::of_step(std::int64_t num_micro_steps) const {
  const auto middles = static_cast<double>(num_micro_steps - num_ends);
  Overheads all = ends;
  for (std::size_t each = 0; each < all.size(); ++each) all[each] += middles * middle[each];
  const LinkTraffic traffic = traffic_of_step(num_micro_steps);
  of(all, Overhead::link_byte) = traffic.gloo - traffic.here;
  return all;
}

LinkTraffic CycleOverheads::traffic_of_step(std::int64_t num_micro_steps) const {
  LinkTraffic all = ends_traffic;
  all += static_cast<double>(num_micro_steps - num_ends) * middle_traffic;
  return all;
}

CycleOverheads cycle_overheads(const StepPlan& plan, GroupShape shape) {
  using enum Segment::Kind;
  CycleOverheads all;
  for (const Segment& segment : plan.cycle) {
    const LinkTraffic traffic = link_traffic(plan, segment, shape);
    if (segment.kind == middle_micro) {
      all.middle = segment.overheads;
      all.middle_traffic = traffic;
      continue;
    }
    all.ends_traffic += traffic;
    all.num_ends += segment.kind == update || segment.kind == guarded_update ? 0 : 1;
    for (std::size_t each = 0; each < all.ends.size(); ++each)
      all.ends[each] += segment.overheads[each];
  }
  return all;
}

StepPredictor::StepPredictor(const ModelSpec& model, std::optional<DeviceProfile> profile,
                             const WorkspaceSizes& workspaces, const Policy::Predicting& policy,
                             const std::optional<TargetSpec>& target)
    : model_(model),
      profile_(std::move(profile)),
      target_(target),
      num_adapters_(target ? trained_part(model, *target).adapters : 0),
      planner_(model, workspaces),
      correction_(policy) {}

OperationTimes* StepPredictor::target_times(OfShape& of_shape, GroupShape shape,
                                            const TrainingConfig& config) {
  if (!target_ || target_->framework == TargetFramework::self) return nullptr;
  if (!profile_ || !profile_->kernels.empty() || !profile_->cluster ||
      !roofline_lacks(*profile_->cluster, shape).empty())
    return nullptr;
  const TargetKernels kernels = target_kernels(model_, config, *target_);
  auto& all = of_shape.target_times;
  for (auto& [of_kernels, times] : all)
    if (of_kernels == kernels) return &times;
  return &all.emplace_back(kernels, OperationTimes(*profile_, shape, kernels)).second;
}

const StepPredictor::Planned& StepPredictor::planned(const Experiment& experiment) {
  const GroupShape shape = experiment.shape;
  const auto [of_shape, is_new_shape] = shapes_.try_emplace(shape);
  auto& times = of_shape->second.times;
  if (is_new_shape && profile_) times.emplace(*profile_, shape);
  const auto [found, is_new] = of_shape->second.known.try_emplace(timing_key(experiment.config));
  if (is_new) {
    const StepPlan& folded = planner_.folded_cycle(found->first, shape.size());
    const StepPlan& plan =
        repeats_alike(folded) ? folded : planner_.plan(found->first, shape.size());
    if (times) found->second.time = cycle_time(plan, *times);
    if (OperationTimes* const target = target_times(of_shape->second, shape, found->first))
      found->second.target_device = cycle_time(plan, *target);
    found->second.overheads = cycle_overheads(plan, shape);
  }
  return found->second;
}

double StepPredictor::model_s(const Experiment& experiment) {
  require(profile_.has_value(), "times come from a profile");
  return planned(experiment).time.step_s(experiment.config.accumulation_steps);
}

std::optional<TargetStepTime> StepPredictor::target_time(const Experiment& experiment) {
  const Planned& all = planned(experiment);
  if (!all.target_device) return std::nullopt;
  const std::int64_t steps = experiment.config.accumulation_steps;
  // The device's time has the training's own kernels and network: only the host's work is added.
  TimeCalibration host = target_constants(true).time;
  host.scale.fill(1);
  for (double& cost_s : host.costs_s) cost_s *= profile_->cluster->device->host_work;
  const double device_s = all.target_device->step_s(steps);
  Overheads counts = all.overheads.of_step(steps);
  add_adapters(num_adapters_, experiment.config, counts);
  const double seconds = host.target_s(device_s, experiment.config.precision, counts);
  const double band = training_rates().band;
  return TargetStepTime{seconds, seconds / band, seconds * band, device_s};
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

LinkTraffic StepPredictor::traffic(const Experiment& experiment) {
  return planned(experiment).overheads.traffic_of_step(experiment.config.accumulation_steps);
}

}  // namespace dstune
