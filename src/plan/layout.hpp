#pragma once
/// Which elements a rank holds: the flat order of stages 0 to 2, the shards of stage 3, and the
/// persistent tensors that follow from it.

#include <cstdint>
#include <utility>
#include <vector>

#include "emitter.hpp"
#include "pieces.hpp"

namespace dstune::plan {

/// Everything about partitioning. For a group of one there is nothing to partition: `stage` is 0,
/// or with an offloaded optimizer at most 2, where gradients still leave the device in buckets.
class Layout {
 public:
  Layout(const ParameterTable& table, int zero_stage, int group_size, int group_rank,
         bool is_optimizer_offloaded = false);

  [[nodiscard]] const ParameterTable& table() const { return *table_; }
  [[nodiscard]] const Parameter& parameter(int index) const {
    return table_->all()[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] int num_parameters() const { return static_cast<int>(table_->all().size()); }
  [[nodiscard]] int stage() const { return stage_; }
  [[nodiscard]] int group_size() const { return group_size_; }
  [[nodiscard]] int group_rank() const { return group_rank_; }

  /// Elements of the parameter tensor of this rank, padding included.
  [[nodiscard]] std::int64_t resident_elements() const { return resident_; }
  /// Elements that this rank updates, padding included.
  [[nodiscard]] std::int64_t own_elements() const { return own_; }
  /// Where they begin in the parameter tensor.
  [[nodiscard]] std::int64_t own_offset() const {
    return stage_ == 1 || stage_ == 2 ? own_ * group_rank_ : 0;
  }

  [[nodiscard]] bool is_optimizer_offloaded() const { return is_optimizer_offloaded_; }
  /// Stages 1 and 2: where the first parameter begins that the own part touches.
  [[nodiscard]] std::int64_t touched_begin() const { return touched(group_rank_).first; }
  /// Elements of all parameters that a rank's own part touches; of the rank with most.
  [[nodiscard]] std::int64_t most_touched_elements() const;
  [[nodiscard]] std::int64_t largest_parameter_elements() const;

  // Stage 3: every rank holds a shard of each piece. Beginnings are defined for one past the last,
  // too: the end.
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  /// The first piece of a parameter.
  [[nodiscard]] int piece_begin(int index) const {
    return piece_begin_[static_cast<std::size_t>(index)];
  }
  /// Elements of a rank's shard of a piece, and where it begins among the shards.
  [[nodiscard]] std::int64_t piece_shard_offset(int piece) const {
    return shard_offset_[static_cast<std::size_t>(piece)];
  }
  [[nodiscard]] std::int64_t piece_shard_elements(int piece) const {
    return piece_shard_offset(piece + 1) - piece_shard_offset(piece);
  }
  [[nodiscard]] std::int64_t shard_offset(int index) const {
    return piece_shard_offset(piece_begin(index));
  }
  /// Between a slab that begins at parameter `slab_first` and the shards of parameters
  /// [first, last) that begin at parameter `shards_first`.
  [[nodiscard]] std::vector<op::Reshard::Piece> resharding(int first, int last, int slab_first,
                                                           int shards_first) const;

 private:
  /// Beginning and end, in the flat order, of the parameters that a rank's own part touches.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> touched(int rank) const;

  const ParameterTable* table_;
  bool is_optimizer_offloaded_;
  int stage_, group_size_, group_rank_;
  std::int64_t resident_, own_;
  std::vector<Piece> pieces_;
  std::vector<int> piece_begin_;            // by parameter
  std::vector<std::int64_t> shard_offset_;  // by piece
};

/// The tensors that live from before the first cycle on.
struct PersistentTensors {
  TensorId parameters = no_tensor;
  TensorId kept = no_tensor;           ///< stage 3: parameters that stay whole
  TensorId gradients = no_tensor;      ///< whole and flat; stages 0 and 1
  TensorId own_gradients = no_tensor;  ///< of the own part; stages 1 to 3
  TensorId master = no_tensor;         ///< in 16-bit training, and wherever it is offloaded
  TensorId m = no_tensor, v = no_tensor;

  // Offloaded optimizer: what is above from own_gradients on is fp32 and on the host.
  TensorId gradient_staging = no_tensor;       ///< device; stages 1 and 2: the largest parameter's
  TensorId host_gradient_staging = no_tensor;  ///< its counterpart, which DeepSpeed never touches
  TensorId accumulated_gradients = no_tensor;  ///< host: sums over micro-steps; stages 2 and 3
  TensorId updated_parameters = no_tensor;     ///< host: on their way to the device; stages 1 and 2
};

/// `kept_elements`: of stage 3's parameters that stay whole.
PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout,
                                             const TrainingConfig& config,
                                             std::int64_t kept_elements);
/// Initial weights of what this rank holds, its master copy, and zeros.
void emit_initialize(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors);

}  // namespace dstune::plan
