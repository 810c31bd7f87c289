#pragma once
/// A group's part in measuring the machine at the start of a job.

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/plan/trace.hpp"
#include "dstune/predict/profiling_plan.hpp"
#include "dstune/predict/device_profile.hpp"

namespace dstune {

/// Runs what the task names, as far as its budget goes, the first run in any case. What does not
/// fit the memory is left out. Returns what this rank measured. `clock`: own where ranks take turns
/// on a core; what that costs is then the slowdown of whole steps. The waiter ends waits for the
/// device. Collective over the group.
DeviceProfile calibrate(const ProfilingTask& task, const ModelSpec& model, Device& device,
                        ProcessGroup& group, std::int64_t seed, const Waiter& waiter,
                        TraceClock clock = TraceClock::elapsed);

}  // namespace dstune
