#pragma once
/// Writes a plan down: steps, tensors with their places, the memory figures, workspaces, events.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "dstune/plan/step_plan.hpp"
#include "program/arena_simulation.hpp"

namespace dstune::plan {

/// The element at `offset` of a tensor; no view of no tensor.
[[nodiscard]] inline View at(TensorId tensor, std::int64_t offset = 0) {
  return {tensor, offset};
}
[[nodiscard]] inline View moved(View view, std::int64_t elements) {
  return {view.tensor, view.offset_elements + elements};
}

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The parts of a plan that are written down.
enum class Contents : std::uint8_t {
  all,
  figures,  ///< no steps
  cycle,    ///< no places: no lifetimes, no workspaces, no memory figures
};

class Emitter {
 public:
  /// The plan has its model and configuration; what else it holds is dropped, its memory used
  /// again.
  Emitter(StepPlan& plan, const WorkspaceSizes& workspaces, Contents contents = Contents::all);

  /// Before the first segment only.
  TensorId persistent(const char* name, Category category, DType type, std::int64_t elements,
                      Memory memory = Memory::device);
  void write_initialize();
  void begin_segment(Segment::Kind kind, std::int64_t repeat) {
    begin_segment_of(plan_.cycle, kind, repeat);
  }
  void begin_tracing_segment(Segment::Kind kind) { begin_segment_of(plan_.tracing, kind, 1); }
  void end_segment();
  /// Writes the figures of the arenas.
  void finish();

  TensorId acquire(const char* name, int layer, Category category, DType type,
                   std::int64_t elements, Memory memory = Memory::device);
  /// Nothing where there is no tensor.
  void release(TensorId tensor);
  void release(std::initializer_list<TensorId> tensors) {
    for (const TensorId tensor : tensors) release(tensor);
  }

  /// A workspace that the operation needs is taken around it. (All such on the compute stream.)
  template <class Op>
  void emit(const Op& operation, Stream stream = Stream::compute) {
    if constexpr (requires { operation.collective(0); }) {
      count_call(*Op::traits.work, operation.collective(plan_.group_size));
    } else if constexpr (std::is_same_v<Op, op::Copy>) {
      count(Overhead::offload_copy);
    } else if constexpr (std::is_same_v<Op, op::CheckOverflow> ||
                         std::is_same_v<Op, op::ClipFactor>) {
      if (operation.over_group) count(Overhead::all_reduce_call);
    }
    if constexpr (requires { operation.workspace; }) {
      const TensorId scratch =
          is_placed_ ? borrow_workspace(workspace_bytes(operation)) : no_tensor;
      if (has_steps_) {
        // In its place: a copy right behind the assignment would wait for it.
        Step& step = steps_->emplace_back(stream, operation);
        std::get_if<Op>(&step.operation)->workspace = at(scratch);
      }
      return_workspace(scratch);
    } else if (has_steps_) {
      steps_->emplace_back(stream, operation);
    }
  }
  /// DeepSpeed does so in the segment, beside what its operations say.
  void count(Overhead overhead, double number = 1) {
    of(*overheads_, overhead) += number;
    if (!is_placed_) counted_.emplace_back(overhead, number);
  }

  /// An instant of the segment.
  struct Instant {
    std::size_t step = 0, counted = 0;
    int event = 0;
  };
  [[nodiscard]] Instant now() const { return {steps_->size(), counted_.size(), events_}; }
  /// All since `begin` happens `times` times. Events since `first_alike` are each run's own.
  void repeat(const Instant& first_alike, const Instant& begin, std::int64_t times);
  /// From now on others follow a gather before anybody waits for it, or not.
  void set_ahead(bool is_ahead) { is_ahead_ = is_ahead; }
  /// `add` appends the operation's pieces to the plan's.
  template <class Add>
  void reshard(op::Reshard operation, Add&& add, Stream stream = Stream::compute) {
    if (!has_steps_) return;
    std::vector<op::Reshard::Piece>& pieces = plan_.reshard_pieces;
    operation.first_piece = static_cast<int>(pieces.size());
    add(pieces);
    operation.num_pieces = static_cast<int>(pieces.size()) - operation.first_piece;
    emit(operation, stream);
  }

  /// A new event, reached when what the stream was given so far is done.
  int record(Stream stream);
  void wait(Stream stream, int event) { emit(op::Wait{event}, stream); }
  /// Returns the stream of work that may run beside compute: `stream`, after the work that compute
  /// was given so far, or compute itself.
  Stream begin_beside(bool overlap, Stream stream) {
    if (!overlap) return Stream::compute;
    wait(stream, record(Stream::compute));
    return stream;
  }

  [[nodiscard]] DType type() const { return type_; }
  [[nodiscard]] std::int64_t row_alignment_bytes() const {
    return workspaces_.row_alignment_bytes();
  }
  [[nodiscard]] std::int64_t elements(TensorId tensor) const {
    return plan_.tensors[tensor].elements;
  }

 private:
  struct MemoryAccount {
    ArenaSimulation arena{0};
    std::int64_t persistent_bytes = 0;
    std::array<std::int64_t, num_categories> live{};
    std::int64_t live_bytes = 0;
    std::int64_t alignment = tensor_alignment_bytes;  // a power of two
    bool is_at_peak = false;                          // the categories there are not written yet
    [[nodiscard]] std::int64_t padded(std::int64_t bytes) const {
      return (bytes + alignment - 1) & -alignment;
    }
  };

  void begin_segment_of(std::vector<Segment>& segments, Segment::Kind kind, std::int64_t repeat);
  void count_call(WorkKind kind, const op::Collective& call);
  TensorId place(const char* name, int layer, Category category, DType type, std::int64_t elements,
                 Memory memory);
  TensorId add(const char* name, int layer, Category category, DType type, std::int64_t elements,
               Memory memory, std::int64_t padded_bytes, ArenaSimulation::Taken taken);
  void remove_from_account(const PlannedTensor& tensor);
  TensorId borrow_workspace(std::int64_t bytes);
  void return_workspace(TensorId scratch);
  [[nodiscard]] MemoryPlan& figures_of(Memory memory);
  void write_peak(Memory memory);
  [[nodiscard]] MemoryAccount& account_of(Memory memory) {
    return accounts_[static_cast<std::size_t>(memory)];
  }
  std::int64_t workspace_bytes(const op::Matmul& operation);
  std::int64_t workspace_bytes(const op::NormBackward&) {
    return norm_bytes(plan_.model.hidden_size);
  }
  std::int64_t workspace_bytes(const op::BiasBackward& operation) {
    return norm_bytes(operation.width);
  }
  std::int64_t workspace_bytes(const op::HeadNormBackward& operation) {
    return norm_bytes(plan_.model.head_size *
                      (operation.spans_heads ? plan_.model.num_heads : std::int64_t{1}));
  }
  std::int64_t workspace_bytes(const op::AttentionForward&) const { return attention_bytes_; }
  std::int64_t workspace_bytes(const op::AttentionBackward&) const { return attention_bytes_; }
  std::int64_t matmul_bytes(const op::Matmul& operation);
  std::int64_t norm_bytes(std::int64_t width);
  void account(const PlannedTensor& tensor);

  StepPlan& plan_;
  const WorkspaceSizes& workspaces_;
  bool is_placed_, has_steps_;
  DType type_;
  std::int64_t attention_bytes_;
  std::vector<std::pair<op::Matmul, std::int64_t>> matmuls_;
  std::vector<std::pair<std::int64_t, std::int64_t>> norms_;

  std::vector<std::vector<Step>> spare_;  // empty, of an earlier plan's segments
  std::vector<Step>* steps_ = nullptr;
  Overheads uncounted_{};  // of what is run once
  Overheads* overheads_ = &uncounted_;
  std::vector<std::pair<Overhead, double>> counted_;  // in the segment, where layers are folded
  bool is_ahead_ = false;
  std::array<MemoryAccount, num_memories> accounts_;
  std::vector<int> blocks_;  // by tensor: in its arena
  int events_ = 0;
};

}  // namespace dstune::plan
