#include "dstune/train/executor.hpp"

#include <algorithm>
#include <optional>

#include "dispatch.hpp"
#include "dstune/base/error.hpp"
#include "micro_steps.hpp"

namespace dstune {
namespace {

/// Before micro-steps are recorded: libraries choose algorithms, and code is loaded.
constexpr int eager_steps = 2;

std::size_t disk_operations(const StepPlan& plan) {
  std::size_t operations = 0;
  const auto count = [&](const std::vector<Step>& steps) {
    operations +=
        static_cast<std::size_t>(std::count_if(steps.begin(), steps.end(), [](const Step& step) {
          return std::holds_alternative<op::ReadDisk>(step.operation) ||
                 std::holds_alternative<op::WriteDisk>(step.operation);
        }));
  };
  count(plan.initialize);
  for (const Segment& segment : plan.tracing) count(segment.steps);
  for (const Segment& segment : plan.cycle) count(segment.steps);
  return operations;
}

/// Nothing where the plan has nothing on a disk.
std::unique_ptr<DiskFile> open_disk(const StepPlan& plan, MemoryBudget& budget) {
  if (plan.disk.arena_bytes == 0) return nullptr;
  const DiskUse& use = plan.config.disk;
  return std::make_unique<DiskFile>(use.folder, plan.disk.arena_bytes, disk_operations(plan),
                                    disk_access(use), budget);
}

/// What was asked of the device before is done: its memory may be taken.
Device& prepared(Device& device, const StepPlan& plan, const Waiter& waiter) {
  device.queues().prepare(train::Dispatch::numbers(plan), waiter);
  return device;
}

}  // namespace

DiskAccess disk_access(const DiskUse& use) {
  // More blocks in flight no disk is faster for.
  constexpr std::int64_t most_threads = 64;
  const std::int64_t threads = std::min(most_threads, use.threads * use.queue_depth);
  return {.block_bytes = use.block_bytes, .threads = static_cast<int>(threads)};
}

int steps_until_alike(const Device& device) {
  constexpr int recording_steps = 1;
  return device.is_asynchronous() ? eager_steps + recording_steps : 0;
}

struct Executor::State {
  State(const StepPlan& step_plan, Device& step_device, ProcessGroup& group, std::uint64_t seed,
        Guard guard, const Waiter& waiter)
      : plan(step_plan),
        device(prepared(step_device, step_plan, group.watched(waiter))),
        memory(step_plan, device, guard),
        disk(open_disk(step_plan, device.disk_budget())),
        dispatch(step_plan, device, memory, disk.get(), group, seed),
        micro_steps(step_plan, device, group, dispatch) {
    require(plan.group_size == group.size() && plan.group_rank == group.group_rank(),
            "the plan is of this rank of this group");
  }

  const StepPlan& plan;
  Device& device;
  train::PlannedMemory memory;
  std::unique_ptr<DiskFile> disk;
  train::Dispatch dispatch;
  train::MicroSteps micro_steps;
  std::int64_t steps = 0;  // that have been run
};

Executor::Executor(const StepPlan& plan, Device& device, ProcessGroup& group, std::int64_t seed,
                   Guard guard, const Waiter& waiter)
    : state_(std::make_unique<State>(plan, device, group, static_cast<std::uint64_t>(seed), guard,
                                     waiter)) {}

Executor::~Executor() = default;

void Executor::initialize() {
  state_->dispatch.begin_training();
  state_->dispatch.run(state_->plan.initialize);
  state_->device.queues().finish_all();
}

StepOutcome Executor::step(std::int64_t step, StepTrace* trace, TraceClock clock) {
  train::Dispatch& dispatch = state_->dispatch;
  dispatch.begin_step(step, trace, clock);
  const StepPlan& plan = state_->plan;
  const bool is_warm =
      trace == nullptr && state_->steps >= eager_steps && state_->memory.is_account_closed();
  std::int64_t micro_step = 0;
  std::size_t next_tracing = state_->steps == 0 ? 0 : plan.tracing.size();
  for (std::size_t index = 0; index < plan.cycle.size(); ++index) {
    const Segment& segment = plan.cycle[index];
    if (segment.kind == Segment::Kind::guarded_update && dispatch.is_skipped()) continue;
    for (std::int64_t i = 0; i < segment.repeat; ++i) {
      if (!train::is_micro_step(segment.kind)) {
        dispatch.run(segment.steps);
        continue;
      }
      dispatch.begin_micro_step(micro_step++);
      if (next_tracing < plan.tracing.size()) {
        dispatch.run(plan.tracing[next_tracing++].steps);
      } else {
        state_->micro_steps.run(index, is_warm);
      }
    }
  }
  // By then the plan has been run as a whole.
  ++state_->steps;
  if (!dispatch.is_skipped() && state_->steps > (plan.tracing.empty() ? 0 : 1))
    state_->memory.close_account();
  const StepOutcome& outcome = dispatch.end_step();
  state_->memory.look_at_red_zones();
  return outcome;
}

std::int64_t Executor::recording_bytes() const {
  return state_->micro_steps.recording_bytes();
}

bool Executor::disk_is_buffered() const {
  return state_->disk != nullptr && !state_->disk->is_direct();
}

void* Executor::address(TensorId tensor) const {
  return state_->memory.address(tensor);
}

std::vector<std::string> Executor::damage() const {
  return state_->memory.damage();
}

}  // namespace dstune
