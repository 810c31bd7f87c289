#pragma once
/// A training step of one rank as a program: operations on streams over planned tensors. What a
/// knob does is written once, in the builder of this; the executor runs it, the memory plan adds it
/// up, the time model will price it. Knows no MPI and no device. All functions: Local.
///
/// The program is a cycle: segments for the first, middle (folded: `repeat` times) and last
/// micro-step, which is one of the middle ones where it does nothing else, then the update; in fp16
/// what follows the search for overflow is a segment of its own, left out where one is found. A
/// tensor has one place in the arena; what a segment acquires it releases, except persistent
/// tensors, which live from before the first cycle on.
///
/// Lifetimes: Acquire and Release stand in program order on the compute stream. What another
/// stream uses is acquired before an event it waits for, and released after compute has waited for
/// an event of it, so places may be reused in program order. At its end a segment has waited for
/// the other streams; events are numbered anew in each segment and reached once in it.
///
/// A rank has two memories, the device's and the host's, each with an arena of its own, and may
/// have a place on a disk. Offloaded states live in the host's or on the disk; op::Copy is the only
/// operation that touches both memories, op::ReadDisk and op::WriteDisk the only ones that touch
/// the disk. The host's own arithmetic is on the host stream.
///
/// In a group of one nothing is partitioned: every stage is then stage 0 without its all-reduce,
/// and no buckets are used; gradients go where the update reads them.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "dstune/base/dtype.hpp"
#include "dstune/base/rank_range.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/model/parameter_table.hpp"

namespace dstune {

/// What a tensor's bytes are booked under.
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

/// Transfers between the host and a disk are of multiples of this, at multiples of it. Where there
/// is a disk, the host's tensors and the disk's start at multiples of it, too.
inline constexpr std::int64_t disk_alignment_bytes = 4096;

enum class Memory : std::uint8_t { device, host, disk };
inline constexpr int num_memories = 3;

using TensorId = std::int32_t;
inline constexpr TensorId no_tensor = -1;

struct PlannedTensor {
  const char* name = "";  ///< what it holds, without the layer
  int layer = -1;
  Category category = Category::activations;
  DType dtype = DType::f32;
  std::int64_t elements = 0;
  std::int64_t booked_bytes = 0;   ///< rounded up to the alignment
  std::int64_t offset_bytes = -1;  ///< in the arena of its memory, or the file
  bool persistent = false;
  Memory memory = Memory::device;
};

/// A place inside a tensor.
struct View {
  TensorId tensor = no_tensor;
  std::int64_t offset_elements = 0;
  [[nodiscard]] explicit operator bool() const { return tensor != no_tensor; }
};

/// copy: of activations to the host's memory and back.
enum class Stream : std::uint8_t { compute, reduce, gather, host, copy, disk_read, disk_write };
inline constexpr int num_streams = 7;
enum class Phase : std::uint8_t { forward, backward, update };

namespace op {

// Lifetimes and order.
struct Acquire {
  TensorId tensor;
};
struct Release {
  TensorId tensor;
};
/// From here on time belongs to this phase. The head goes to and fro between forward and backward,
/// once for each chunk of its logits.
struct Mark {
  Phase phase;
};
/// Event `event` is reached when everything issued on the stream so far is done.
struct Record {
  int event;
};
struct Wait {
  int event;
};

// Initial state.
struct FillNormal {
  View out;
  int parameter;
  std::int64_t first_index, count;
  double standard_deviation;
};
struct Fill {
  View out;
  float value;
  std::int64_t count;
};

// Arithmetic. `rows` counts tokens; see kernels.hpp for the exact meaning of each.
struct EmbeddingForward {
  View out, token_table, position_table, type_row;
  std::int64_t rows;
};
struct EmbeddingBackward {
  View d_token_table, d_position_table, d_out;
  std::int64_t rows;
  bool accumulate_tokens, accumulate_positions;
};
/// rms: RMSNorm (no mean, no bias). x may be absent, then residual_out is residual.
struct NormForward {
  bool rms;
  View out, residual_out, mean, rstd, residual, x, weight, bias;
  std::int64_t rows;
};
struct NormBackward {
  bool rms;
  View d_x, d_weight, d_bias, d_out, input, mean, rstd, weight, workspace;
  std::int64_t rows;
  bool accumulate_input, accumulate_weights;
};
/// stride_a, stride_c: elements from one stored row of a and c to the next; 0: a row's own.
/// Where `activated` is given it gets the model's activation of c; where `pre_activation` is, c is
/// multiplied by the activation's slope there. Then all three are [m, n], and nothing is added to.
/// d_bias[m], of a gradient of weights, gets the column sums of a, its d_out, as c gets the
/// product.
struct Matmul {
  View a, b, bias, c, workspace;
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  std::int64_t stride_a = 0, stride_c = 0;
  View activated = {}, pre_activation = {}, d_bias = {};
};
/// Where no product reads d_out, too. stride: of its rows.
struct BiasBackward {
  View d_bias, d_out, workspace;
  std::int64_t rows, width, stride;
  bool accumulate;
};
/// RMSNorm of each head of q and k, in place; raw[rows, (heads + kv_heads)·head_size] and rstd are
/// kept for backward.
struct HeadNormForward {
  View qkv, raw, rstd, q_weight, k_weight;
};
struct HeadNormBackward {
  View d_qkv, d_q_weight, d_k_weight, raw, rstd, q_weight, k_weight, workspace;
  bool accumulate_weights;
};
struct Rotary {
  View qkv;
  bool inverse;
};
/// window: positions back that a token attends to, its own included; 0: all.
struct AttentionForward {
  View out, log_sum_exp, qkv, workspace;
  std::int64_t window;
};
struct AttentionBackward {
  View d_qkv, d_out, qkv, out, log_sum_exp, workspace;
  std::int64_t window;
};
/// gated: SwiGLU on [rows, 2·width], else the model's or the head's activation on [rows, width].
struct ActivationForward {
  bool gated;
  View out, x;
  std::int64_t rows, width;
};
struct ActivationBackward {
  bool gated;
  View d_x, d_out, x;
  std::int64_t rows, width;
};
/// Rows first_row … of the micro-step's targets. Logits become their gradient times `scale`, in
/// fp16 times the loss scale, too; rows without a target have neither loss nor gradient. From one
/// row of logits to the next there are `stride` elements.
struct CrossEntropy {
  View losses, logits;
  std::int64_t first_row, rows, stride;
  float scale;
};
/// x may have another type than y.
struct Add {
  View y, x;
  std::int64_t count;
};
struct Convert {
  View y, x;
  std::int64_t count;
};  ///< types are the tensors'
/// From one memory to the other; both views have the same type.
struct Copy {
  View y, x;
  std::int64_t count;
};
/// From the disk to the host; both views have the same type. What is transferred is rounded up to
/// the disk's alignment.
struct ReadDisk {
  View y, x;
  std::int64_t count;
};
/// From the host to the disk, likewise.
struct WriteDisk {
  View y, x;
  std::int64_t count;
};

/// Copies between whole parameters lying one after another ("slab") and the order in which shards
/// travel: [rank][parameter's 1/N], N being `num_ranks`, converting between the tensors' types.
/// Padding of a shard is zero-filled on the way out. Elements
/// r·shard_elements … of a piece in the slab lie at r·rank_stride + shard_offset in `shards`.
struct Reshard {
  struct Piece {
    std::int64_t slab_offset, elements, shard_offset, shard_elements;
  };
  View slab, shards;
  bool to_shards;
  int num_ranks;
  std::int64_t rank_stride;     ///< elements between two ranks' parts in `shards`
  int first_piece, num_pieces;  ///< of the plan's reshard_pieces
};

/// Each run of `group_elements` numbers of x, whole in x's order, to codes of 8 or 4 bits (two a
/// byte) and an fp32 scale; kernels.hpp has the formula. Runs do not reach across the equal parts
/// of x, one a rank of `nodes` nodes with `ranks_of_node` each, which change places: the part of
/// rank n·ranks_of_node + r lies at r·nodes + n in what comes out, so that what the ranks with the
/// same place on all nodes get is side by side.
struct Quantize {
  View codes, scales, x;
  int bits;
  std::int64_t count, group_elements;
  int nodes = 1, ranks_of_node = 1;
};
/// y[i] is the sum of what the codes [parts][count] stand for, divided by `divisor`.
struct Dequantize {
  View y, codes, scales;
  int bits;
  std::int64_t count, group_elements;
  int parts = 1, divisor = 1;
};

// Collectives over the group, or the part of it that this rank belongs to; sums are formed in fp32
// in rank order, averages divided, then rounded once.
struct AllReduceAverage {
  View data;
  std::int64_t count;
  RankRange among = {};
};
struct AllReduceSum {
  View data;
  std::int64_t count;
};
/// Only the root's data are the average after it, the others' are undefined.
struct ReduceAverage {
  View data;
  std::int64_t count;
  int root;
};
/// `in` is [ranks][count_per_rank]; out is outside of it.
struct ReduceScatterAverage {
  View out, in;
  std::int64_t count_per_rank;
  RankRange among = {};
};
/// `out` is [ranks][count_per_rank]; `in` may be its own slice of it.
struct AllGather {
  View out, in;
  std::int64_t count_per_rank;
  RankRange among = {};
};

/// `in` and `out`, which do not overlap, are [ranks][count_per_rank]: part r of `in` goes to rank
/// r, part r of `out` comes from it.
struct AllToAll {
  View out, in;
  std::int64_t count_per_rank;
  RankRange among = {};
};

// Scalars of the step, kept by the executor in double.
/// Adds the sum of `rows` losses to the step's loss.
struct AccumulateLoss {
  View losses;
  std::int64_t rows;
};
/// Mean over the targets of the group's global batch; the step's loss.
struct FinishLoss {
  std::int64_t global_targets;
};
struct AccumulateSquares {
  View gradient;
  std::int64_t count;
};
/// fp16: the squares become those of the ranks `among` where `over_group`. Where they are infinite
/// or NaN, as they are exactly where a gradient is, the step is skipped. The loss scale moves on,
/// and the update divides by what it is then, as in DeepSpeed: so also in the step that raises it.
struct CheckOverflow {
  bool over_group;
  RankRange among = {};
};
/// scale = 1 / max(1, (norm + 1e-6) / clip), as DeepSpeed; norm over the ranks where `over_group`.
/// In fp16 the norm is that of the gradients without the loss scale, and `scale` divides by that,
/// too.
struct ClipFactor {
  double clip;
  bool over_group;
  RankRange among = {};
};
/// One update by the configuration's optimizer. m and v: its first and second moment, absent where
/// it has none. model: absent in fp32.
struct UpdateParameters {
  View master, m, v, gradient, model;
  std::int64_t count;
};

}  // namespace op

using Operation = std::variant<
    op::Acquire, op::Release, op::Mark, op::Record, op::Wait, op::FillNormal, op::Fill,
    op::EmbeddingForward, op::EmbeddingBackward, op::NormForward, op::NormBackward, op::Matmul,
    op::BiasBackward, op::HeadNormForward, op::HeadNormBackward, op::Rotary, op::AttentionForward,
    op::AttentionBackward, op::ActivationForward, op::ActivationBackward, op::CrossEntropy, op::Add,
    op::Convert, op::Copy, op::ReadDisk, op::WriteDisk, op::Reshard, op::Quantize, op::Dequantize,
    op::AllReduceAverage, op::AllReduceSum, op::ReduceAverage, op::ReduceScatterAverage,
    op::AllGather, op::AllToAll, op::AccumulateLoss, op::FinishLoss, op::AccumulateSquares,
    op::CheckOverflow, op::ClipFactor, op::UpdateParameters>;
/// Plans are built by the thousand: an operation is bytes to copy, and nothing to take apart.
static_assert(std::is_trivially_copyable_v<Operation>);

struct Step {
  Stream stream = Stream::compute;
  Operation operation;

  Step() = default;
  /// The operation is made in its place: a whole Operation is as large as the largest.
  template <class Op>
  Step(Stream on, const Op& made) : stream(on), operation(made) {}
};

struct Segment {
  /// guarded_update: what is left out of a step that is skipped.
  enum class Kind { first_micro, middle_micro, last_micro, only_micro, update, guarded_update };
  Kind kind;
  std::int64_t repeat = 1;
  std::vector<Step> steps;
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
  std::vector<op::Reshard::Piece> reshard_pieces;
  std::vector<Step> initialize;  ///< run once, after the persistent tensors are acquired
  /// What the first micro-steps of all do instead of those of the first cycle: stage 3 traces the
  /// model in one, and has not gathered yet what it keeps in the next. One segment each.
  std::vector<Segment> tracing;
  std::vector<Segment> cycle;  ///< one optimizer step
  MemoryPlan memory;           ///< the device's
  MemoryPlan host_memory;
  MemoryPlan disk;
  int num_events = 0;
};

[[nodiscard]] inline std::span<const op::Reshard::Piece> pieces_of(const StepPlan& plan,
                                                                   const op::Reshard& operation) {
  return std::span(plan.reshard_pieces)
      .subspan(static_cast<std::size_t>(operation.first_piece),
               static_cast<std::size_t>(operation.num_pieces));
}

/// Targets of a sequence: all of its tokens, or those that are masked (15 %, at least one).
[[nodiscard]] std::int64_t targets_per_sequence(const ModelSpec& model,
                                                std::int64_t sequence_length);

/// What the backend's libraries want of memory, in bytes: scratch, asked once for each shape of a
/// plan, and where rows begin.
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

/// Of parameters, activations and gradients.
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

/// Of the buckets in which gradients are reduced.
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

/// Why DeepSpeed's own swapping, its leaf modules or its quantisation would fail with this
/// configuration on this model; empty where they would not. Such a configuration has no plan.
[[nodiscard]] std::string model_objection(const ModelSpec& model, const TrainingConfig& config,
                                          int group_size);

/// Why DeepSpeed would not run this configuration on a group of so many ranks, whose parts it wants
/// to partition among; empty where it would. Such a configuration has no plan.
[[nodiscard]] std::string partition_objection(const TrainingConfig& config, int group_size);

/// Builds the program of one rank. Memory does not depend on the rank.
/// Throws LogicError for a configuration that validation should have refused.
StepPlan build_step_plan(const ModelSpec& model, const TrainingConfig& config, int group_size,
                         int group_rank, const WorkspaceSizes& workspaces);

}  // namespace dstune
