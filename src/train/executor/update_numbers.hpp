#pragma once
/// The numbers of an update: what the optimizer's kernels are told of a step, and the loss scale.

#include <cstdint>

#include "dstune/core/training_config.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune::train {

/// The loss scale of fp16 over the steps, as DeepSpeed 0.19.6 moves it: one way at stage 0, another
/// in its ZeRO optimizers (runtime/fp16/fused_optimizer.py, runtime/fp16/loss_scaler.py).
/// Local.
class LossScaler {
 public:
  explicit LossScaler(const TrainingConfig& config);

  /// By what the next step's loss is multiplied: 1 but in fp16.
  [[nodiscard]] double scale() const { return scale_; }

  /// exhausted: skipped, and the training ends because the scale can not fall.
  enum class Verdict : std::uint8_t { update, skip, exhausted };
  /// To be told of every step whether a gradient overflowed on any rank; scale() is then the next
  /// step's.
  Verdict end_step(bool overflow);

 private:
  Verdict fall();
  void keep_or_raise();

  LossScale rules_;
  bool dynamic_;
  bool in_zero_optimizer_;
  double scale_ = 1;
  std::int64_t hysteresis_;  ///< what is left of it
  std::int64_t step_ = 0;
  std::int64_t last_overflow_ = -1;
};

struct UpdateNumbers {
  std::int64_t update;  ///< from 0
  float gradient_scale;
  bool on_host;  ///< by DeepSpeed's optimizer for the host, where it has one
};
kernels::AdamStep adam_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);
kernels::LionStep lion_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);
kernels::SgdStep sgd_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);
kernels::AdagradStep adagrad_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);

}  // namespace dstune::train
