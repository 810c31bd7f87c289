#pragma once
/// One operation of a plan after the other, onto the queues of a device, its host and its disk.

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "dstune/device/device.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/plan/trace.hpp"
#include "dstune/train/executor.hpp"
#include "loss_scaler.hpp"
#include "planned_memory.hpp"
#include "step_inputs.hpp"

namespace dstune::train {

constexpr bool is_micro_step(Segment::Kind kind) {
  return kind != Segment::Kind::update && kind != Segment::Kind::guarded_update;
}

constexpr bool is_of_device(Stream stream) {
  return stream == Stream::compute || stream == Stream::reduce || stream == Stream::gather ||
         stream == Stream::copy;
}

template <class Op, class... Others>
constexpr bool is_one_of = (... || std::is_same_v<Op, Others>);

/// Of traced operations, between two waits of the host: so many that the waits take no time, so few
/// that the events take no memory.
constexpr int trace_stamps = 512;

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
    return recorded.work != nullptr && recorded.loss_scale == scaler_.scale();
  }
  void replay(const Recorded& recorded);

  /// Whether the step's update is to be left out.
  [[nodiscard]] bool is_skipped() const { return outcome_.skipped; }
  /// Waits for the device: a step's time is that of all its work. Collective over the group.
  const StepOutcome& end_step();

  void operator()(const op::Acquire& o) { memory_.acquire(o.tensor); }
  void operator()(const op::Release& o) { memory_.release(o.tensor); }
  void operator()(const op::Mark& o);
  void operator()(const op::Record& o);
  void operator()(const op::Wait& o);
  void operator()(const op::FillNormal& o);
  void operator()(const op::Fill& o);
  void operator()(const op::EmbeddingForward& o);
  void operator()(const op::EmbeddingBackward& o);
  void operator()(const op::NormForward& o);
  void operator()(const op::NormBackward& o);
  void operator()(const op::Matmul& o);
  void operator()(const op::BiasBackward& o);
  void operator()(const op::HeadNormForward& o);
  void operator()(const op::HeadNormBackward& o);
  void operator()(const op::Rotary& o);
  void operator()(const op::AttentionForward& o);
  void operator()(const op::AttentionBackward& o);
  void operator()(const op::ActivationForward& o);
  void operator()(const op::ActivationBackward& o);
  void operator()(const op::CrossEntropy& o);
  void operator()(const op::Add& o);
  void operator()(const op::Convert& o);
  void operator()(const op::Copy& o);
  void operator()(const op::ReadDisk& o);
  void operator()(const op::WriteDisk& o);
  void operator()(const op::Reshard& o);
  void operator()(const op::Quantize& o);
  void operator()(const op::Dequantize& o);
  void operator()(const op::AllReduceAverage& o);
  void operator()(const op::AllReduceSum& o);
  void operator()(const op::ReduceAverage& o);
  void operator()(const op::ReduceScatterAverage& o);
  void operator()(const op::AllGather& o);
  void operator()(const op::AllToAll& o);
  void operator()(const op::AccumulateLoss& o);
  void operator()(const op::FinishLoss& o);
  void operator()(const op::AccumulateSquares& o);
  void operator()(const op::CheckOverflow& o);
  void operator()(const op::ClipFactor& o);
  void operator()(const op::UpdateParameters& o);

 private:
  /// What the disk has been asked for when an event is recorded on one of its streams.
  struct Transfers {
    std::int64_t reads = 0, writes = 0;
  };
  /// What a traced operation is timed by: nothing where it is order alone.
  enum class TracedBy : std::uint8_t { nothing, stamps, host };
  /// An operation of the trace between two stamps.
  struct Stamped {
    std::size_t place;
    int first, last;
  };
  struct Event {
    Stream recorded_on = Stream::host;
    Transfers transfers;
  };

  /// The address of a view as the kernel wants it.
  template <class T = void>
  [[nodiscard]] T* at(const View& view) const {
    return reinterpret_cast<T*>(memory_.address(view));
  }
  [[nodiscard]] kernels::DType type(const View& view) const {
    return kernel_type(memory_.type(view));
  }
  /// Where the operation's arithmetic is done.
  [[nodiscard]] const kernels::Table& table() const {
    return stream_ == Stream::host ? device_.host_kernels() : device_.kernels();
  }
  [[nodiscard]] kernels::AttentionShape attention_shape(const View& qkv) const;
  void use(Stream stream);
  double sum_over(const RankRange& among, double mine);
  /// The host waits.
  void fetch_squares();
  void clip_on_device(const op::ClipFactor& o);
  void finish_loss();
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
  void wait_for(const Transfers& transfers);
  [[nodiscard]] std::int64_t transfer_bytes(const View& view, std::int64_t count) const;

  const StepPlan& plan_;
  Device& device_;
  Queues& queues_;
  PlannedMemory& memory_;
  DiskFile* disk_;
  ProcessGroup& group_;
  std::uint64_t seed_;
  StepInputs inputs_;
  std::vector<double> sums_;  ///< one a rank, of the latest sum_over()

  LossScaler scaler_;

  Stream stream_ = Stream::compute;  // of the operation that is run
  std::vector<Event> events_;
  std::int64_t step_ = 0;
  std::int64_t updates_ = 0;  ///< made before this step
  const op::FinishLoss* unfinished_loss_ = nullptr;
  double squares_ = 0;
  bool has_squares_ = false;
  float gradient_scale_ = 1;
  bool clips_on_device_;      ///< nobody else needs the norm
  bool has_clipped_ = false;  ///< on the device, in this step
  StepOutcome outcome_;
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

/// Kernel shapes of planned operations.
kernels::MatmulShape matmul_shape(const op::Matmul& o, DType type, DType out_type);
kernels::AttentionShape attention_shape(std::int64_t batch, std::int64_t sequence,
                                        const ModelSpec& model, DType type);

struct UpdateNumbers {
  std::int64_t update;  ///< from 0
  float gradient_scale;
  bool on_host;  ///< by DeepSpeed's optimizer for the host, where it has one
};
kernels::AdamStep adam_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);
kernels::LionStep lion_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);
kernels::SgdStep sgd_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);
kernels::AdagradStep adagrad_step(const OptimizerConfig& optimizer, const UpdateNumbers& numbers);

}  // namespace dstune::train
