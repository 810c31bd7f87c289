#include "dstune/train/executor.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/train/agreement.hpp"
#include "executor/dispatch.hpp"

namespace dstune {
namespace {

using train::Dispatch;

/// Before micro-steps are recorded: libraries choose algorithms, and code is loaded.
constexpr int eager_steps = 2;
constexpr int recording_steps = 1;

std::size_t disk_operations(const StepPlan& plan) {
  const auto num_in = [](const std::vector<Step>& steps) {
    return std::ranges::count_if(
        steps, [](const Step& step) { return kind_of(step.operation) == OperationKind::disk; });
  };
  auto operations = num_in(plan.initialize);
  for (const Segment& segment : plan.tracing) operations += num_in(segment.steps);
  for (const Segment& segment : plan.cycle) operations += num_in(segment.steps);
  return static_cast<std::size_t>(operations);
}

/// Nothing where the plan has nothing on a disk.
std::unique_ptr<DiskFile> open_disk(const StepPlan& plan, MemoryBudget& budget) {
  if (plan.disk.arena_bytes == 0) return nullptr;
  const DiskUse& use = plan.config.disk;
  return std::make_unique<DiskFile>(use.folder, plan.disk.arena_bytes, disk_operations(plan),
                                    disk_access(use), budget);
}

/// Prepares the device's queues. They have then done all that they were asked before, so the
/// device's memory may be taken.
Device& prepared(Device& device, const StepPlan& plan, const Waiter& waiter) {
  device.queues().prepare(Dispatch::numbers(plan), waiter);
  return device;
}

/// The micro-steps of a plan: as recordings of the device's queues where they are the queues'
/// alone. A recording is made of each segment when it is first run warm, and anew where the loss
/// scale is another one; it is destroyed with this. All ranks of a group record, or none: NCCL
/// wants a collective in all ranks' graphs or in nobody's. So a rank whose device or NCCL refuses
/// is followed by the others, and the training goes on without recordings.
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
  void run(std::size_t segment, bool is_warm) {
    const Dispatch::Recorded& recorded = recorded_[segment];
    const bool is_replayed =
        is_warm && are_recorded() && (dispatch_.is_current(recorded) || record(segment));
    if (is_replayed) {
      dispatch_.replay(recorded);
    } else {
      dispatch_.run(plan_.cycle[segment].steps);
    }
  }

  /// Bytes that the recordings took of the device's memory; 0 if the device does not tell. Local.
  [[nodiscard]] std::int64_t recording_bytes() const {
    std::int64_t bytes = 0;
    for (const Dispatch::Recorded& recorded : recorded_) bytes += recorded.device_bytes;
    return bytes;
  }

  /// Says why a device that usually records did not. Empty if it did, or was not to. Local.
  [[nodiscard]] const std::string& why_not_recorded() const { return why_not_; }

 private:
  bool are_recorded() {
    if (!device_.is_asynchronous()) return false;
    if (!is_agreed_) {
      const bool is_possible = can_be_recorded();
      if (is_possible && !group_.is_recordable()) why_not_ = group_.why_not_recordable();
      are_recorded_ = holds_on_all_ranks(is_possible && why_not_.empty());
    }
    is_agreed_ = true;
    return are_recorded_;
  }

  /// False: no segment will be.
  bool record(std::size_t segment) {
    // Old recordings may be under way on any rank: one that fails from here on aborts at once.
    device_.queues().finish_all();
    holds_on_all_ranks(true);
    recorded_[segment] = {};
    const std::optional<std::int64_t> taken_before = device_.taken_bytes();
    train::Failure failure;
    try {
      recorded_[segment] = dispatch_.record(plan_.cycle[segment].steps);
    } catch (const CollectiveError&) {
      throw;
    } catch (const LogicError&) {
      throw;
    } catch (const std::runtime_error& error) {
      failure = {Status::failed, printable(error.what())};
    }
    const std::optional<std::int64_t> taken_after = device_.taken_bytes();
    if (taken_before && taken_after)
      recorded_[segment].device_bytes = std::max<std::int64_t>(0, *taken_after - *taken_before);
    failure = train::agree(group_, failure);
    are_recorded_ = !failure;
    if (are_recorded_) return true;
    why_not_ = failure.reason;
    recorded_ = std::vector<Dispatch::Recorded>(plan_.cycle.size());
    // A communicator that failed carries no micro-step at all.
    if (!holds_on_all_ranks(group_.is_recordable())) group_.renew(why_not_);
    return false;
  }

  [[nodiscard]] bool can_be_recorded() const {
    return device_.queues().recorder() != nullptr &&
           std::ranges::all_of(plan_.cycle, [](const Segment& segment) {
             return !train::is_micro_step(segment.kind) || Dispatch::is_recordable(segment.steps);
           });
  }

  /// Collective over the group.
  bool holds_on_all_ranks(bool mine) {
    const std::vector<double> all = group_.exchange(std::array{mine ? 1.0 : 0.0});
    return std::ranges::find(all, 0.0) == all.end();
  }

  const StepPlan& plan_;
  Device& device_;
  ProcessGroup& group_;
  Dispatch& dispatch_;
  std::vector<Dispatch::Recorded> recorded_;  ///< one a segment of the cycle
  bool is_agreed_ = false, are_recorded_ = false;
  std::string why_not_;
};

/// The first step builds matrix products and touches memory; of stage 3 it is another program.
constexpr std::int64_t warmup_steps = 2;
constexpr std::size_t min_steps = 2;
constexpr std::size_t max_steps = 15;
/// Short steps are run until they take this long together.
constexpr double enough_s = 0.1;
/// On a slow link a step takes seconds. One is enough of steps as long as this that the budget does
/// not have time for.
constexpr double long_step_s = 0.25;

/// The largest of every rank's. Collective over the group.
double slowest(ProcessGroup& group, double mine) {
  const std::vector<double> all = group.exchange(std::array{mine});
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

DiskAccess disk_access(const DiskUse& use) {
  // More blocks in flight no disk is faster for.
  constexpr std::int64_t max_threads = 64;
  const std::int64_t threads = std::min(max_threads, use.threads * use.queue_depth);
  return {.block_bytes = use.block_bytes, .threads = static_cast<int>(threads)};
}

int steps_until_alike(const Device& device) {
  return device.is_asynchronous() ? eager_steps + recording_steps : 1;
}

struct Executor::State {
  State(const StepPlan& step_plan, Device& step_device, ProcessGroup& step_group,
        std::uint64_t seed, Guard guard, const Waiter& waiter)
      : plan(step_plan),
        device(prepared(step_device, step_plan, step_group.watched(waiter))),
        group(step_group),
        memory(step_plan, device, guard),
        disk(open_disk(step_plan, device.disk_budget())),
        dispatch(step_plan, device, memory, disk.get(), group, seed),
        micro_steps(step_plan, device, group, dispatch) {
    require(plan.group_size == group.size() && plan.group_rank == group.group_rank(),
            "the plan is of this rank of this group");
  }

  const StepPlan& plan;
  Device& device;
  ProcessGroup& group;
  train::PlannedMemory memory;
  std::unique_ptr<DiskFile> disk;
  Dispatch dispatch;
  MicroSteps micro_steps;
  std::int64_t steps = 0;  // that have been run
  int eager_steps = dstune::eager_steps;
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

void Executor::expect_warm() {
  // The memory's account wants a step that runs the plan as a whole.
  state_->eager_steps = state_->plan.tracing.empty() ? 1 : eager_steps;
}

int Executor::steps_until_alike() const {
  const Device& device = state_->device;
  return device.is_asynchronous() ? state_->eager_steps + recording_steps
                                  : dstune::steps_until_alike(device);
}

StepOutcome Executor::step(std::int64_t step, StepTrace* trace, TraceClock clock) {
  Dispatch& dispatch = state_->dispatch;
  dispatch.begin_step(step, trace, clock);
  const StepPlan& plan = state_->plan;
  const bool is_warm = trace == nullptr && state_->steps >= state_->eager_steps &&
                       state_->memory.is_account_closed();
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
  // The plan has been run as a whole by then.
  ++state_->steps;
  if (!dispatch.is_skipped() && state_->steps > (plan.tracing.empty() ? 0 : 1))
    state_->memory.close_account();
  const StepOutcome& outcome = dispatch.end_step();
  state_->memory.check_red_zones();
  return outcome;
}

void Executor::resume(const Waiter& waiter) {
  prepared(state_->device, state_->plan, state_->group.watched(waiter));
}

std::int64_t Executor::recording_bytes() const {
  return state_->micro_steps.recording_bytes();
}

const std::string& Executor::why_not_recorded() const {
  return state_->micro_steps.why_not_recorded();
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

double seconds_by(TraceClock clock) {
  if (clock == TraceClock::elapsed) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::optional<TracedSteps> trace_steps(const StepPlan& plan, Device& device, ProcessGroup& group,
                                       std::int64_t seed, double budget_s, const Waiter& waiter,
                                       TraceClock clock) {
  const TraceClock whole = clock_of_steps(clock);
  const double began_s = seconds_by(whole);
  train::BarrierGroup rendezvous(group, clock);
  std::unique_ptr<Executor> executor;
  const train::Failure failure = train::agree(
      group, train::attempt([&] {
        executor = std::make_unique<Executor>(plan, device, rendezvous, seed, Guard::none, waiter);
      }));
  if (failure.status == Status::out_of_memory) return std::nullopt;
  if (failure) throw Error(failure.reason);

  executor->initialize();
  std::int64_t step = 0;
  double last_s = 0;
  const auto warm_up = [&](std::int64_t steps) {
    while (step < steps) {
      const double step_began_s = seconds_by(whole);
      executor->step(step++);
      last_s = seconds_by(whole) - step_began_s;
    }
  };
  warm_up(steps_until_alike(device));
  const double step_s = slowest(group, last_s);
  const bool is_long = step_s >= long_step_s && 2 * min_steps * step_s > budget_s;
  if (!is_long) warm_up(warmup_steps);
  TracedSteps traced;
  for (double spent_s = 0;;) {
    StepTrace& trace = traced.traces.emplace_back();
    rendezvous.begin(trace);
    executor->step(step++, &trace, clock);
    rendezvous.end();
    group.exchange(std::array{0.0});
    const double step_began_s = seconds_by(whole);
    executor->step(step++);
    traced.steps_s.push_back(slowest(group, seconds_by(whole) - step_began_s));
    spent_s += traced.steps_s.back();
    const bool is_enough = spent_s >= enough_s || traced.steps_s.size() >= max_steps ||
                           slowest(group, seconds_by(whole) - began_s) >= budget_s;
    if (is_enough && traced.steps_s.size() >= (is_long ? 1 : min_steps)) return traced;
  }
}

double median_together(ProcessGroup& group, double budget_s, const std::function<double()>& timed) {
  timed();
  std::vector<double> times_s;
  for (double spent_s = 0;
       times_s.size() < min_steps + 1 || (spent_s < budget_s && times_s.size() < max_steps);) {
    group.exchange(std::array{0.0});
    const double began_s = seconds_by(TraceClock::elapsed);
    times_s.push_back(slowest(group, timed()));
    spent_s += slowest(group, seconds_by(TraceClock::elapsed) - began_s);
  }
  const auto middle = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 2);
  std::nth_element(times_s.begin(), middle, times_s.end());
  return *middle;
}

double time_together(ProcessGroup& group, double budget_s, const std::function<void()>& work,
                     TraceClock clock) {
  return median_together(group, budget_s, [&] {
    const double began_s = seconds_by(clock);
    work();
    return seconds_by(clock) - began_s;
  });
}

}  // namespace dstune
