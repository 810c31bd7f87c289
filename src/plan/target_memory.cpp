#include "dstune/plan/target_memory.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/step_plan.hpp"
#include "target_activations.hpp"

namespace dstune {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
/// Context and loaded kernels, cuBLAS's workspace, NCCL's buffers.
constexpr std::int64_t context_bytes = 512 * mebibyte;
constexpr std::int64_t cublas_bytes = 32 * mebibyte;
constexpr std::int64_t nccl_bytes = 512 * mebibyte;
/// Rounding of PyTorch's caching allocator, as a share of what is allocated.
constexpr std::int64_t rounding_divisor = 50;

/// One all-reduce of stage 0 is of whole parameters until they are more elements than this.
constexpr std::int64_t stage0_flatten_elements = 500'000'000;

/// Bytes of one rank.
struct States {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;  ///< always there
  std::int64_t buckets = 0;                                   ///< during backward
  std::int64_t reduction = 0;                                 ///< between backward and update
  std::int64_t step = 0;                                      ///< during the update
};

struct Counts {
  std::int64_t parameters, own, largest_unit, persistent, largest_parameter;
};

Counts count(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  const ParameterTable table(model);
  Counts counts{table.total_elements(), 0, 0, 0, 0};
  counts.own = (counts.parameters + group_size - 1) / group_size;
  for (int unit = 0; unit < table.num_units(); ++unit)
    counts.largest_unit = std::max(counts.largest_unit, table.unit_elements(unit));
  for (const Parameter& parameter : table.all())
    counts.largest_parameter = std::max(counts.largest_parameter, parameter.elements());
  for (const Parameter& parameter : table.all())
    if (parameter.elements() <= config.stage3_param_persistence_threshold &&
        parameter.elements() <= config.stage3_model_persistence_threshold - counts.persistent)
      counts.persistent += parameter.elements();
  return counts;
}

States stage0(const Counts& counts, const TrainingConfig& config, int group_size, std::int64_t e) {
  const bool mixed = config.precision != Precision::fp32;
  // FP16_Optimizer makes an fp32 copy of each gradient and then a flat one of them all.
  const std::int64_t fp32_gradients =
      config.precision == Precision::fp16 ? 8 : (config.precision == Precision::bf16 ? 4 : 0);
  const std::int64_t flattened =
      group_size > 1 ? std::min(stage0_flatten_elements, counts.parameters) : 0;
  return {.parameters = e * counts.parameters,
          .gradients = e * counts.parameters,
          .optimizer = (mixed ? 12 : 8) * counts.parameters,
          .buckets = 0,
          .reduction = e * flattened,
          .step = fp32_gradients * counts.parameters};
}

States stage1_or_2(const Counts& counts, const TrainingConfig& config, std::int64_t e) {
  const bool partitioned = config.zero_stage == 2;
  States states{.parameters = e * counts.parameters,
                .gradients = e * (partitioned ? counts.own : counts.parameters),
                .optimizer = 12 * counts.own,
                .buckets = 0,
                .reduction = 0,
                .step = 4 * counts.own + (partitioned ? 0 : e * counts.own)};
  // DeepSpeed reduces by way of its buckets in a group of one, too.
  const std::int64_t bucket = config.reduce_bucket_size;
  std::int64_t elements = std::min(bucket, counts.parameters);  // flattened for the reduction
  if (config.contiguous_gradients) elements += bucket * (config.overlap_comm ? 2 : 1);
  // Gradients on their way: of the layer in backward, or of a whole bucket.
  if (partitioned) {
    elements += config.contiguous_gradients
                    ? counts.largest_unit
                    : std::max(counts.largest_unit, std::min(bucket, counts.parameters));
  } else if (!is_optimizer_offloaded(config)) {
    elements += counts.own;  // the own part, copied out of the average
  }
  // Stage 1 reduces during backward only where it overlaps.
  (partitioned || config.overlap_comm ? states.buckets : states.reduction) = e * elements;
  return states;
}

States stage3(const Counts& counts, const TrainingConfig& config, int group_size, std::int64_t e) {
  States states{.parameters = e * counts.own,
                .gradients = e * counts.own,
                .optimizer = 12 * counts.own,
                .buckets = 0,
                .reduction = 0,
                .step = 4 * std::min(config.sub_group_size, counts.own)};
  const std::int64_t bucket = config.reduce_bucket_size;
  // A group of one has whole parameters, but reduces by way of its bucket.
  if (group_size == 1) {
    states.buckets = e * (bucket + std::min(bucket, counts.parameters) + counts.largest_unit);
    return states;
  }
  states.parameters += e * counts.persistent;
  const std::int64_t gathered =
      std::min(counts.parameters,
               std::min(config.stage3_max_reuse_distance, counts.parameters) + counts.largest_unit);
  const std::int64_t concatenated = std::max(
      counts.largest_unit, std::min(config.stage3_prefetch_bucket_size, counts.parameters));
  states.buckets = e * (bucket + std::min(bucket, counts.parameters) + gathered + concatenated +
                        counts.largest_unit);
  return states;
}

/// What an offloaded optimizer leaves on the device: no states and no part of the gradients, but
/// buffers through which gradients leave, one parameter after the other.
States without_optimizer(States states, const Counts& counts, const TrainingConfig& config,
                         int group_size, std::int64_t e) {
  const std::int64_t ranks = config.zero_stage == 3 ? group_size : 1;
  const std::int64_t largest = (counts.largest_parameter + ranks - 1) / ranks;
  const std::int64_t converted = e < 4 ? 4 * std::min(largest, counts.own) : 0;
  states.optimizer = 0;
  states.step = 0;
  if (config.zero_stage >= 2) states.gradients = 0;
  // Stages 1 and 2 keep theirs.
  (config.zero_stage == 3 ? states.buckets : states.gradients) += e * largest;
  (states.buckets > 0 ? states.buckets : states.reduction) += converted;
  return states;
}

States states_of(const Counts& counts, const TrainingConfig& config, int group_size) {
  const std::int64_t e = size_bytes(element_type(config.precision));
  if (config.zero_stage == 0) return stage0(counts, config, group_size, e);
  const States states = config.zero_stage == 3 ? stage3(counts, config, group_size, e)
                                               : stage1_or_2(counts, config, e);
  if (!is_optimizer_offloaded(config)) return states;
  return without_optimizer(states, counts, config, group_size, e);
}

}  // namespace

TargetMemory target_memory(const ModelSpec& model, const TrainingConfig& config, int group_size,
                           const TargetSpec& target) {
  TargetMemory memory;
  memory.parts = {{"parameters", 0},  {"gradients", 0}, {"optimizer", 0}, {"buckets", 0},
                  {"activations", 0}, {"logits", 0},    {"step", 0},      {"framework", 0}};
  if (target.framework == TargetFramework::self) return memory;
  require(group_size >= 1, "a group has ranks");
  require(config.zero_stage >= 0 && config.zero_stage <= 3, "the ZeRO stage is 0 to 3");

  const States states = states_of(count(model, config, group_size), config, group_size);
  const plan::TargetActivations backward =
      plan::target_activations(model, config, target.attention);
  memory.parts["parameters"] = states.parameters;
  memory.parts["gradients"] = states.gradients;
  memory.parts["optimizer"] = states.optimizer;
  const std::int64_t in_backward = states.buckets + backward.activations + backward.logits;
  if (in_backward >= std::max(states.reduction, states.step)) {
    memory.parts["buckets"] = states.buckets;
    memory.parts["activations"] = backward.activations;
    memory.parts["logits"] = backward.logits;
  } else if (states.reduction >= states.step) {
    memory.parts["buckets"] = states.reduction;
  } else {
    memory.parts["step"] = states.step;
  }
  std::int64_t allocated = 0;
  for (const auto& [part, bytes] : memory.parts) allocated += bytes;
  if (target.on_gpu) {
    memory.parts["framework"] = context_bytes + cublas_bytes + (group_size > 1 ? nccl_bytes : 0) +
                                allocated / rounding_divisor;
  }
  memory.total_bytes = allocated + memory.parts["framework"];
  return memory;
}

}  // namespace dstune
