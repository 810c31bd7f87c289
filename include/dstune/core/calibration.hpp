#pragma once
/// From the time of a step here to that of the user's own training. Local.

#include <array>
#include <cstdint>

#include "dstune/base/enum_text.hpp"

namespace dstune {

/// What the user's training spends time on that the step here does not have: PyTorch's and
/// DeepSpeed's interpreter, and a slower network.
enum class Overhead : std::uint8_t {
  optimizer_step,     ///< DeepSpeed's engine, once a step
  module_call,        ///< a module with parameters, in a micro-step
  gradient_hook,      ///< a parameter's gradient is handed to a bucket: stages 1 to 3
  gathering_hook,     ///< a module gathers and releases its parameters, in a micro-step: stage 3
  communicated_byte,  ///< that a rank sends
};
inline constexpr int num_overheads = static_cast<int>(Overhead::communicated_byte) + 1;
[[nodiscard]] const EnumTexts& texts_of(Overhead);

/// One number for each.
using Overheads = std::array<double, num_overheads>;

/// Measured time t of a step with so many overheads → scale · t + Σ cost · number: kernels are
/// slower or faster by a factor, and each overhead costs something.
struct TimeCalibration {
  double scale = 1;
  Overheads costs_s{};

  [[nodiscard]] double target_s(double measured_s, const Overheads& counts) const {
    double sum_s = scale * measured_s;
    for (std::size_t each = 0; each < counts.size(); ++each) sum_s += costs_s[each] * counts[each];
    return sum_s;
  }
  bool operator==(const TimeCalibration&) const = default;
};

}  // namespace dstune
