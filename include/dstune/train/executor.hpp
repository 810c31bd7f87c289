#pragma once
/// Runs a StepPlan on a device: its operations in order, every tensor at its planned place. Their
/// times there are traced for the time model.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune {

struct StepOutcome {
  double loss = 0;
  double gradient_norm = 0;  ///< 0 where nothing is clipped, or the update is skipped
  double loss_scale = 1;  ///< what the loss was multiplied by before backward; other than 1 in fp16
  bool skipped = false;   ///< fp16: a gradient overflowed, so that the update was left out
  /// Skipped at the lowest loss scale, from stage 1 on: where DeepSpeed ends the training.
  bool scale_exhausted = false;
  std::array<double, 3> phase_s{};  ///< by Phase
};

/// Tells an executor whether to watch over its memory, for tests. red_zones: behind each tensor lie
/// as many bytes again that nothing may write. Acquired or released memory becomes bytes that are
/// NaN in every type, so that a read too early or too late shows in the losses. Both hold for the
/// first MiB. The arenas are twice as large, their accounts those of the plan.
enum class Guard { none, red_zones };

/// How a configuration's disk is read and written. Local.
[[nodiscard]] DiskAccess disk_access(const DiskUse& use);

/// The first steps of an executor on a device that are not like those that follow. In the first one
/// memory is touched, and code is compiled. On a GPU libraries choose their algorithms and load
/// code in two of them, and micro-steps are recorded in a third. Local.
[[nodiscard]] int steps_until_alike(const Device& device);

class Executor {
 public:
  /// Takes both arenas, and a file on the plan's disk, as large as the plan says. The plan, device
  /// and group outlive it; the group takes what lies in the device's memory. The waiter ends waits
  /// for the device.
  /// Local. Throws OutOfMemory.
  Executor(const StepPlan& plan, Device& device, ProcessGroup& group, std::int64_t seed,
           Guard guard = Guard::none, const Waiter& waiter = Waiter());
  ~Executor();

  /// Initial weights and optimizer state. Collective over the group.
  void initialize();
  /// Says, before the first step, that this process has run all operations of the plan: libraries
  /// have chosen, and code is loaded. The same on every rank of the group. Local.
  void expect_warm();
  /// As the function of this name, of this executor. Local.
  [[nodiscard]] int steps_until_alike() const;
  /// Optimizer step number `step`, from 0. Collective over the group. If a trace is given, the time
  /// of each operation by that clock is added to it.
  StepOutcome step(std::int64_t step, StepTrace* trace = nullptr,
                   TraceClock clock = TraceClock::elapsed);
  /// Goes on where another executor has used the device since its last step. The arenas in use are
  /// those that it was made in, and the group may be that of another attempt. Local.
  void resume(const Waiter& waiter);

  /// The memory of the device that recorded micro-steps took, which is in no plan; 0 if nobody
  /// tells. Local.
  [[nodiscard]] std::int64_t recording_bytes() const;
  /// Tells why micro-steps were not recorded though the device, and the plan, allow it. Empty where
  /// they were, where it was not asked for, and until the third step. Local.
  [[nodiscard]] const std::string& why_not_recorded() const;
  /// Tells whether there is something on a disk whose file system has to go through the system's
  /// cache. Local.
  [[nodiscard]] bool disk_is_buffered() const;
  /// The address of a planned tensor, perhaps in memory of the device; for tests. Local.
  [[nodiscard]] void* address(TensorId tensor) const;
  /// The tensors beyond whose end something was written so far, a few of them; they need red zones.
  /// Local.
  [[nodiscard]] std::vector<std::string> damage() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Seconds by that clock, from an instant of its own. Local.
[[nodiscard]] double seconds_by(TraceClock clock);
/// The clock of whole steps where their operations have this one.
[[nodiscard]] constexpr TraceClock clock_of_steps(TraceClock clock) {
  return clock == TraceClock::own_alone ? clock : TraceClock::elapsed;
}

/// The times of a plan's operations inside real steps, for the time model.
struct TracedSteps {
  std::vector<StepTrace> traces;  ///< what this rank waited for its peers is in none
  /// The times of steps without a trace, slowest rank, by clock_of_steps().
  std::vector<double> steps_s;
};

/// Runs the plan from its initial state, which is not timed, nor are the first steps. Then come a
/// step with and a step without a trace in turn, as few as tell something and no more once
/// `budget_s` is over. Nothing, on every rank, where a rank's memory does not hold it. The waiter
/// ends waits for the device; the group has its own. Collective over the group.
std::optional<TracedSteps> trace_steps(const StepPlan& plan, Device& device, ProcessGroup& group,
                                       std::int64_t seed, double budget_s, const Waiter& waiter,
                                       TraceClock clock = TraceClock::elapsed);

/// Median of what `timed` gives, seconds of something that the whole group does, slowest rank; as
/// often as tells something within `budget_s`, once before that. Collective over the group.
double median_together(ProcessGroup& group, double budget_s, const std::function<double()>& timed);
/// Likewise of how long the work takes by that clock. Collective over the group.
double time_together(ProcessGroup& group, double budget_s, const std::function<void()>& work,
                     TraceClock clock = TraceClock::elapsed);

/// The workspace sizes of the CPU's kernels, for building plans that it can run. Local.
class CpuWorkspaces : public WorkspaceSizes {
 public:
  explicit CpuWorkspaces(const kernels::Table& table) : table_(&table) {}
  std::int64_t matmul(const op::Matmul& shape, DType type, DType out_type) const override;
  std::int64_t norm(std::int64_t width) const override;
  std::int64_t attention(std::int64_t batch, std::int64_t sequence, const ModelSpec& model,
                         DType type) const override;
  std::int64_t row_alignment_bytes() const override { return table_->row_alignment_bytes; }

 private:
  const kernels::Table* table_;
};

/// Token t of sample s in step k (docs/inside/reference-step.md): skewed towards small numbers, so
/// that a model has something to learn. Local.
std::int32_t reference_token(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                             std::int64_t position, std::int64_t vocabulary);

/// Returns the position of masked token `number` of `count` of a sequence
/// (docs/inside/reference-step.md). One stands in each of `count` parts of the sequence that are as
/// equal as whole numbers allow. Local.
std::int64_t reference_masked_position(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                                       std::int64_t number, std::int64_t count,
                                       std::int64_t sequence_length);

/// Returns label `number` of a sequence, one of 0 … count − 1 (docs/inside/reference-step.md).
/// Local.
std::int32_t reference_label(std::uint64_t seed, std::int64_t step, std::int64_t sample,
                             std::int64_t number, std::int64_t count);

}  // namespace dstune
