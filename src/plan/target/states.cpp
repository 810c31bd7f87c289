#include "zero/states.hpp"

#include <algorithm>

#include "dstune/base/checked.hpp"
#include "dstune/base/error.hpp"
#include "dstune/plan/step_plan.hpp"
#include "target/target.hpp"

namespace dstune::plan {
namespace {

constexpr std::string_view buckets_text = "bytes of buckets";
/// stage3.py, _constant_buffered_norm2.
constexpr std::int64_t norm_part_elements = 250'000'000;

/// Bytes of an element's master copy from stage 1 on, and of the gradient that updates it.
std::int64_t master_bytes(const TrainingConfig& config) {
  return config.low_precision_master ? 2 : 4;
}

TargetStates stage0(const TargetCounts& counts, const TrainingConfig& config, int group_size,
                    std::int64_t e, const TargetSpec& target) {
  const bool mixed = config.precision != Precision::fp32;
  const std::int64_t gradients = e * counts.trained;
  const bool accumulates = config.accumulation_steps > 1;
  const std::int64_t flattened =
      group_size > 1 ? std::min(stage0_chunk_elements, counts.trained) : 0;
  // A copy in the type that is sent, where that is another.
  const std::int64_t sent_bytes = size_bytes(communication_type(config));
  const std::int64_t sent = sent_bytes == e ? 0 : sent_bytes * flattened;
  TargetStates states;
  states.parameters = e * counts.parameters;
  states.optimizer =
      (mixed ? 4 : 0) * counts.trained + moments_bytes(config, target, counts.trained);
  // Between steps there are none.
  states.loss.gradients = accumulates ? gradients : 0;
  states.layers.gradients = accumulates ? gradients + e * counts.largest_unit : e * counts.head;
  states.first_layer.gradients = gradients - (accumulates ? 0 : e * counts.embeddings);
  states.reduction = {gradients, e * std::max(flattened, counts.table_copies * counts.table) + sent,
                      0};
  // FP16_Optimizer, of bf16, too, makes an fp32 copy of each gradient and then a flat one of them
  // all; FP16_UnfusedOptimizer, of all but FusedAdam, makes no flat one.
  const std::int64_t fp32_gradients = !mixed ? 0 : is_flattened_at_stage_0(config, target) ? 8 : 4;
  states.update = {gradients, 0,
                   (fp32_gradients + temporary_bytes(config, target)) * counts.trained};
  return states;
}

/// Elements of the buckets, which are of the type that is sent; there from the first backward of a
/// step to its last.
std::int64_t buckets_of(const TrainingConfig& config) {
  if (!config.contiguous_gradients) return 0;
  return checked_product("elements of buckets", config.reduce_bucket_size,
                         config.overlap_comm ? 2 : 1);
}

/// Bytes of the own part's states.
std::int64_t states_bytes(const TargetCounts& counts, const TrainingConfig& config,
                          const TargetSpec& target) {
  return master_bytes(config) * counts.own + moments_bytes(config, target, counts.own);
}

/// Bytes of an own element in the update: a flat copy of its gradient, the same in the master
/// copy's type, and the optimizer's temporary tensors.
std::int64_t update_bytes(const TrainingConfig& config, std::int64_t e, const TargetSpec& target) {
  const std::int64_t master = master_bytes(config);
  return (e < master ? e + master : e) + temporary_bytes(config, target);
}

/// The own part of fp32 sums is in a partition of its own, from its first reduction to the update.
bool has_fp32_partition(const TrainingConfig& config) {
  if (!config.fp32_gradient_accumulation || is_bf16_optimizer(config)) return false;
  if (config.zero_stage == 2) return config.switches.fp32_sums_at_stage_2;
  return config.zero_stage == 1 && config.switches.fp32_sums_are_averaged;
}

/// Bytes of the norm or of the update, whichever needs more, beside gradients that are read as they
/// are. The norm copies the own part of a parameter in double precision; the optimizer makes its
/// temporary tensors after it.
std::int64_t norm_or_update_bytes(const TargetCounts& counts, const TrainingConfig& config,
                                  const TargetSpec& target) {
  return std::max(8 * std::min(counts.largest_gradient, counts.own),
                  temporary_bytes(config, target) * counts.own);
}

/// Bytes of an element of the buckets at stages 1 and 2.
std::int64_t bucket_bytes(const TrainingConfig& config) {
  if (config.zero_stage == 1 && has_fp32_partition(config)) return 4;
  return size_bytes(communication_type(config));
}

std::int64_t all_buckets_bytes(const TrainingConfig& config) {
  return checked_product(buckets_text, bucket_bytes(config), buckets_of(config));
}

TargetStates stage1(const TargetCounts& counts, const TrainingConfig& config, std::int64_t e,
                    const TargetSpec& target) {
  const std::int64_t gradients = e * counts.trained;
  const std::int64_t c = size_bytes(communication_type(config));
  const std::int64_t buckets = all_buckets_bytes(config);
  const std::int64_t full = std::min(config.reduce_bucket_size, counts.trained);
  const bool accumulates = config.accumulation_steps > 1;
  const std::int64_t sums = config.fp32_gradient_accumulation ? 4 * counts.trained : 0;
  // Gradients move into the bucket, which is flattened; then the own ones are copied out of it,
  // parameters as a whole. Offloaded ones leave from there.
  const std::int64_t moved = std::max<std::int64_t>(0, full - counts.largest_gradient);
  const std::int64_t copied =
      config.contiguous_gradients && !is_optimizer_offloaded(config) ? counts.own_whole : 0;
  const std::int64_t reducing =
      config.contiguous_gradients ? std::max<std::int64_t>(full - moved, copied - moved) : full;
  TargetStates states;
  states.parameters = e * (counts.parameters + counts.padding);
  states.optimizer = states_bytes(counts, config, target);
  if (is_bf16_optimizer(config)) {
    // No buckets: the sums in bf16 for one all-reduce; the update reads its part of them in place.
    const bool frees = frees_added_gradients(config);
    const std::int64_t kept = sums + (frees ? 0 : gradients);
    states.loss = {kept, 0, 0};
    states.layers = states.first_layer = {kept + (frees ? e * counts.largest_unit : 0), 0, 0};
    states.reduction = {kept, e * counts.trained, 0};
    states.update = {kept, 0, temporary_bytes(config, target) * counts.own};
    return states;
  }
  // The first gradient of a step asks for the buckets.
  states.loss = {accumulates ? gradients : 0, accumulates ? buckets : 0, 0};
  states.layers = {accumulates ? gradients + e * counts.largest_unit : e * counts.head, buckets, 0};
  states.first_layer = {gradients - (accumulates ? 0 : e * counts.embeddings), buckets, 0};
  states.reduction = {gradients,
                      buckets + std::max(c * reducing, e * counts.table_copies * counts.table), 0};
  states.update = {e * counts.own_whole, 0, update_bytes(config, e, target) * counts.own};
  if (sums > 0) {
    // Gradients go as they are added to their sums, and these as a flat copy of the own ones has
    // been made, and of that another for the update.
    states.loss.gradients = states.reduction.gradients = 0;
    states.layers.gradients = states.first_layer.gradients = e * counts.largest_unit;
    states.update.step = (4 + 4 + temporary_bytes(config, target)) * counts.own;
    // The table's gradient is converted to be added.
    states.reduction.buckets =
        buckets + std::max(c * reducing, e * counts.table_copies * counts.table + 4 * counts.table);
  }
  for (TargetInstant* instant :
       {&states.loss, &states.layers, &states.first_layer, &states.reduction})
    instant->gradients += sums;
  if (has_fp32_partition(config)) {
    // There are no gradients between steps. Gradients that are flattened in fp32 have moved into
    // the bucket, so that only the sent copy and the own partition come beside it. Gradients are
    // parts of the buckets until the update is over.
    if (!accumulates) states.loss.gradients = 0;
    // Gradients of 16 bits are on their way to their sums beside the bucket if collectives overlap.
    const std::int64_t on_the_way = config.overlap_comm ? e * counts.head : 0;
    states.reduction.buckets = std::max(
        states.reduction.buckets, buckets + 4 * counts.own + (c < 4 ? c * full : 0) + on_the_way);
    states.update = {4 * counts.own, buckets, norm_or_update_bytes(counts, config, target)};
  }
  return states;
}

TargetStates stage2(const TargetCounts& counts, const TrainingConfig& config, std::int64_t e,
                    const TargetSpec& target) {
  // Room for the own parameters as a whole is made by the first of them; or for the own part alone.
  const bool in_fp32 = has_fp32_partition(config);
  const std::int64_t gradients = in_fp32 ? 4 * counts.own : e * counts.own_whole;
  const std::int64_t c = size_bytes(communication_type(config));
  const std::int64_t buckets = checked_product(buckets_text, c, buckets_of(config));
  const std::int64_t full = std::min(config.reduce_bucket_size, counts.trained);
  // A bucket that holds the whole model is flattened as backward ends.
  const std::int64_t flattened = full < counts.trained ? full : 0;
  const std::int64_t on_the_way = config.contiguous_gradients
                                      ? counts.largest_of_layer
                                      : std::max(counts.largest_of_layer, full);
  TargetStates states;
  states.parameters = e * (counts.parameters + counts.padding);
  states.optimizer = states_bytes(counts, config, target);
  // Buckets are there from the first gradient of a micro-step to its last.
  states.loss = {config.accumulation_steps > 1 ? gradients : 0, 0, 0};
  // Averages are converted as they are added to fp32 sums.
  const auto converted = [&](std::int64_t largest) {
    return in_fp32 ? 4 * std::min(largest, counts.own) : 0;
  };
  // Several micro-steps need room for this one's own part beside their sums, once something was
  // copied out of a bucket.
  const bool adds = config.accumulation_steps > 1 && !in_fp32 && !is_optimizer_offloaded(config);
  const std::int64_t added = adds ? e * counts.own_whole : 0;
  const std::int64_t added_early = flattened > 0 ? added : 0;
  states.layers = {
      gradients,
      buckets + c * flattened + e * on_the_way + converted(counts.largest_of_layer) + added_early,
      0};
  states.first_layer = states.layers;
  const std::int64_t tables = (counts.table_copies + 1) * counts.table;
  states.reduction = {gradients,
                      buckets + std::max(added_early + std::max(c * full, e * tables), added), 0};
  states.update = {gradients, 0, update_bytes(config, e, target) * counts.own};
  if (in_fp32) {
    // Measured: the table's gradient is there, too, as the last bucket's are converted.
    states.reduction.buckets =
        buckets +
        std::max(c * full + converted(counts.largest_gradient) + e * counts.table, e * tables);
    states.update.step = norm_or_update_bytes(counts, config, target);
  }
  return states;
}

/// Bytes that ZeRO++ reduces a bucket's gradients in, one after the other, on nodes of so many
/// ranks. They are codes of 4 bits and scales on their way inside the node and across, the sums of
/// the node in fp16, and all shards of the result.
std::int64_t quantized_reduction(const TargetCounts& counts, const TrainingConfig& config,
                                 std::int64_t full, int group_size) {
  const std::int64_t largest = counts.largest_gradient;
  const std::int64_t codes = largest + 8 * counts.largest_scales;
  return codes + (codes + 2 * largest) / config.ranks_per_node +
         2 * std::max(full, largest) / group_size;
}

TargetStates stage3(const TargetCounts& counts, const TrainingConfig& config, int group_size,
                    std::int64_t e, const TargetSpec& target) {
  const std::int64_t gradients = (config.fp32_gradient_accumulation ? 4 : e) * counts.own;
  const std::int64_t c = size_bytes(communication_type(config));
  const std::int64_t bucket = checked_product(buckets_text, c, config.reduce_bucket_size);
  const std::int64_t full = std::min(config.reduce_bucket_size, counts.trained);
  const std::int64_t flattened = full < counts.trained ? full : 0;
  // hpZ's second partition begins with the first release of a step, and the update drops it.
  std::int64_t secondary = are_parameters_offloaded(config) ? 0 : e * counts.secondary;
  const std::int64_t secondary_in_update = secondary;
  // Quantised, what is gathered is there in codes and then in fp16 before it is put together;
  // alone, it is put where it belongs from codes, in 16 bits.
  const bool in_codes = quantizes_weights(config) && group_size > 1;
  const std::int64_t travels = in_codes ? 1 + 2 : e;
  const std::int64_t travels_alone = in_codes ? (e == 2 ? 1 : 1 + 2) : 0;
  const bool quantizes = quantizes_gradients(config) && config.ranks_per_node > 0 &&
                         group_size > config.ranks_per_node;
  const auto reducing = [&](std::int64_t elements) {
    return quantizes ? quantized_reduction(counts, config, elements, group_size) : c * elements;
  };
  TargetStates states;
  const bool offloaded = are_parameters_offloaded(config);
  states.parameters = offloaded ? 0 : e * counts.own_parameters;
  states.optimizer = states_bytes(counts, config, target);
  std::int64_t together = counts.gathered_together;
  std::int64_t alone = travels_alone * counts.gathered_alone;
  if (config.accumulation_steps == 1 && secondary > 0)
    secondary = checked_share("hpZ's second partition", secondary,
                              counts.parameters - counts.left_of_forward, counts.parameters);
  // Own shards on the host come first; a group of one puts nothing together.
  if (group_size == 1) {
    together = 0;
  } else if (is_mics(config)) {  // to their places; what comes from other nodes is copied once
    together = config.ranks_per_node > 0 ? counts.largest_parameter / config.ranks_per_node : 0;
    alone = 0;
  } else if (offloaded) {
    together += together / group_size;
  }
  const std::int64_t whole = e * counts.max_gathered + std::max(travels * together, alone);
  // Autograd keeps weights of linear layers for backward that forward gathered and released. If
  // blocks are computed again it keeps one block's at a time.
  std::int64_t held = 0;
  if (!config.memory_efficient_linear && counts.max_gathered > 0) {
    const std::int64_t released =
        counts.parameters - counts.persistent - config.stage3_max_reuse_distance;
    held = std::clamp<std::int64_t>(released, 0, counts.linear);
  }
  const bool again = config.recompute != Recompute::none;
  const std::int64_t of_layer = std::min(held, counts.linear_of_layer);
  const std::int64_t in_loss = again ? std::min(held, counts.linear_of_head) : held;
  const auto in_layer = [&](std::int64_t linear) {
    return TargetInstant{gradients,
                         bucket + secondary + (flattened > 0 ? reducing(flattened) : 0) + whole +
                             e * (counts.largest_of_layer + linear),
                         0};
  };
  // The head's backward is the first to gather anything.
  states.loss = {gradients, bucket + secondary + e * (counts.left_of_forward + in_loss), 0};
  states.layers = in_layer(again ? of_layer : held);
  states.first_layer = in_layer(of_layer);
  const std::int64_t tables = (counts.table_copies + 1) * counts.table;
  states.reduction = {
      gradients,
      bucket + secondary + std::max(reducing(full), e * tables) + e * counts.max_gathered, 0};
  states.update = {gradients, bucket + secondary_in_update,
                   update_bytes(config, e, target) * std::min(config.sub_group_size, counts.own)};
  // Updated ones go to the host by way of a copy in their type.
  if (offloaded && e < 4) states.update.step += e * std::min(config.sub_group_size, counts.own);
  return states;
}

/// Returns what an offloaded optimizer leaves on the device: no states and no part of the
/// gradients. Gradients leave through buffers, one parameter after the other.
TargetStates without_optimizer(TargetStates states, const TargetCounts& counts,
                               const TrainingConfig& config, int group_size, std::int64_t e) {
  const std::int64_t ranks = config.zero_stage == 3 ? group_size : 1;
  const std::int64_t largest = (counts.largest_gradient + ranks - 1) / ranks;
  // Towards a disk all of a bucket's are there at once.
  const bool swaps = is_optimizer_on_disk(config);
  const std::int64_t in_bucket =
      (std::min(config.reduce_bucket_size, counts.trained) + ranks - 1) / ranks;
  const std::int64_t travelling = swaps ? std::min(std::max(largest, in_bucket), counts.own) : 0;
  const std::int64_t staged = std::max(largest, travelling);
  // Norms are taken of a copy in double precision, at stage 3 a part at a time.
  const std::int64_t copied =
      config.zero_stage == 3 ? std::min(largest, norm_part_elements) : largest;
  const std::int64_t converted =
      std::max(8 * std::min(copied, counts.own), e < 4 ? 4 * travelling : 0);
  states.optimizer = 12 * counts.updated_on_device;
  const std::int64_t sums =
      config.zero_stage == 1 && config.fp32_gradient_accumulation ? 4 * counts.trained : 0;
  const std::int64_t partition =
      has_fp32_partition(config) && config.switches.fp32_sums_stay_on_device ? 4 * counts.own : 0;
  const std::int64_t left = 4 * (counts.updated_on_device + counts.held_gradients) + sums;
  for (TargetInstant* instant :
       {&states.loss, &states.layers, &states.first_layer, &states.reduction, &states.update}) {
    // A partition of fp32 sums on the device keeps gradients as they are without offloading.
    if (partition == 0 && (config.zero_stage >= 2 || instant == &states.update))
      instant->gradients = left;
    instant->step = 0;
    // Stages 1 and 2 keep theirs.
    (config.zero_stage == 3 ? instant->buckets : instant->gradients) += e * staged;
  }
  // Measured: with sums in fp32 the buckets outlive the reduction.
  if (sums > 0 || (partition > 0 && config.zero_stage == 1))
    states.update.buckets = all_buckets_bytes(config);
  // They leave when their bucket has been reduced: its flat copy is gone.
  const std::int64_t leaving = all_buckets_bytes(config) + converted;
  // A parameter larger than a bucket is cloned before it is reduced where it is.
  const bool clones = config.switches.offload_waits_for_copies &&
                      counts.largest_gradient > config.reduce_bucket_size;
  const std::int64_t cloned = clones ? e * counts.largest_gradient : 0;
  for (TargetInstant* instant : {&states.layers, &states.first_layer, &states.reduction}) {
    if (config.zero_stage == 3)
      instant->buckets += converted;
    else if (config.zero_stage == 2 || instant == &states.reduction)
      instant->buckets = std::max(instant->buckets + cloned, leaving);
  }
  return states;
}

TargetStates of_stage(const TargetCounts& counts, const TrainingConfig& config, int group_size,
                      std::int64_t e, const TargetSpec& target) {
  switch (config.zero_stage) {
    case 0:
      return stage0(counts, config, group_size, e, target);
    case 1:
      return stage1(counts, config, e, target);
    case 2:
      return stage2(counts, config, e, target);
    default:
      return stage3(counts, config, group_size, e, target);
  }
}

}  // namespace

TargetStates target_states(const TargetCounts& counts, const TrainingConfig& config, int group_size,
                           const TargetSpec& target) {
  const std::int64_t e = size_bytes(element_type(config.precision));
  TargetStates states = of_stage(counts, config, group_size, e, target);
  if (is_optimizer_offloaded(config))
    states = without_optimizer(states, counts, config, group_size, e);
  // Parameters that stay whole are gathered again when the gradients are gone.
  if (counts.max_gathered > 0)
    states.update.step = std::max(states.update.step, e * counts.persistent);
  return states;
}

}  // namespace dstune::plan
