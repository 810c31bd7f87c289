#pragma once
/// How long the operations of a plan took in a step that was run: what the executor measures and
/// the time model is fitted to. A plain value.

#include <vector>

#include "dstune/plan/step_plan.hpp"

namespace dstune {

struct TracedOperation {
  const Operation* operation = nullptr;  ///< the plan's; null: making a micro-step's tokens
  double seconds = 0;
};

/// In the order in which they were run. Two steady steps of a plan have equal operations.
using StepTrace = std::vector<TracedOperation>;

}  // namespace dstune
