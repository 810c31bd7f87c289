#pragma once
/// One operation of a plan after the other, onto the queues of a device, its host and its disk.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dstune/device/device.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/plan/trace.hpp"
#include "dstune/train/executor.hpp"
#include "executor/planned_memory.hpp"
#include "executor/step_inputs.hpp"
#include "executor/update_numbers.hpp"

namespace dstune::train {

constexpr bool is_micro_step(Segment::Kind kind) {
  return kind != Segment::Kind::update && kind != Segment::Kind::guarded_update;
}

constexpr bool is_of_device(Stream stream) {
  return stream == Stream::compute || stream == Stream::reduce || stream == Stream::gather ||
         stream == Stream::copy;
}

/// Of traced operations, between two waits of the host: so many that the waits take no time, so few
/// that the events take no memory.
constexpr int trace_stamps = 512;

/// Seconds since any moment, as a trace counts them.
[[nodiscard]] double seconds_by(TraceClock clock);

/// What the disk has been asked for when an event is recorded on one of its streams.
struct DiskTransfers {
  std::int64_t reads = 0, writes = 0;
};

/// What the operations of a step work with, and what they leave for those behind them.
struct StepState {
  StepState(const StepPlan& plan, Device& device, PlannedMemory& memory, DiskFile* disk,
            ProcessGroup& group, std::uint64_t seed);

  /// Forgets what the step before has left.
  void begin_step();
  void wait_for(const DiskTransfers& transfers);
  /// Where the operation's arithmetic is done.
  [[nodiscard]] const kernels::Table& table() const {
    return stream == Stream::host ? device.host_kernels() : device.kernels();
  }
  /// The sum over these ranks of what each has. Collective over the group.
  double sum_over(const RankRange& among, double mine);
  /// What op::FinishLoss has left to be done. Collective over the group.
  void finish_loss();

  const StepPlan& plan;
  Device& device;
  Queues& queues;
  PlannedMemory& memory;
  DiskFile* disk;
  ProcessGroup& group;
  std::uint64_t seed;
  StepInputs inputs;
  LossScaler scaler;
  bool clips_on_device;  ///< nobody else needs the norm

  Stream stream = Stream::compute;  ///< of the operation that is run
  bool is_traced = false;
  std::int64_t updates = 0;  ///< made before this step
  const op::FinishLoss* unfinished_loss = nullptr;
  double squares = 0;
  bool has_squares = false;
  float gradient_scale = 1;
  bool has_clipped = false;  ///< on the device, in this step
  StepOutcome outcome;
  std::vector<double> sums;  ///< one a rank, of the latest sum_over()
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
  /// What the device's queues are to be prepared for.
  static Queues::Numbers numbers(const StepPlan& plan);

  /// `disk`: only where the plan has something on one.
  Dispatch(const StepPlan& plan, Device& device, PlannedMemory& memory, DiskFile* disk,
           ProcessGroup& group, std::uint64_t seed);

  /// Forgets what earlier steps have left in the scalars.
  void begin_training();
  /// Where a trace is given, the step's operations are timed.
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
  /// Nothing is done. Where memory's account is closed and nothing is traced. Throws as the queues'
  /// recorder, kernels and the group do; nothing is recorded then.
  [[nodiscard]] Recorded record(const std::vector<Step>& steps);
  /// Whether there is work, and it is what run() would ask for now.
  [[nodiscard]] bool is_current(const Recorded& recorded) const {
    return recorded.work != nullptr && recorded.loss_scale == state_.scaler.scale();
  }
  void replay(const Recorded& recorded);

  /// Whether the step's update is to be left out.
  [[nodiscard]] bool is_skipped() const { return state_.outcome.skipped; }
  /// Waits for the device: a step's time is that of all its work. Collective over the group.
  const StepOutcome& end_step();

 private:
  /// What a traced operation is timed by: nothing where it is order alone.
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
  // Of the kind `order`.
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
  /// By the host's clock, which waits for the device. Null: making the tokens.
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

/// op::Reshard as copies: a tensor by its first byte and the size of an element.
struct ShardedBytes {
  std::byte* first;
  std::int64_t element_bytes;
  [[nodiscard]] std::byte* at(std::int64_t element) const {
    return first + element * element_bytes;
  }
};
/// So many elements from one tensor to the other, converted to its type.
using CopyElements = std::function<void(std::byte* to, const std::byte* from, std::int64_t count)>;
using ZeroBytes = std::function<void(std::byte* first, std::int64_t bytes)>;

void reshard(const op::Reshard& operation, std::span<const ReshardPiece> pieces, ShardedBytes slab,
             ShardedBytes shards, const CopyElements& copy, const ZeroBytes& zero);

}  // namespace dstune::train
