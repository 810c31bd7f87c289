#include "loss_scaler.hpp"

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
      stay_or_rise();
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

void LossScaler::stay_or_rise() {
  if (rules_.consecutive_hysteresis) hysteresis_ = rules_.hysteresis;
  const std::int64_t steps_without = step_ - last_overflow_ - 1;
  if (steps_without <= 0 || steps_without % rules_.window != 0) return;
  hysteresis_ = rules_.hysteresis;
  scale_ *= factor;
}

}  // namespace dstune::train
