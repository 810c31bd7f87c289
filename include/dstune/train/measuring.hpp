#pragma once
/// Runs a workload on a group until its step time is known (design 6), agreeing on a status
/// wherever one rank could fail while its peers wait.

#include <functional>

#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {

struct MeasureHooks {
  /// Called on every rank once all have built; returns when the experiment may start (GO). May
  /// throw CollectiveError (aborted).
  std::function<void()> ready;
  /// Leader only, after each step: the slowest rank's time. Returns true to stop after this step.
  std::function<bool(double step_s)> stepped;
};

/// Build, agree, initialise, warm up, time. An out-of-memory or failure on any rank is every rank's
/// result. Steps are at least 5 losses long. The measurement is complete on the leader (group rank
/// 0); the others get the same status and their own times. Collective over the group. Throws
/// CollectiveError only.
Measurement measure(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
                    const MeasureHooks& hooks);

}  // namespace dstune
