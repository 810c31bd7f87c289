#pragma once
/// Which elements a rank holds: the flat order of stages 0 to 2, the shards of stage 3, and the
/// persistent tensors that follow from it.

#include <cstdint>
#include <vector>

#include "emitter.hpp"

namespace dstune::plan {

/// Everything about partitioning. `stage` is 0 for a group of one: there is nothing to partition.
class Layout {
 public:
  Layout(const ParameterTable& table, int zero_stage, int group_size, int group_rank);

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

  /// Stage 3: elements of a rank's shard of a parameter, and where it begins among the shards.
  /// Defined for one past the last parameter, too: the end.
  [[nodiscard]] std::int64_t shard_offset(int index) const {
    return shard_offset_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int64_t shard_elements(int index) const {
    return shard_offset(index + 1) - shard_offset(index);
  }
  /// Pieces between a slab that begins at parameter `slab_first` and the shards of parameters
  /// [first, last) that begin at parameter `shards_first`.
  [[nodiscard]] std::vector<op::Reshard::Piece> pieces(int first, int last, int slab_first,
                                                       int shards_first) const;

 private:
  const ParameterTable* table_;
  int stage_, group_size_, group_rank_;
  std::int64_t resident_, own_;
  std::vector<std::int64_t> shard_offset_;
};

/// The tensors that live from before the first cycle on.
struct PersistentTensors {
  TensorId parameters = no_tensor;
  TensorId gradients = no_tensor;      ///< whole and flat; stages 0 and 1
  TensorId own_gradients = no_tensor;  ///< of the own part; stages 1 to 3
  TensorId master = no_tensor;         ///< in 16-bit training
  TensorId m = no_tensor, v = no_tensor;
};

PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout);
/// Initial weights of what this rank holds, its master copy, and zeros.
void emit_initialize(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors);

}  // namespace dstune::plan
