#include "dstune/train/executor.hpp"

#include "dispatch.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

bool is_micro_step(Segment::Kind kind) {
  return kind != Segment::Kind::update && kind != Segment::Kind::guarded_update;
}

}  // namespace

struct Executor::State {
  State(const StepPlan& step_plan, CpuDevice& device, ProcessGroup& group, std::uint64_t seed)
      : plan(step_plan),
        memory(step_plan, device.arena(), device.host_arena()),
        dispatch(step_plan, device.kernels(), memory, group, seed) {
    require(plan.group_size == group.size() && plan.group_rank == group.group_rank(),
            "the plan is of this rank of this group");
  }

  const StepPlan& plan;
  train::PlannedMemory memory;
  train::Dispatch dispatch;
};

Executor::Executor(const StepPlan& plan, CpuDevice& device, ProcessGroup& group, std::int64_t seed)
    : state_(std::make_unique<State>(plan, device, group, static_cast<std::uint64_t>(seed))) {}

Executor::~Executor() = default;

void Executor::initialize() {
  state_->dispatch.begin_training();
  state_->dispatch.run(state_->plan.initialize);
}

StepOutcome Executor::step(std::int64_t step) {
  train::Dispatch& dispatch = state_->dispatch;
  dispatch.begin_step(step);
  std::int64_t micro_step = 0;
  for (const Segment& segment : state_->plan.cycle) {
    if (segment.kind == Segment::Kind::guarded_update && dispatch.is_skipped()) continue;
    for (std::int64_t i = 0; i < segment.repeat; ++i) {
      if (is_micro_step(segment.kind)) dispatch.begin_micro_step(micro_step++);
      dispatch.run(segment.steps);
    }
  }
  if (!dispatch.is_skipped()) state_->memory.close_account();
  return dispatch.end_step();
}

void* Executor::address(TensorId tensor) const {
  return state_->memory.address(tensor);
}

}  // namespace dstune
