#pragma once
/// One operation of a plan after the other, onto the queues of a device, its host and its disk.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dstune/device/device.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/train/executor.hpp"
#include "executor/planned_memory.hpp"
#include "executor/step_inputs.hpp"

namespace dstune::train {

constexpr bool is_micro_step(Segment::Kind kind) {
  return kind != Segment::Kind::update && kind != Segment::Kind::guarded_update;
}

constexpr bool is_of_device(Stream stream) {
  return stream == Stream::compute || stream == Stream::reduce || stream == Stream::gather ||
         stream == Stream::copy;
}

/// Stamps of traced operations between two waits of the host. They are so many that the waits take
/// no time, and so few that the events take no memory.
constexpr int trace_stamps = 512;

/// A group whose members meet before each collective, so that what a member waits for its peers can
/// be told from what the collective takes.
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

/// Numbers of transfers that the disk has been asked for when an event is recorded on one of its
/// streams.
struct DiskTransfers {
  std::int64_t reads = 0, writes = 0;
};

/// Tells whether the host needs the gradients' norm: it decides about overflows in fp16, or updates
/// parameters itself. Local.
[[nodiscard]] bool needs_norm_on_host(const StepPlan& plan);

/// The state that the operations of a step work with, and that they leave for those behind them.
struct StepState {
  /// Forgets what the step before has left.
  void begin_step();
  void wait_for(const DiskTransfers& transfers);
  /// The kernels of the device that does the operation's arithmetic.
  [[nodiscard]] const kernels::Table& table() const {
    return stream == Stream::host ? device.host_kernels() : device.kernels();
  }
  /// The sum over these ranks of what each has. Collective over the group.
  double sum_over(const RankRange& among, double mine);
  /// Finishes the loss that op::FinishLoss has begun: the sum over the group by its targets.
  /// Collective over the group.
  void finish_loss();

  const StepPlan& plan;
  Device& device;
  PlannedMemory& memory;
  DiskFile* disk;
  ProcessGroup& group;
  std::uint64_t seed;

  Queues& queues = device.queues();
  StepInputs inputs{plan, device, seed, plan.num_events};
  LossScaler scaler{plan.config};
  /// Nobody else needs the norm.
  bool clips_on_device = device.is_asynchronous() && !needs_norm_on_host(plan);

  Stream stream = Stream::compute;  ///< of the operation that is run
  bool is_traced = false;
  std::int64_t updates = 0;  ///< made before this step
  const op::FinishLoss* unfinished_loss = nullptr;
  double squares = 0;
  bool has_squares = false;
  float gradient_scale = 1;
  bool has_clipped = false;  ///< on the device, in this step
  StepOutcome outcome{};
  /// One a rank, of the latest sum_over().
  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(group.size()));
};

/// Runs an operation of the kind `arithmetic`.
void run_arithmetic(const StepState& state, const Operation& operation);
/// Runs an operation of the kinds `copy`, `disk`, `collective` and `exchange`.
void run_communication(StepState& state, const Operation& operation);

/// A plan's streams on a device are queues, its events those of the queues. The host's stream is
/// this thread: what it is given is done before anything after it in the program is asked for, and
/// where it waits for the device this thread does. So it does for the disk, which is given
/// transfers when what they need is done, and runs beside. On a CPU all streams of the device run
/// in the program's order, too.
///
/// Within a step the host waits for the device only where it needs a number (DeepSpeed's host does
/// there, too), writes to memory that the device has read, or is asked to by the plan.
class Dispatch {
 public:
  /// The numbers that the device's queues are to be prepared for.
  static Queues::Numbers numbers(const StepPlan& plan);

  /// `disk`: only where the plan has something on one.
  Dispatch(const StepPlan& plan, Device& device, PlannedMemory& memory, DiskFile* disk,
           ProcessGroup& group, std::uint64_t seed);

  /// Forgets what earlier steps have left in the scalars.
  void begin_training();
  /// Times the step's operations if a trace is given.
  void begin_step(std::int64_t step, StepTrace* trace = nullptr,
                  TraceClock clock = TraceClock::elapsed);
  void begin_micro_step(std::int64_t micro_step);
  void run(const std::vector<Step>& steps);

  /// Operations that the device's queues have noted, in the place of run(): all of them are the
  /// queues', and what is given to them by value is the same in every step but the loss scale.
  struct Recorded {
    std::unique_ptr<Recording> work;
    std::vector<Phase> phases;  ///< that begin in it
    double loss_scale = 0;
    std::int64_t device_bytes = 0;  ///< that it took of the device's memory
  };
  [[nodiscard]] static bool is_recordable(const std::vector<Step>& steps);
  /// Records the steps without running them. It requires that memory's account is closed and
  /// nothing is traced. Throws as the queues' recorder, kernels and the group do; nothing is
  /// recorded then.
  [[nodiscard]] Recorded record(const std::vector<Step>& steps);
  /// Tells whether there is work, and it is what run() would ask for now.
  [[nodiscard]] bool is_current(const Recorded& recorded) const {
    return recorded.work != nullptr && recorded.loss_scale == state_.scaler.scale();
  }
  void replay(const Recorded& recorded);

  /// Tells whether the step's update is to be left out.
  [[nodiscard]] bool is_skipped() const { return state_.outcome.skipped; }
  /// Waits for the device: a step's time is that of all its work. Collective over the group.
  const StepOutcome& end_step();

 private:
  /// The clock that times a traced operation: none for operations that only order others.
  enum class TracedBy : std::uint8_t { nothing, stamps, host };
  /// An operation of the trace between two stamps.
  struct Stamped {
    std::size_t place;
    int first, last;
  };
  struct Event {
    Stream recorded_on = Stream::host;
    DiskTransfers transfers;
  };

  void run(const Operation& operation);
  // These follow operations of the kind `order`.
  void follow(const op::Acquire& o) { state_.memory.acquire(o.tensor); }
  void follow(const op::Release& o) { state_.memory.release(o.tensor); }
  void follow(const op::Mark& o) { begin_phase(o.phase); }
  void follow(const op::Record& o);
  void follow(const op::Wait& o);

  void use(Stream stream);
  void begin_phase(Phase phase);
  void add_up_phases();
  /// In a traced step: runs it, and adds to the trace what it took.
  void trace(const Step& step);
  [[nodiscard]] TracedBy traced_by(const Step& step) const;
  /// Times an operation by the host's clock, which waits for the device. Null: making the tokens.
  void end_operation(const Operation* operation);
  void trace_by_stamps(const Step& step);
  /// Waits, and reads the times of the operations that have stamps.
  void read_stamps();

  StepState state_;
  Queues& queues_;
  std::vector<Event> events_;
  std::int64_t step_ = 0;
  std::vector<Phase> phases_;  ///< the phase that begins with each stamp of the step

  StepTrace* trace_ = nullptr;
  TraceClock trace_clock_ = TraceClock::elapsed;
  double operation_began_s_ = 0;  ///< by that clock
  std::vector<Stamped> stamped_;  ///< and not read yet
  int first_trace_stamp_ = 0, trace_event_ = 0;
  int last_stamp_ = no_stamp;  ///< of an operation, if the queue has done nothing since
  Stream stamped_stream_ = Stream::compute;  ///< its

  static constexpr int no_stamp = -1;
};

/// A tensor by its first byte and its type.
struct TypedBytes {
  std::byte* first;
  DType type;
  [[nodiscard]] std::byte* at(std::int64_t element) const {
    return first + element * size_bytes(type);
  }
};
/// op::Reshard as copies, which convert where types differ.
void reshard(const kernels::Table& table, const op::Reshard& operation,
             std::span<const ReshardPiece> pieces, TypedBytes slab, TypedBytes shards);

}  // namespace dstune::train
