#pragma once
/// Records as verdicts take them. Local.

#include <optional>

#include "dstune/core/measurement.hpp"

namespace dstune {

/// The logarithm of the steps a second that were predicted of it; nothing without a prediction.
[[nodiscard]] std::optional<double> predicted_log_speed(const Record& record);

}  // namespace dstune
