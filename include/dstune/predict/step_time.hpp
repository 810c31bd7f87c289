#pragma once
/// The time of a StepPlan on a machine that a DeviceProfile describes: its operations on a virtual
/// clock a stream, with events. All functions: Local.

#include <array>
#include <cstdint>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/device_profile.hpp"

namespace dstune {

/// Seconds of one optimizer step in its steady state.
struct StepTime {
  double step_s = 0;
  /// By Phase, over all micro-steps, collectives included: what an experiment measures.
  std::array<double, 3> phase_s{};
  /// Of phase_s: what compute did not hide. Without concurrent streams nothing is hidden.
  std::array<double, 3> exposed_communication_s{};
  std::array<double, num_work_kinds> kind_s{};  ///< by WorkKind: how long each kind was busy
};

/// Times of single operations for groups of one shape, looked up once for each different one.
/// What was not measured is scaled from the nearest measured work of its kind by amount(); a
/// collective over a part of the group from a group of the part's shape, one of an unmeasured shape
/// from the measured shape of nearest size; without any, from the memory's speed.
class OperationTimes {
 public:
  /// The profile outlives it.
  OperationTimes(const DeviceProfile& profile, GroupShape shape);

  [[nodiscard]] const DeviceProfile& profile() const { return *profile_; }
  [[nodiscard]] double slowdown() const { return slowdown_; }
  [[nodiscard]] double seconds(const Work& work);

 private:
  struct Slot {
    Work work;
    double seconds = -1;
  };
  [[nodiscard]] double look_up(const Work& work) const;
  [[nodiscard]] double estimate_collective(const Work& work) const;
  /// Measured: as many ranks as a part of the group has, inside a node or one on each, as there.
  [[nodiscard]] const GroupProfile* group_like_part(const Work& work) const;

  const DeviceProfile* profile_;
  GroupShape shape_;
  const GroupProfile* group_ = nullptr;
  double slowdown_ = 1;
  double seconds_per_byte_ = 0;
  std::vector<Slot> known_;  ///< by the hash of the work; a newer one takes an older one's place
};

/// A cycle, its middle micro-steps folded.
struct CycleTime {
  StepTime ends;              ///< first and last micro-step, and the update
  StepTime middle;            ///< of one middle micro-step
  std::int64_t num_ends = 0;  ///< micro-steps of `ends`: the last one may be a middle one
  /// Of a step of so many micro-steps in all.
  [[nodiscard]] StepTime with_micro_steps(std::int64_t count) const;
};

/// Of the plan's rank; partitions are padded to equal sizes, so that every rank takes as long.
[[nodiscard]] CycleTime cycle_time(const StepPlan& plan, OperationTimes& times);
[[nodiscard]] StepTime step_time(const StepPlan& plan, OperationTimes& times);

}  // namespace dstune
