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
  std::int64_t steps = 0;  // that have been run
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
  const StepPlan& plan = state_->plan;
  std::int64_t micro_step = 0;
  std::size_t next_tracing = state_->steps == 0 ? 0 : plan.tracing.size();
  for (const Segment& segment : plan.cycle) {
    if (segment.kind == Segment::Kind::guarded_update && dispatch.is_skipped()) continue;
    for (std::int64_t i = 0; i < segment.repeat; ++i) {
      if (is_micro_step(segment.kind)) dispatch.begin_micro_step(micro_step++);
      const bool is_replaced = next_tracing < plan.tracing.size();
      dispatch.run(is_replaced ? plan.tracing[next_tracing++].steps : segment.steps);
    }
  }
  // By then the plan has been run as a whole.
  ++state_->steps;
  if (!dispatch.is_skipped() && state_->steps > (plan.tracing.empty() ? 0 : 1))
    state_->memory.close_account();
  return dispatch.end_step();
}

void* Executor::address(TensorId tensor) const {
  return state_->memory.address(tensor);
}

}  // namespace dstune
