#pragma once
/// The memory of a plan over its operations. Local.

#include "dstune/core/memory_timeline.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune {

/// An instant for each operation that does something, in program order: the fullest one since the
/// operation before. What the first step does otherwise (stage 3's tracing) comes first, then one
/// cycle, in which micro-steps that are alike stand for each other.
[[nodiscard]] MemoryTimeline memory_timeline(const StepPlan& plan);

}  // namespace dstune
