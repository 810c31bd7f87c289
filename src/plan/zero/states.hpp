#pragma once
/// The tensors that a rank keeps from step to step: which there are, where, how they begin, and how
/// an optimizer step renews them.

#include <cstdint>
#include <vector>

#include "program/emitter.hpp"
#include "zero/layout.hpp"

namespace dstune::plan {

struct Gathering;

/// Elements of the own part that are updated together.
struct SubGroup {
  std::int64_t first = 0;
  std::int64_t count = 0;
  Memory memory = Memory::device;  ///< where the states are; on the device it updates them, too
  std::int64_t offset = 0;         ///< of its states in the tensors of that memory
  /// The memory of its moments. They stay on the host if `offload_ratio` is below 1 beside a disk.
  Memory moments_memory = Memory::device;
  std::int64_t moments_offset = 0;
  /// Its parameters are not among those that a disk leaves in the host's memory.
  bool swaps_parameters = false;
};

/// Cuts the own part into sub-groups: one with all elements, or in stage 3 several with whole
/// parameters. Each takes parameters until they are as many as a sub-group holds.
///
/// Some sub-groups of an offloaded optimizer stay on the device if `offload_ratio` is below 1. A
/// disk takes only large sub-groups; small ones stay on the device or the host. A large one that
/// should stay on the device goes to the disk, too, but its moments stay on the host.
///
/// `num_others`: sub-groups of a few elements that come after these, such as one of parameters
/// without weight decay. They count for `offload_ratio` alone, and are not among the result.
[[nodiscard]] std::vector<SubGroup> cut_into_sub_groups(const Layout& layout,
                                                        const TrainingConfig& config,
                                                        std::size_t num_others = 0);
/// Elements of a tensor that holds master copies, or gradients, of all sub-groups of a memory.
[[nodiscard]] std::int64_t elements_in(const std::vector<SubGroup>& sub_groups, Memory memory);
/// Elements of a tensor that holds moments.
[[nodiscard]] std::int64_t moments_in(const std::vector<SubGroup>& sub_groups, Memory memory);

/// The tensors of a memory's sub-groups that the update reads and writes.
struct UpdateStates {
  /// Gradients of the own part. None if a part of whole gradients updates it: stage 0,
  /// BF16_Optimizer.
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
  [[nodiscard]] std::vector<Place> swapped(const SubGroup& group) const;
};

/// The tensors that live from before the first cycle on.
struct PersistentTensors {
  /// On the host where they are offloaded; with a disk the first ones, none where it has them all.
  TensorId parameters = no_tensor;
  std::vector<View> shards;             ///< stage 3, by piece: where the own one is
  TensorId secondary = no_tensor;       ///< stage 3: parts of the second partition
  TensorId kept = no_tensor;            ///< stage 3: parameters that stay whole
  TensorId gradients = no_tensor;       ///< whole and flat; stages 0 and 1, where they are kept
  TensorId fp32_gradients = no_tensor;  ///< their sums, where these are fp32 in 16-bit training
  std::vector<SubGroup> sub_groups;
  UpdateStates on_device, on_host, on_disk;

  // Offloaded optimizer.
  TensorId own_sums = no_tensor;               ///< device: stages 1 and 2, in fp32
  TensorId gradient_staging = no_tensor;       ///< device; stages 1 and 2: the largest parameter's
  TensorId host_gradient_staging = no_tensor;  ///< its counterpart, which DeepSpeed never touches
  TensorId accumulated_gradients = no_tensor;  ///< host: sums over micro-steps; stages 2 and 3
  /// Host: on their way to the device; stages 1 and 2, where a buffer is always there.
  TensorId updated_parameters = no_tensor;

  // Sub-groups on a disk.
  std::vector<TensorId> swap_buffers;   ///< host, each as large as the largest sub-group
  TensorId held_gradients = no_tensor;  ///< device: those that do not go to the disk

  // Shards on a disk.
  TensorId shards_on_disk = no_tensor;
  std::vector<TensorId> shard_buffers;  ///< host: what is read goes there
  TensorId updated_shards = no_tensor;  ///< host: a sub-group's, on their way to the disk
  [[nodiscard]] View shard(int piece) const { return shards[piece]; }
  [[nodiscard]] bool is_on_disk(View shard) const {
    return shards_on_disk != no_tensor && shard.tensor == shards_on_disk;
  }
};

/// Type of master weights, and of the gradients that update them, if they are offloaded.
[[nodiscard]] inline DType master_type(const TrainingConfig& config) {
  return config.low_precision_master ? element_type(config.precision) : DType::f32;
}

/// The own part of fp32 sums stays on the device until the update of an offloaded optimizer.
[[nodiscard]] inline bool keeps_sums_on_device(const TrainingConfig& config) {
  return config.switches.fp32_sums_stay_on_device && config.fp32_gradient_accumulation &&
         is_optimizer_offloaded(config) && config.zero_stage < 3;
}

/// Type of the own gradients' sums over micro-steps, until they are handed over to the update.
/// Stage 1 has sums in fp32 of all gradients instead, which it rounds before it reduces them.
[[nodiscard]] inline DType sum_type(const TrainingConfig& config) {
  const bool in_fp32 =
      config.fp32_gradient_accumulation && (config.zero_stage == 3 || keeps_sums_on_device(config));
  return in_fp32 ? DType::f32 : element_type(config.precision);
}

/// `kept_elements`: of stage 3's parameters that stay whole.
PersistentTensors declare_persistent_tensors(Emitter& emitter, const Layout& layout,
                                             const TrainingConfig& config,
                                             std::int64_t kept_elements);

/// The context that all parts of ZeRO write operations with; the members outlive its users.
struct ZeroContext {
  Emitter& emitter;
  const Layout& layout;
  const TrainingConfig& config;
  const PersistentTensors& tensors;
};

/// The base of a class that writes a part of ZeRO's operations.
class ZeroPart {
 protected:
  explicit ZeroPart(const ZeroContext& zero)
      : emitter_(zero.emitter),
        layout_(zero.layout),
        config_(zero.config),
        tensors_(zero.tensors) {}

  Emitter& emitter_;
  const Layout& layout_;
  const TrainingConfig& config_;
  const PersistentTensors& tensors_;
};

/// Initial weights of what this rank holds, its master copy, and moments.
void emit_initialize(const ZeroContext& zero);

/// One all-reduce of stage 0 is of whole parameters until they are more elements than this, a
/// constant in DeepSpeed.
inline constexpr std::int64_t stage0_chunk_elements = 500'000'000;

/// The segments after the micro-steps: stage 0's reduction, loss, overflow, clipping, the
/// optimizer, and the parameters of the other ranks. `gathering`: at stage 3 where it gathers.
void emit_update(const ZeroContext& zero, std::int64_t targets_per_sequence,
                 const Gathering* gathering);

}  // namespace dstune::plan
