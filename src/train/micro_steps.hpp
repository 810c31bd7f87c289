#pragma once
/// The micro-steps of a plan: as recordings of the device's queues where they are the queues'
/// alone.

#include <cstdint>
#include <vector>

#include "dispatch.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

/// A recording is made of each segment when it is first run warm, and anew where the loss scale is
/// another one; it is destroyed with this. All ranks of a group record, or none: NCCL wants a
/// collective in all ranks' graphs or in nobody's. So a rank whose device refuses is followed by
/// the others, with one line in the log.
class MicroSteps {
 public:
  /// All outlive it.
  MicroSteps(const StepPlan& plan, Device& device, ProcessGroup& group, Dispatch& dispatch)
      : plan_(plan),
        device_(device),
        group_(group),
        dispatch_(dispatch),
        recorded_(plan.cycle.size()) {}

  /// One of a segment of the cycle. `is_warm`: nothing is traced, memory's account is closed, and
  /// libraries have chosen their algorithms; on all ranks. Collective over the group.
  void run(std::size_t segment, bool is_warm);
  /// What the device had less of when the recordings were made; 0 where it does not tell. Local.
  [[nodiscard]] std::int64_t recording_bytes() const;

 private:
  bool are_recorded();
  /// False: no segment will be.
  bool record(std::size_t segment);
  [[nodiscard]] bool can_be_recorded() const;
  /// Collective over the group.
  bool holds_on_all_ranks(bool mine);

  const StepPlan& plan_;
  Device& device_;
  ProcessGroup& group_;
  Dispatch& dispatch_;
  std::vector<Dispatch::Recorded> recorded_;  ///< one a segment of the cycle
  bool is_agreed_ = false, are_recorded_ = false;
};

}  // namespace dstune::train
