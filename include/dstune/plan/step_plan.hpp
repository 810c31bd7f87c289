#pragma once
/// A training step of one rank as a program: operations on streams over planned tensors. The effect
/// of a knob is written once, in the builder of this. The executor runs it, the memory plan adds it
/// up, the time model prices it. Knows no MPI and no device. All functions: Local.
///
/// The program is a cycle: segments for the first, middle (folded: `repeat` times) and last
/// micro-step, then the update. The last micro-step is one of the middle ones if it does nothing
/// else. In fp16 the work after the search for overflow is a segment of its own, left out if one is
/// found. A tensor has one place in the arena; what a segment acquires it releases, except
/// persistent tensors, which live from before the first cycle on.
///
/// Lifetimes: Acquire and Release stand in program order on the compute stream. A tensor that
/// another stream uses is acquired before an event that the other stream waits for. It is released
/// after compute has waited for one of that stream's events, so that places may be reused in
/// program order. At its end a segment has waited for the other streams; events are numbered anew
/// in each segment and reached once in it.
///
/// A rank has two memories, the device's and the host's, each with an arena of its own, and may
/// have a place on a disk. Offloaded states live in the host's or on the disk; op::Copy is the only
/// operation that touches both memories, op::ReadDisk and op::WriteDisk the only ones that touch
/// the disk. The host's own arithmetic is on the host stream.
///
/// In a group of one nothing is partitioned: every stage is then stage 0 without its all-reduce,
/// and no buckets are used; gradients go where the update reads them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/operands.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/operations/operation.hpp"

namespace dstune {

/// The category of a tensor's bytes in the memory account.
enum class Category {
  parameters,
  gradients,
  optimizer,
  activations,
  buckets,
  gathered,
  workspace,
  staging
};
inline constexpr int num_categories = 8;
[[nodiscard]] std::string_view to_text(Category category);

/// Tensors start at multiples of this and are booked in multiples of it.
inline constexpr std::int64_t tensor_alignment_bytes = 256;

/// Transfers between the host and a disk are of multiples of this, at multiples of it. If there is
/// a disk, the host's tensors and the disk's start at multiples of it, too.
inline constexpr std::int64_t disk_alignment_bytes = 4096;

enum class Memory : std::uint8_t { device, host, disk };
inline constexpr int num_memories = 3;

struct PlannedTensor {
  const char* name = "";  ///< what it holds, without the layer
  int layer = -1;
  Category category = Category::activations;
  DType dtype = DType::f32;
  std::int64_t elements = 0;
  std::int64_t padded_bytes = 0;   ///< rounded up to the alignment
  std::int64_t offset_bytes = -1;  ///< in the arena of its memory, or the file
  bool persistent = false;
  Memory memory = Memory::device;
};

struct Step {
  Stream stream = Stream::compute;
  Operation operation;

  Step() = default;
  /// The operation is made in its place: a whole Operation is as large as the largest.
  template <class Op>
  Step(Stream on, const Op& made) : stream(on), operation(made) {}
};

/// Steps that stand for those of equal layers: where equal layers are folded, they are run `times`
/// times, one run after the other.
struct RepeatedSteps {
  std::size_t begin = 0, end = 0;
  std::int64_t times = 1;
  /// Events from this one on are of equal layers: each run has its own ones. Those that come before
  /// are there once.
  int first_event = 0;
};

struct Segment {
  /// guarded_update: what is left out of a step that is skipped.
  enum class Kind { first_micro, middle_micro, last_micro, only_micro, update, guarded_update };
  Kind kind;
  std::int64_t repeat = 1;
  std::vector<Step> steps;
  Overheads overheads{};                  ///< of DeepSpeed in it, once
  std::vector<RepeatedSteps> repeated{};  ///< in their order; of a folded cycle alone
};

/// The figures of an arena: what the plan needs, exactly.
struct MemoryPlan {
  std::int64_t arena_bytes = 0;      ///< end of the highest tensor: the size of the arena
  std::int64_t peak_live_bytes = 0;  ///< most bytes booked at one instant (≤ arena_bytes)
  std::array<std::int64_t, num_categories> categories_at_peak{};  ///< of peak_live_bytes
};

struct StepPlan {
  ModelSpec model;
  TrainingConfig config;
  int group_size = 1;
  int group_rank = 0;
  std::vector<PlannedTensor> tensors;
  std::vector<ReshardPiece> reshard_pieces;
  std::vector<Step> initialize;  ///< run once, after the persistent tensors are acquired
  /// The first micro-steps of all, which differ from those of the first cycle. Stage 3 traces the
  /// model in one, and has not gathered yet what it keeps in the next. One segment each.
  std::vector<Segment> tracing;
  std::vector<Segment> cycle;  ///< one optimizer step
  MemoryPlan memory;           ///< the device's
  MemoryPlan host_memory;
  MemoryPlan disk;
  int num_events = 0;
};

[[nodiscard]] inline std::span<const ReshardPiece> pieces_of(const StepPlan& plan,
                                                             const op::Reshard& operation) {
  return std::span(plan.reshard_pieces).subspan(operation.first_piece, operation.num_pieces);
}

/// The tensors that an operation of the plan accesses, in the order of reads before writes of the
/// same.
[[nodiscard]] std::vector<Access> accesses(const StepPlan& plan, const Operation& operation);

/// An operation of a plan in a step that was run, and how long it took: what the executor measures
/// and the time model is fitted to.
struct TracedOperation {
  const Operation* operation = nullptr;  ///< the plan's; null: making a micro-step's tokens
  double seconds = 0;
};

/// The time that an operation is charged with.
enum class TraceClock : std::uint8_t {
  elapsed,  ///< all time from its begin to its end
  /// Only while this thread had a core: where ranks take turns on one, others may run in between
  /// for longer than the operation takes.
  own,
  /// Likewise, and so are whole steps and budgets: nobody else waits for this thread, so that the
  /// load of others is none of the step's time.
  own_alone,
};

/// In the order in which they were run. Two steady steps of a plan have equal operations.
using StepTrace = std::vector<TracedOperation>;

/// Targets of a sequence: all of its tokens, or those that are masked (15 %, at least one).
[[nodiscard]] std::int64_t targets_per_sequence(const ModelSpec& model,
                                                std::int64_t sequence_length);

/// The needs of the backend's libraries: bytes of scratch, asked once for each shape of a plan, and
/// the alignment of rows in bytes.
class WorkspaceSizes {
 public:
  virtual ~WorkspaceSizes() = default;
  virtual std::int64_t matmul(const op::Matmul& shape, DType type, DType out_type) const = 0;
  virtual std::int64_t norm(std::int64_t width) const = 0;
  virtual std::int64_t attention(std::int64_t batch, std::int64_t sequence, const ModelSpec& model,
                                 DType type) const = 0;
  /// kernels::Table::row_alignment_bytes.
  virtual std::int64_t row_alignment_bytes() const { return 1; }
};

/// The type of parameters, activations and gradients.
[[nodiscard]] constexpr DType element_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
  }
  return DType::f32;
}

/// The type of the buckets in which gradients are reduced.
[[nodiscard]] constexpr DType communication_type(const TrainingConfig& config) {
  switch (config.communication_data_type) {
    case CommunicationType::as_gradients:
      return element_type(config.precision);
    case CommunicationType::fp32:
      return DType::f32;
    case CommunicationType::fp16:
      return DType::f16;
    case CommunicationType::bf16:
      return DType::bf16;
  }
  return DType::f32;
}

/// Tells why DeepSpeed's own swapping, its leaf modules or its quantisation would fail with this
/// configuration on this model; empty if they would not. Such a configuration has no plan.
[[nodiscard]] std::string model_violation(const ModelSpec& model, const TrainingConfig& config,
                                          int group_size);

/// Tells why DeepSpeed would not run this configuration on a group of so many ranks, among whose
/// parts it wants to partition; empty if it would. Such a configuration has no plan.
[[nodiscard]] std::string partition_violation(const TrainingConfig& config, int group_size);

/// Builds the program of one rank. Memory does not depend on the rank.
/// Throws LogicError for a configuration that validation should have refused.
StepPlan build_step_plan(const ModelSpec& model, const TrainingConfig& config, int group_size,
                         int group_rank, const WorkspaceSizes& workspaces);

/// Builds plans of one model, one after another. It makes the plans' common parts once: the table
/// of parameters, and stage 3's gathers for all configurations that gather alike. The memory of a
/// plan is used again by the next one. So plans are built several times faster than by
/// build_step_plan.
class StepPlanner {
 public:
  /// The workspaces outlive it.
  StepPlanner(ModelSpec model, const WorkspaceSizes& workspaces);
  StepPlanner(StepPlanner&& other) noexcept;
  StepPlanner& operator=(StepPlanner&& other) noexcept;
  ~StepPlanner();

  /// Builds the plan like build_step_plan(). It holds until the next call.
  const StepPlan& plan(const TrainingConfig& config, int group_size, int group_rank = 0);
  /// Builds what memory is known from: the plan's tensors and figures, without its steps. It holds
  /// until the next call.
  const StepPlan& figures(const TrainingConfig& config, int group_size);
  /// Builds what times are known from: rank 0's cycle without the places and lifetimes of its
  /// tensors. Equal layers are folded where they provably repeat. It holds until the next call.
  const StepPlan& folded_cycle(const TrainingConfig& config, int group_size);

 private:
  friend StepPlan build_step_plan(const ModelSpec& model, const TrainingConfig& config,
                                  int group_size, int group_rank, const WorkspaceSizes& workspaces);
  struct Shared;
  struct Common;
  const StepPlan& all_of(Common&& common);

  std::unique_ptr<Shared> shared_;
  StepPlan plan_;
};

}  // namespace dstune
