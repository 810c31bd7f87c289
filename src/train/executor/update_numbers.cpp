#include "executor/update_numbers.hpp"

#include <algorithm>
#include <cmath>

namespace dstune::train {
namespace {

constexpr double factor = 2;

}  // namespace

LossScaler::LossScaler(const TrainingConfig& config)
    : rules_(config.loss_scale),
      dynamic_(config.precision == Precision::fp16 && rules_.fixed == 0),
      in_zero_optimizer_(config.zero_stage > 0),
      hysteresis_(rules_.hysteresis) {
  if (config.precision != Precision::fp16) return;
  scale_ = dynamic_ ? std::exp2(static_cast<double>(rules_.initial_power)) : rules_.fixed;
}

LossScaler::Verdict LossScaler::end_step(bool overflow) {
  Verdict verdict = overflow ? Verdict::skip : Verdict::update;
  if (dynamic_) {
    if (overflow) {
      verdict = fall();
      last_overflow_ = step_;
    } else {
      keep_or_raise();
    }
  }
  ++step_;
  return verdict;
}

LossScaler::Verdict LossScaler::fall() {
  if (in_zero_optimizer_ && rules_.hysteresis != 1 && hysteresis_ != 1) {
    --hysteresis_;
    return Verdict::skip;
  }
  if (in_zero_optimizer_ && scale_ == rules_.minimum) return Verdict::exhausted;
  scale_ = std::max(scale_ / factor, rules_.minimum);
  return Verdict::skip;
}

void LossScaler::keep_or_raise() {
  if (rules_.consecutive_hysteresis) hysteresis_ = rules_.hysteresis;
  const std::int64_t steps_without = step_ - last_overflow_ - 1;
  if (steps_without <= 0 || steps_without % rules_.window != 0) return;
  hysteresis_ = rules_.hysteresis;
  scale_ *= factor;
}

kernels::AdamStep adam_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  const auto updates = static_cast<double>(numbers.update + 1);
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .beta1 = static_cast<float>(optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .epsilon = static_cast<float>(optimizer.epsilon),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .bias_correction1 = static_cast<float>(1.0 - std::pow(optimizer.beta1, updates)),
          .bias_correction2 = static_cast<float>(1.0 - std::pow(optimizer.beta2, updates)),
          .gradient_scale = numbers.gradient_scale,
          .decoupled_decay = optimizer.kind == OptimizerKind::adamw};
}

kernels::LionStep lion_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .beta1 = static_cast<float>(optimizer.beta1),
          .beta2 = static_cast<float>(optimizer.beta2),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_scale = numbers.gradient_scale,
          .rises_at_zero = !numbers.on_host};
}

kernels::SgdStep sgd_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  const double share = numbers.update == 0 ? 1.0 : 1.0 - optimizer.dampening;
  return {.learning_rate = static_cast<float>(optimizer.learning_rate),
          .momentum = static_cast<float>(optimizer.momentum),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_share = static_cast<float>(share),
          .gradient_scale = numbers.gradient_scale,
          .nesterov = optimizer.nesterov};
}

kernels::AdagradStep adagrad_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers) {
  const double fall = numbers.on_host ? 0.0 : optimizer.learning_rate_decay;
  const double rate = optimizer.learning_rate / (1.0 + static_cast<double>(numbers.update) * fall);
  return {.learning_rate = static_cast<float>(rate),
          .epsilon = static_cast<float>(optimizer.epsilon),
          .weight_decay = static_cast<float>(optimizer.weight_decay),
          .gradient_scale = numbers.gradient_scale,
          .decays_numerator = !numbers.on_host};
}

}  // namespace dstune::train
