#pragma once
/// What the operations of a plan take inside real steps, for the time model.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/plan/trace.hpp"

namespace dstune {

struct TracedSteps {
  std::vector<StepTrace> traces;  ///< what this rank waited for its peers is in none
  std::vector<double> steps_s;    ///< elapsed, of steps without a trace, slowest rank
};

/// Runs the plan from its initial state, which is not timed, nor are the first steps; then one step
/// with and one without a trace in turn, as few as tell something and no more once `budget_s` is
/// over. Nothing, on every rank, where a rank's memory does not hold it. The waiter ends waits for
/// the device; the group has its own. Collective over the group.
std::optional<TracedSteps> trace_steps(const StepPlan& plan, Device& device, ProcessGroup& group,
                                       std::int64_t seed, double budget_s, const Waiter& waiter,
                                       TraceClock clock = TraceClock::elapsed);

/// Median of what `timed` gives, seconds of something that the whole group does, slowest rank; as
/// often as tells something within `budget_s`, once before that. Collective over the group.
double median_together(ProcessGroup& group, double budget_s, const std::function<double()>& timed);
/// Median seconds of something that the whole group does, slowest rank, as often as tells something
/// within `budget_s`; once before that. Collective over the group.
double time_together(ProcessGroup& group, double budget_s, const std::function<void()>& work,
                     TraceClock clock = TraceClock::elapsed);

}  // namespace dstune
