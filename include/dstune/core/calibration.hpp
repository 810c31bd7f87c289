#pragma once
/// From the time of a step here to that of the user's own training. Local.

#include <cstdint>

namespace dstune {

/// Measured time t of a step of so many micro-steps → scale · t + module_cost_s · modules ·
/// micro-steps: kernels are slower or faster by a factor, and PyTorch and DeepSpeed spend time on
/// the host for each module that runs.
struct TimeCalibration {
  double scale = 1;
  double module_cost_s = 0;
  std::int64_t num_modules = 0;  ///< of the model, those with parameters

  [[nodiscard]] double target_s(double measured_s, std::int64_t num_micro_steps) const {
    return scale * measured_s + module_cost_s * static_cast<double>(num_modules * num_micro_steps);
  }
  bool operator==(const TimeCalibration&) const = default;
};

}  // namespace dstune
