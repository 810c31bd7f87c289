#pragma once
/// How long the operations of a plan took in a step that was run: what the executor measures and
/// the time model is fitted to. A plain value.

#include <cstdint>
#include <vector>

#include "dstune/plan/step_plan.hpp"

namespace dstune {

struct TracedOperation {
  const Operation* operation = nullptr;  ///< the plan's; null: making a micro-step's tokens
  double seconds = 0;
};

/// What an operation is charged with.
enum class TraceClock : std::uint8_t {
  elapsed,  ///< all time from its begin to its end
  /// Only while this thread had a core: where ranks take turns on one, others may run in between
  /// for longer than the operation takes.
  own,
};

/// In the order in which they were run. Two steady steps of a plan have equal operations.
using StepTrace = std::vector<TracedOperation>;

}  // namespace dstune
