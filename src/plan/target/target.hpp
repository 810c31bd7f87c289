#pragma once
/// The target's memory, whose parts docs/inside/memory.md explains: what it is made of, the states
/// and buffers of DeepSpeed's ZeRO, the activations of Hugging Face's modules, what is on the host.

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"
#include "zero/gathering.hpp"

namespace dstune::plan {

/// The parameters that train where others are frozen: LoRA's matrices, and those that a pattern
/// names. Counts in elements.
struct TrainedParameters {
  std::int64_t elements = 0;          ///< in all
  std::int64_t added = 0;             ///< of these, LoRA's, which the model has not
  std::int64_t adapters = 0;          ///< modules that LoRA wraps
  std::int64_t of_layer = 0;          ///< of the last block
  std::int64_t largest = 0;           ///< parameter
  std::int64_t largest_of_layer = 0;  ///< … of a block
  std::int64_t largest_unit = 0;      ///< a block, or the embeddings
  bool has_table = false;             ///< the table of tokens trains
  std::set<ParameterRole> roles;      ///< that something of trains, or LoRA adds to
};

/// The counts that the target's memory is calculated from, in elements: of the model, and of one
/// rank's own part.
struct TargetCounts {
  std::int64_t parameters, own_parameters, secondary, persistent, largest_parameter;
  std::int64_t padding;  ///< between parameters, of parameter_alignment
  // Parameters that train, which are all but with LoRA and frozen parts: in all, of a rank, …
  std::int64_t trained, own, own_whole, largest_unit;
  std::int64_t largest_gradient, largest_of_layer;  ///< of one parameter, of one of a layer
  std::int64_t largest_scales;                      ///< of a quantised gradient
  std::optional<TrainedParameters> parts;           ///< where others are frozen
  std::int64_t table;                               ///< of tokens
  std::int64_t head;          ///< gradients that exist in the backward of the last layer
  std::int64_t embeddings;    ///< gradients that do not yet in that of the first
  std::int64_t table_copies;  ///< of its gradient, beside it, as backward ends
  // Gathered by stage 3: there as backward begins, at most; in one call of several parameters at
  // most, or of one.
  std::int64_t left_of_forward, max_gathered, gathered_together, gathered_alone;
  // Weights of linear layers that stage 3 gathers and releases: all, a block's, the head's.
  std::int64_t linear, linear_of_layer, linear_of_head;
  // Parts of the own part if the optimizer is offloaded.
  std::int64_t updated_on_device;  ///< by it, all the same
  std::int64_t updated_on_host;    ///< by states that are always there
  std::int64_t largest_on_disk;    ///< sub-group
  std::int64_t moments_on_host;    ///< whose master copy is on a disk
  std::int64_t held_gradients;     ///< on the device, on their way to an optimizer on a disk
  std::vector<std::int64_t> secondary_shards;  ///< of hpZ, one by one
  /// Gradients of the sub-groups, one by one, where the optimizer is offloaded at stage 3. On GPUs
  /// they are made on the host wherever the sub-group is updated.
  std::vector<std::int64_t> host_gradients;
  // Parts of the own part if parameters are on a disk.
  std::vector<std::int64_t> small_shards;  ///< that stay on the host, one by one
  std::int64_t written_together;           ///< in whole transfers, a sub-group's
  std::int64_t disk_bytes;                 ///< of files
};

/// A matrix [rows, columns] that LoRA targets gets two: [rank, columns] and [rows, rank]
/// (peft/tuners/lora/layer.py). Names are Hugging Face's.
[[nodiscard]] TrainedParameters count_trained(const ParameterTable& table,
                                              const Trainable& trainable);

/// `gatherings`: the model's. `group_size`: of the ranks that share one copy of the states. On GPUs
/// parameters with and
/// without weight decay are two groups of the optimizer, as Hugging Face's Trainer makes them.
[[nodiscard]] TargetCounts count_target(const ModelSpec& model, const ParameterTable& table,
                                        Gatherings& gatherings, const TrainingConfig& config,
                                        int group_size, const TargetSpec& target);

/// Elements of so many bytes that DeepSpeed rounds its transfers up to.
[[nodiscard]] std::int64_t transfer_alignment(const TrainingConfig& config, std::int64_t e);

/// The states that the optimizer keeps for so many elements beside their master copy, in bytes.
[[nodiscard]] std::int64_t moments_bytes(const TrainingConfig& config, const TargetSpec& target,
                                         std::int64_t elements);
/// Bytes of an element that its update allocates on GPUs and drops again.
[[nodiscard]] std::int64_t temporary_bytes(const TrainingConfig& config, const TargetSpec& target);
/// Tells whether DeepSpeed's wrapper at stage 0 makes one flat copy of all gradients.
[[nodiscard]] bool is_flattened_at_stage_0(const TrainingConfig& config, const TargetSpec& target);

/// Bytes of one rank at one of the instants that may be the fullest.
struct TargetInstant {
  std::int64_t gradients = 0, buckets = 0, step = 0;
};

/// States, gradients and buffers on the target's device, at each of the instants that may be the
/// fullest. Bytes of one rank; each instant beside what is always there.
struct TargetStates {
  std::int64_t parameters = 0, optimizer = 0;  ///< always there
  TargetInstant loss;                          ///< as backward begins
  TargetInstant layers;                        ///< in the backward of the last layer, the first run
  TargetInstant first_layer;                   ///< in that of the first, the last run
  TargetInstant reduction;                     ///< as backward ends
  TargetInstant update;
};

/// `group_size`: of the ranks that share one copy of the states.
[[nodiscard]] TargetStates target_states(const TargetCounts& counts, const TrainingConfig& config,
                                         int group_size, const TargetSpec& target);

/// Activations that autograd keeps in Hugging Face's modules, in bytes, of one micro-batch.
struct TargetActivations {
  std::int64_t kept = 0;    ///< from forward to backward, but the loss's
  std::int64_t logits = 0;  ///< with their loss and its gradient: before backward of the layers
  std::int64_t layer = 0;   ///< beside `kept`, at the fullest instant of the last layer's backward
  std::int64_t first_layer = 0;  ///< in all, at the fullest instant of the first layer's backward
};

TargetActivations target_activations(const ModelSpec& model, const TargetCounts& counts,
                                     const TrainingConfig& config, const TargetSpec& target);

/// Bytes of one rank that DeepSpeed holds on the host for offloaded states and parameters.
[[nodiscard]] std::int64_t target_host_bytes(const TargetCounts& counts,
                                             const TrainingConfig& config,
                                             const TargetSpec& target);

}  // namespace dstune::plan
