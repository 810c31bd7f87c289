#pragma once
/// Pieces of JSON that the files of results share. Local.

#include <cmath>

#include "dstune/base/archive.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

/// JSON has no NaN and no infinity: null stands for them.
inline json::Value finite_or_null(double number) {
  return std::isfinite(number) ? json::Value(number) : json::Value();
}
/// {throughput, peak_memory_bytes, target_memory_bytes, …}; null for what is not known.
inline json::Value to_json(const Prediction& predicted) {
  return json::write(predicted);
}

}  // namespace dstune
