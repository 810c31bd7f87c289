#pragma once
/// Runs a workload on a group until its step time is known (design 6), agreeing on a status
/// wherever one rank could fail while its peers wait.

#include <functional>
#include <optional>
#include <string>

#include "dstune/base/error.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/device/nvml.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {

/// What this rank threw inside a step that talks to peers, or when its device was lost: the cause
/// of what they report, who are left waiting for it.
class StepFailure : public CollectiveError {
 public:
  StepFailure(Status status, const std::string& reason)
      : CollectiveError(Cause::aborted, reason), status_(status) {}
  [[nodiscard]] Status status() const { return status_; }

 private:
  Status status_;
};

struct MeasureHooks {
  /// Called on every rank once all have built; returns when the experiment may start (GO). May
  /// throw CollectiveError (aborted).
  std::function<void()> ready;
  /// Leader only, once for each step: the slowest rank's time. Called right before the agreement on
  /// the step that follows, so that what it takes is in no step's time. Returns true to stop: that
  /// rides on this agreement, after which all leave.
  std::function<bool(double step_s)> stepped;
  /// On one rank of each node, about once a second: the joules that the node has used since any
  /// moment, nothing where nobody knows. Empty on the others.
  std::function<std::optional<double>()> joules;
  /// How this rank's GPU is now; asked when timing begins, about once a second, and when it ends.
  /// On every rank of a group or on none.
  std::function<std::optional<nvml::GpuState>()> sample_gpu;
  /// Whether this rank's device is lost. Asked after a failure: there is nothing to agree on then,
  /// because the rank leaves its group for good. Empty: never.
  std::function<bool()> has_lost_device;
  /// Leader only, at each look of the race: what it is compared with by now. Empty: no race.
  std::function<IncumbentEstimate()> incumbent;
};

/// Build, agree, initialise, warm up, time: at least 5 steps are timed, until the 95 % interval of
/// their mean is within 1 % or the budget of timed steps is used up, or until the race is
/// lost (docs/measuring.md). An out-of-memory or a failure on any rank is every rank's
/// result, with the reason and the world rank it came from; a stop and a lost race end as
/// raced_out. Every rank gets the same measurement but for overhead_s ("build", "initialize",
/// "teardown"), which is its own; hosts is left empty. Collective over the group. Throws
/// CollectiveError only: a StepFailure for what this rank throws inside a step that talks to peers,
/// or without its device; peers are then ended by an abort or their deadline.
Measurement measure(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
                    const MeasureHooks& hooks);

}  // namespace dstune
