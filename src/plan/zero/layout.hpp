#pragma once
/// Elements that each rank of a group holds: copies of the states and their parts, the flat order
/// of stages 0 to 2, the pieces and shards of stage 3.

#include <cstdint>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/operands.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune::plan {

/// The ranks of a group that share copies, seen from one of them. MiCS keeps a copy of all states
/// in each block of mics_shard_size ranks. hpZ keeps a second partition of the parameters in each
/// block of zero_hpz_partition_size. Blocks are of consecutive ranks, as in DeepSpeed
/// (runtime/zero/mics_utils.py, utils/groups.py).
struct Partition {
  int size = 1;           ///< ranks that share one copy of the states
  int rank = 0;           ///< the own place among them
  int replicas = 1;       ///< copies
  RankRange shards = {};  ///< the ranks that share a copy; all where there is one
  RankRange across = {};  ///< those that hold the same shards, where there are several copies

  int secondary_size = 0;  ///< ranks that share a second copy of the parameters; 0: there is none
  int secondary_rank = 0;
  RankRange secondary = {};

  /// Gathers in two levels; 0: in one. Ranks of a node that take part, those with the same place on
  /// each node, and those of the own node.
  int ranks_of_node = 0;
  RankRange across_nodes = {}, node = {};
};

/// Below stage 3, and in a group of one, all ranks share one copy and nothing else.
[[nodiscard]] Partition partition_of(const TrainingConfig& config, int group_size, int group_rank);

/// Nodes that a copy of MiCS spans, as DeepSpeed counts them: whole ones.
[[nodiscard]] std::int64_t spanned_nodes(const TrainingConfig& config);

/// A parameter of the Hugging Face model inside ours: where ours merges several matrices into one,
/// DeepSpeed partitions and gathers each of them.
struct Piece {
  int parameter = 0;       ///< of the table
  std::int64_t first = 0;  ///< element of it
  std::int64_t elements = 0;
};

/// Pieces [first, last) of the flat order.
struct PieceRange {
  int first = 0, last = 0;
  [[nodiscard]] int size() const { return last - first; }
  [[nodiscard]] bool contains(int piece) const { return first <= piece && piece < last; }
  [[nodiscard]] auto begin() const { return std::views::iota(first, last).begin(); }
  [[nodiscard]] auto end() const { return std::views::iota(first, last).end(); }
};

/// In the flat order.
[[nodiscard]] std::vector<Piece> cut_into_pieces(const ParameterTable& table);

/// The states of a rank that are not on the device.
struct Offloaded {
  bool optimizer = false;
  bool parameters = false;  ///< stage 3
};
[[nodiscard]] inline Offloaded offloaded_of(const TrainingConfig& config) {
  return {is_optimizer_offloaded(config), are_parameters_offloaded(config)};
}

/// How stages 1 and 2 lay parameters side by side.
struct ParameterOrder {
  bool is_round_robin = false;  ///< dealt out to the ranks in turn
  std::int64_t alignment = 1;   ///< elements; each but the first begins at a multiple
};
[[nodiscard]] ParameterOrder order_of(const TrainingConfig& config);

/// Everything about partitioning. For a group of one there is nothing to partition: `stage` is 0
/// unless something is offloaded.
class Layout {
 public:
  Layout(const ParameterTable& table, int zero_stage, const Partition& partition,
         Offloaded offloaded = {}, ParameterOrder order = {});

  [[nodiscard]] const ParameterTable& table() const { return *table_; }
  [[nodiscard]] const Parameter& parameter(int index) const { return table_->all()[index]; }
  [[nodiscard]] int num_parameters() const { return static_cast<int>(table_->all().size()); }
  [[nodiscard]] int stage() const { return stage_; }
  /// Number of ranks that share one copy of the states: the whole group unless MiCS is used.
  [[nodiscard]] int group_size() const { return partition_.size; }
  [[nodiscard]] int group_rank() const { return partition_.rank; }
  [[nodiscard]] const Partition& partition() const { return partition_; }

  /// Stages 0 to 2: where a parameter begins in the parameter tensor. In the flat order, or with
  /// round_robin_gradients first every group_size-th parameter from the first on, then from the
  /// second on, and so on; with parameter_alignment there is padding between them.
  [[nodiscard]] std::int64_t offset(int index) const {
    return offsets_.empty() ? parameter(index).offset : offsets_[index];
  }
  /// Elements of the parameter tensor of this rank, padding included.
  [[nodiscard]] std::int64_t resident_elements() const { return resident_; }
  /// Elements that this rank updates, padding included.
  [[nodiscard]] std::int64_t own_elements() const { return own_; }
  /// Offset of the own elements in the parameter tensor.
  [[nodiscard]] std::int64_t own_offset() const {
    return stage_ == 1 || stage_ == 2 ? own_ * group_rank() : 0;
  }

  [[nodiscard]] Offloaded offloaded() const { return offloaded_; }
  /// Stage 3: whole parameters are put together when they are needed, and released again.
  [[nodiscard]] bool gathers() const {
    return stage_ == 3 && (group_size() > 1 || offloaded_.parameters);
  }
  /// Stage 3: ranks whose shards make up one rank's part of the second partition.
  [[nodiscard]] int shards_of_secondary() const {
    return partition_.secondary_size == 0 ? 0 : group_size() / partition_.secondary_size;
  }
  /// Stages 1 and 2: where the first parameter begins that the own part touches.
  [[nodiscard]] std::int64_t touched_begin() const { return touched(group_rank()).first; }
  /// Elements of all parameters that a rank's own part touches; of the rank with most.
  [[nodiscard]] std::int64_t max_touched_elements() const;
  [[nodiscard]] std::int64_t largest_parameter_elements() const;

  // Stage 3: every rank holds a shard of each piece. Beginnings are defined for one past the last,
  // too: the end.
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  [[nodiscard]] const Piece& piece(int index) const { return pieces_[index]; }
  [[nodiscard]] int num_pieces() const { return static_cast<int>(pieces_.size()); }
  /// The first piece of a parameter.
  [[nodiscard]] int piece_begin(int index) const { return piece_begin_[index]; }
  [[nodiscard]] PieceRange pieces_of_parameter(int index) const {
    return pieces_of_parameters(index, index + 1);
  }
  /// Those of parameters [first, last).
  [[nodiscard]] PieceRange pieces_of_parameters(int first, int last) const {
    return {piece_begin(first), piece_begin(last)};
  }
  /// Elements of a rank's shard of a piece, and where it begins among the shards.
  [[nodiscard]] std::int64_t piece_shard_offset(int piece) const { return shard_offset_[piece]; }
  [[nodiscard]] std::int64_t piece_shard_elements(int piece) const {
    return piece_shard_offset(piece + 1) - piece_shard_offset(piece);
  }
  [[nodiscard]] std::int64_t shard_offset(int index) const {
    return piece_shard_offset(piece_begin(index));
  }
  /// The pieces whose shards are these elements.
  [[nodiscard]] PieceRange pieces_of(std::int64_t first, std::int64_t count) const;
  /// Adds what lies between a slab that begins at parameter `slab_first` and the shards of
  /// parameters [first, last) that begin at parameter `shards_first`.
  void add_resharding(std::vector<op::Reshard::Piece>& pieces, int first, int last, int slab_first,
                      int shards_first) const;

 private:
  /// Sets the offset at which each parameter begins, and returns the end of the last.
  std::int64_t place_parameters(const ParameterOrder& order);
  /// Beginning and end, in the parameter tensor, of the parameters that a rank's own part touches.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> touched(int rank) const;

  const ParameterTable* table_;
  Offloaded offloaded_;
  Partition partition_;
  int stage_;
  std::int64_t resident_, own_;
  std::vector<std::int64_t> offsets_;  // by parameter; none: as in the table
  std::vector<Piece> pieces_;
  std::vector<int> piece_begin_;            // by parameter
  std::vector<std::int64_t> shard_offset_;  // by piece
};

// How ZeRO++ cuts what it quantises, as DeepSpeed 0.19.6 does
// (runtime/zero/partition_parameters.py: CUDAQuantizer; runtime/comm/coalesced_collectives.py).

/// DeepSpeed's kernels read and write so many numbers at once.
inline constexpr std::int64_t quantized_at_once = 8;

/// Elements that share a scale when so many weights, a multiple of 8, are gathered. Their number is
/// the largest multiple of 8 that divides the weights and makes as many runs as runs of 8000 would
/// be, or more.
[[nodiscard]] std::int64_t weights_of_a_scale(std::int64_t elements);

/// Nodes over which gradients are reduced quantised; 0: they are not.
[[nodiscard]] int quantizing_nodes(const Layout& layout, const TrainingConfig& config);
/// A matrix that falls into even parts for all ranks; the gradients of everything else are reduced
/// as they are.
[[nodiscard]] bool is_gradient_quantized(const Layout& layout, const Piece& piece);
/// Elements that share a scale in the gradient of a matrix.
[[nodiscard]] std::int64_t gradients_of_a_scale(const Layout& layout, const Piece& piece);

/// The scales of such a matrix, and its longer side; rows and columns are told apart nowhere.
[[nodiscard]] std::int64_t scales_of_gradient(const Layout& layout, const Piece& piece);
[[nodiscard]] std::int64_t longer_side(const Layout& layout, const Piece& piece);

/// Says why DeepSpeed's quantisation of gradients would fail; empty if it would not.
[[nodiscard]] std::string gradients_violation(const Layout& layout, const TrainingConfig& config);

}  // namespace dstune::plan
