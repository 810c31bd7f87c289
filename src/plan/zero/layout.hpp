#pragma once
/// Which elements a rank holds: the flat order of stages 0 to 2, the shards of stage 3, and the
/// persistent tensors that follow from it.

#include <cstdint>
#include <utility>
#include <vector>

#include "parts/pieces.hpp"
#include "program/emitter.hpp"
#include "zero/partition.hpp"

namespace dstune::plan {

/// Which of a rank's states are not on the device.
struct Offloaded {
  bool optimizer = false;
  bool parameters = false;  ///< stage 3
};

/// Everything about partitioning. For a group of one there is nothing to partition: `stage` is 0
/// unless something is offloaded.
class Layout {
 public:
  Layout(const ParameterTable& table, int zero_stage, const Partition& partition,
         Offloaded offloaded = {}, bool is_round_robin = false);

  [[nodiscard]] const ParameterTable& table() const { return *table_; }
  [[nodiscard]] const Parameter& parameter(int index) const {
    return table_->all()[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] int num_parameters() const { return static_cast<int>(table_->all().size()); }
  [[nodiscard]] int stage() const { return stage_; }
  /// Of the ranks that share one copy of the states, which are the whole group but with MiCS.
  [[nodiscard]] int group_size() const { return partition_.size; }
  [[nodiscard]] int group_rank() const { return partition_.rank; }
  [[nodiscard]] const Partition& partition() const { return partition_; }

  /// Stages 0 to 2: where a parameter begins in the parameter tensor. In the flat order, or with
  /// round_robin_gradients first every group_size-th parameter from the first on, then from the
  /// second on, and so on.
  [[nodiscard]] std::int64_t offset(int index) const {
    return offsets_.empty() ? parameter(index).offset : offsets_[static_cast<std::size_t>(index)];
  }
  /// Elements of the parameter tensor of this rank, padding included.
  [[nodiscard]] std::int64_t resident_elements() const { return resident_; }
  /// Elements that this rank updates, padding included.
  [[nodiscard]] std::int64_t own_elements() const { return own_; }
  /// Where they begin in the parameter tensor.
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
  /// The pieces whose shards are these elements.
  [[nodiscard]] PieceRange pieces_of(std::int64_t first, std::int64_t count) const;
  /// Adds what lies between a slab that begins at parameter `slab_first` and the shards of
  /// parameters [first, last) that begin at parameter `shards_first`.
  void add_resharding(std::vector<op::Reshard::Piece>& pieces, int first, int last, int slab_first,
                      int shards_first) const;

 private:
  void deal_out();
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

/// Elements of the own part that are updated together.
struct SubGroup {
  std::int64_t first = 0;
  std::int64_t count = 0;
  Memory memory = Memory::device;  ///< where the states are; on the device it updates them, too
  std::int64_t offset = 0;         ///< of its states in the tensors of that memory
  /// Of its moments, which stay on the host where `offload_ratio` is below 1 beside a disk.
  Memory moments_memory = Memory::device;
  std::int64_t moments_offset = 0;
  /// Its parameters are not among those that a disk leaves in the host's memory.
  bool swaps_parameters = false;
};

/// What the update reads and writes of the sub-groups of a memory.
struct UpdateStates {
  /// Of the own part. None where it is updated by a part of whole ones: stage 0, BF16_Optimizer.
  TensorId gradients = no_tensor;
  /// None where the parameters are in fp32 beside it and nothing is offloaded.
  TensorId master = no_tensor;
  TensorId m = no_tensor, v = no_tensor;  ///< where the optimizer has them
  /// A moment that DeepSpeed's Lion has outside of the device and never touches.
  TensorId unused = no_tensor;

  /// A state that DeepSpeed swaps, and where the sub-group has its own in it.
  struct Place {
    TensorId UpdateStates::*state;
    std::int64_t offset;
  };
  /// All of a sub-group on a disk, where they are there: the gradients come last.
  [[nodiscard]] std::vector<Place> swapped(const SubGroup& group) const {
    std::vector<Place> there{{&UpdateStates::master, group.offset}};
    if (group.moments_memory == group.memory) {
      for (const auto moment : {&UpdateStates::m, &UpdateStates::v, &UpdateStates::unused})
        if (this->*moment != no_tensor) there.push_back({moment, group.moments_offset});
    }
    there.push_back({&UpdateStates::gradients, group.offset});
    return there;
  }
};

/// The tensors that live from before the first cycle on.
struct PersistentTensors {
  /// On the host where they are offloaded; with a disk the first ones, none where it has them all.
  TensorId parameters = no_tensor;
  std::vector<View> shards;             ///< stage 3, by piece: where the own one is
  TensorId secondary = no_tensor;       ///< stage 3: parts of the second partition
  TensorId kept = no_tensor;            ///< stage 3: parameters that stay whole
  TensorId gradients = no_tensor;       ///< whole and flat; stages 0 and 1
  TensorId fp32_gradients = no_tensor;  ///< their sums, where these are fp32 in 16-bit training
  std::vector<SubGroup> sub_groups;
  UpdateStates on_device, on_host, on_disk;

  // Offloaded optimizer.
  TensorId gradient_staging = no_tensor;       ///< device; stages 1 and 2: the largest parameter's
  TensorId host_gradient_staging = no_tensor;  ///< its counterpart, which DeepSpeed never touches
  TensorId accumulated_gradients = no_tensor;  ///< host: sums over micro-steps; stages 2 and 3
  TensorId updated_parameters = no_tensor;     ///< host: on their way to the device; stages 1 and 2

  // Sub-groups on a disk.
  std::vector<TensorId> swap_buffers;   ///< host, each as large as the largest sub-group
  TensorId held_gradients = no_tensor;  ///< device: those that do not go to the disk

  // Shards on a disk.
  TensorId shards_on_disk = no_tensor;
  std::vector<TensorId> shard_buffers;  ///< host: what is read goes there
  TensorId updated_shards = no_tensor;  ///< host: a sub-group's, on their way to the disk
  [[nodiscard]] bool is_on_disk(View shard) const {
    return shards_on_disk != no_tensor && shard.tensor == shards_on_disk;
  }
};

/// Of master weights and of the gradients that they are updated by, where offloaded.
[[nodiscard]] inline DType master_type(const TrainingConfig& config) {
  return config.low_precision_master ? element_type(config.precision) : DType::f32;
}

/// Of the own gradients' sums over micro-steps, where they are not handed over to the update yet.
/// Stage 1 has sums in fp32 of all gradients instead, which it rounds before it reduces them.
[[nodiscard]] inline DType sum_type(const TrainingConfig& config) {
  const bool in_fp32 = config.zero_stage == 3 && config.fp32_gradient_accumulation;
  return in_fp32 ? DType::f32 : element_type(config.precision);
}

/// `kept_elements`: of stage 3's parameters that stay whole.
PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout,
                                             const TrainingConfig& config,
                                             std::int64_t kept_elements);
/// Initial weights of what this rank holds, its master copy, and moments.
void emit_initialize(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                     const TrainingConfig& config);

}  // namespace dstune::plan
