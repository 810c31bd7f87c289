#pragma once
/// A group whose members meet before each collective, so that what a member waits for its peers can
/// be told from what the collective takes.

#include <array>
#include <utility>
#include <vector>

#include "dstune/group/process_group.hpp"
#include "dstune/plan/trace.hpp"
#include "executor/dispatch.hpp"

namespace dstune::train {

class BarrierGroup : public ForwardingGroup {
 public:
  /// The group outlives it. `clock`: the trace's.
  explicit BarrierGroup(ProcessGroup& group, TraceClock clock = TraceClock::elapsed)
      : ForwardingGroup(group), clock_(clock) {}

  /// Meets from now on, in a step whose operations are added to the trace one by one; on every
  /// member at the same place.
  void begin(StepTrace& trace) { trace_ = &trace; }
  /// Takes the waiting out of the operations in which it was.
  void end() {
    for (const auto& [place, waited_s] : waits_) (*trace_)[place].seconds -= waited_s;
    waits_.clear();
    trace_ = nullptr;
  }

 private:
  void before_collective() override {
    if (trace_ == nullptr || size() == 1) return;
    const double began_s = seconds_by(clock_);
    forwarded().exchange(std::array{0.0});
    waits_.emplace_back(trace_->size(), seconds_by(clock_) - began_s);
  }

  TraceClock clock_;
  StepTrace* trace_ = nullptr;
  std::vector<std::pair<std::size_t, double>> waits_;  ///< the operation's place, seconds
};

}  // namespace dstune::train
