#include "dstune/plan/target_memory.hpp"

#include <algorithm>
#include <bit>

#include "dstune/base/error.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/step_plan.hpp"
#include "sub_groups.hpp"
#include "swapped_gradients.hpp"
#include "target_activations.hpp"

namespace dstune {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
/// Context and loaded kernels, cuBLAS's workspace, NCCL's buffers.
constexpr std::int64_t context_bytes = 512 * mebibyte;
constexpr std::int64_t cublas_bytes = 32 * mebibyte;
constexpr std::int64_t nccl_bytes = 512 * mebibyte;
/// What PyTorch's caching allocator reserves beyond what is allocated; docs/memory.md, "Framework".
constexpr std::int64_t reserved_percent = 4;

/// One all-reduce of stage 0 is of whole parameters until they are more elements than this.
constexpr std::int64_t stage0_flatten_elements = 500'000'000;

/// Bytes of one rank at one of the instants that may be the fullest.
struct Instant {
  std::int64_t gradients = 0, buckets = 0, step = 0;
};

/// Bytes of one rank; each instant beside what is always there.
struct States {
  std::int64_t parameters = 0, optimizer = 0;  ///< always there
  Instant loss;                                ///< as backward begins
  Instant layers;                              ///< in the backward of the last layer, the first run
  Instant first_layer;                         ///< in that of the first, the last run
  Instant reduction;                           ///< as backward ends
  Instant update;
};

/// Elements.
struct Counts {
  std::int64_t parameters, own, secondary, own_whole, largest_unit, persistent, largest_parameter;
  std::int64_t largest_of_layer;  ///< parameter
  std::int64_t table;             ///< of tokens
  std::int64_t head;              ///< gradients that exist in the backward of the last layer
  std::int64_t embeddings;        ///< gradients that do not yet in that of the first
  std::int64_t table_copies;      ///< of its gradient, beside it, as backward ends
  // Weights of linear layers that stage 3 gathers and releases: all, a block's, the head's.
  std::int64_t linear, linear_of_layer, linear_of_head;
  // Of the own part, where the optimizer is offloaded.
  std::int64_t updated_on_device;  ///< by it, all the same
  std::int64_t updated_on_host;    ///< by states that are always there
  std::int64_t largest_on_disk;    ///< sub-group
  std::int64_t held_gradients;     ///< on the device, on their way to an optimizer on a disk
  std::vector<std::int64_t> secondary_shards;  ///< of hpZ, one by one
  // Of the own part, where parameters are on a disk.
  std::vector<std::int64_t> small_shards;  ///< that stay on the host, one by one
  std::int64_t written_together;           ///< in whole transfers, a sub-group's
  std::int64_t disk_bytes;                 ///< of files
};

/// The most elements that parameters have together of which one rank owns any part.
std::int64_t whole_parameters(const ParameterTable& table, std::int64_t own) {
  std::int64_t most = 0;
  auto first = table.all().begin();
  for (std::int64_t begin = 0; begin < table.total_elements(); begin += own) {
    while (first->offset + first->elements() <= begin) ++first;
    std::int64_t elements = 0;
    for (auto next = first; next != table.all().end() && next->offset < begin + own; ++next)
      elements += next->elements();
    most = std::max(most, elements);
  }
  return most;
}

/// Elements that DeepSpeed rounds its transfers up to.
std::int64_t transfer_alignment(const TrainingConfig& config, std::int64_t e) {
  return 1024 * config.disk.threads / e;
}

/// Master copy, moments and gradients. DeepSpeed's Lion for the host has a moment that it does not
/// use.
std::int64_t tensors_on_disk(const OptimizerConfig& optimizer) {
  const bool has_second = has_second_moment(optimizer) || optimizer.kind == OptimizerKind::lion;
  return 2 + (has_first_moment(optimizer) ? 1 : 0) + (has_second ? 1 : 0);
}

/// What an optimizer that is not all on the host leaves on the device, and what it has on a disk.
void count_left(const ParameterTable& table, const TrainingConfig& config, int group_size,
                Counts& counts) {
  const plan::Layout layout(table, config.zero_stage, {.size = group_size},
                            {is_optimizer_offloaded(config), are_parameters_offloaded(config)});
  const std::vector<plan::SubGroup> groups = plan::cut_into_sub_groups(layout, config);
  counts.updated_on_device = plan::elements_in(groups, Memory::device);
  counts.updated_on_host = plan::elements_in(groups, Memory::host);
  for (const plan::SubGroup& group : groups) {
    if (group.memory != Memory::disk) continue;
    counts.largest_on_disk = std::max(counts.largest_on_disk, group.count);
    counts.disk_bytes += 4 * tensors_on_disk(config.optimizer) *
                         plan::round_up(group.count, transfer_alignment(config, 4));
  }
  counts.held_gradients = plan::SwappedGradients(layout, config, groups).held_elements();
}

void count_swapped_shards(const ParameterTable& table, const TrainingConfig& config, int group_size,
                          Counts& counts) {
  const plan::Layout layout(table, config.zero_stage, {group_size, 0},
                            {is_optimizer_offloaded(config), true});
  const std::int64_t e = size_bytes(element_type(config.precision));
  const std::vector<bool> on_disk = plan::find_shards_on_disk(layout, config);
  const std::vector<plan::SubGroup> groups = plan::cut_into_sub_groups(layout, config);
  // Files of all that are large enough are made, also of what stays in memory.
  for (std::size_t piece = 0; piece < on_disk.size(); ++piece) {
    const std::int64_t shard = layout.piece_shard_elements(static_cast<int>(piece));
    if (plan::is_swappable(config, e * shard))
      counts.disk_bytes += e * plan::round_up(shard, transfer_alignment(config, e));
  }
  std::int64_t largest = 0;
  for (const plan::SubGroup& group : groups) {
    const plan::PieceRange range = layout.pieces_of(group.first, group.count);
    std::int64_t blocks = 0;
    for (int piece = range.first; piece < range.last; ++piece) {
      const std::int64_t shard = layout.piece_shard_elements(piece);
      blocks += plan::round_up(shard, transfer_alignment(config, e));
      if (group.swaps_parameters && !on_disk[static_cast<std::size_t>(piece)])
        counts.small_shards.push_back(shard);
    }
    // DeepSpeed's choice: the first of the largest ones.
    if (group.count <= largest) continue;
    largest = group.count;
    counts.written_together = blocks;
  }
  if (!groups.back().swaps_parameters) counts.written_together = 0;
}

/// GPT-2's blocks have no linear layers but Conv1D, whose products keep no weight.
void count_linear(const ModelSpec& model, const ParameterTable& table, const TrainingConfig& config,
                  Counts& counts) {
  for (const Parameter& parameter : table.all()) {
    const bool is_head = parameter.role == (model.tie_embeddings ? ParameterRole::token_embedding
                                                                 : ParameterRole::head_weight);
    const bool in_block = parameter.unit > 0 && model.family != ModelFamily::gpt2;
    if (parameter.columns == 1 || !(is_head || in_block) ||
        parameter.elements() <= config.stage3_param_persistence_threshold)
      continue;
    counts.linear += parameter.elements();
    if (parameter.unit == 1) counts.linear_of_layer += parameter.elements();
    if (is_head) counts.linear_of_head += parameter.elements();
  }
}

/// `group_size`: of the ranks that share one copy of the states.
Counts count(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  const ParameterTable table(model);
  Counts counts{};
  counts.parameters = table.total_elements();
  const std::int64_t hpz = std::min<std::int64_t>(config.zero_hpz_partition_size, group_size);
  if (config.zero_stage == 3 && config.zero_hpz_partition_size > 1) {
    for (const Parameter& parameter : table.all()) {
      counts.secondary_shards.push_back((parameter.elements() + hpz - 1) / hpz);
      counts.secondary += counts.secondary_shards.back();
    }
  }
  counts.own = (counts.parameters + group_size - 1) / group_size;
  if (config.zero_stage == 1 || config.zero_stage == 2)
    counts.own_whole = whole_parameters(table, counts.own);
  for (int unit = 0; unit < table.num_units(); ++unit)
    counts.largest_unit = std::max(counts.largest_unit, table.unit_elements(unit));
  for (const Parameter& parameter : table.all()) {
    counts.largest_parameter = std::max(counts.largest_parameter, parameter.elements());
    if (parameter.unit == 1)
      counts.largest_of_layer = std::max(counts.largest_of_layer, parameter.elements());
  }
  for (const Parameter& parameter : table.all())
    if (parameter.elements() <= config.stage3_param_persistence_threshold &&
        parameter.elements() <= config.stage3_model_persistence_threshold - counts.persistent)
      counts.persistent += parameter.elements();
  count_linear(model, table, config, counts);
  counts.table = model.vocab_size * model.hidden_size;
  counts.head = counts.table + table.unit_elements(1);
  counts.embeddings = model.tie_embeddings ? 0 : counts.table;
  // Autograd adds the embeddings' and the head's up in a third, and that to what was there.
  counts.table_copies = (model.tie_embeddings ? 2 : 0) + (config.accumulation_steps > 1 ? 1 : 0);
  counts.updated_on_host = counts.own;
  if (is_optimizer_offloaded(config) && (config.offload_ratio < 1 || is_optimizer_on_disk(config)))
    count_left(table, config, group_size, counts);
  if (are_parameters_on_disk(config)) count_swapped_shards(table, config, group_size, counts);
  return counts;
}

bool is_fused_adam(const OptimizerConfig& optimizer) {
  return !optimizer.torch_adam &&
         (optimizer.kind == OptimizerKind::adam || optimizer.kind == OptimizerKind::adamw);
}

std::int64_t moment_bytes(const TrainingConfig& config) {
  const int moments =
      (has_first_moment(config.optimizer) ? 1 : 0) + (has_second_moment(config.optimizer) ? 1 : 0);
  return moments * (config.low_precision_moments ? 2 : 4);
}

/// Of an element's master copy from stage 1 on, and of the gradient that updates it.
std::int64_t master_bytes(const TrainingConfig& config) {
  return config.low_precision_master ? 2 : 4;
}

/// What the update of an element makes on GPUs and drops again: PyTorch's loops over lists of
/// tensors (torch/optim/adam.py, sgd.py, adagrad.py: _multi_tensor_…); DeepSpeed's kernels nothing.
std::int64_t temporary_bytes(const OptimizerConfig& optimizer) {
  const bool decays = optimizer.weight_decay != 0;
  switch (optimizer.kind) {
    case OptimizerKind::adamw:
      return optimizer.torch_adam ? 4 : 0;
    case OptimizerKind::adam:
      return optimizer.torch_adam ? (decays ? 8 : 4) : 0;
    case OptimizerKind::adagrad:
      return 8;
    case OptimizerKind::sgd:
      return decays ? 4 : 0;
    case OptimizerKind::lion:
      return 0;
  }
  throw LogicError("an optimizer is a known one");
}

States stage0(const Counts& counts, const TrainingConfig& config, int group_size, std::int64_t e) {
  const bool mixed = config.precision != Precision::fp32;
  const std::int64_t gradients = e * counts.parameters;
  const bool accumulates = config.accumulation_steps > 1;
  const std::int64_t flattened =
      group_size > 1 ? std::min(stage0_flatten_elements, counts.parameters) : 0;
  // A copy in the type that is sent, where that is another.
  const std::int64_t sent_bytes = size_bytes(communication_type(config));
  const std::int64_t sent = sent_bytes == e ? 0 : sent_bytes * flattened;
  States states;
  states.parameters = e * counts.parameters;
  states.optimizer = ((mixed ? 4 : 0) + moment_bytes(config)) * counts.parameters;
  // Between steps there are none.
  states.loss.gradients = accumulates ? gradients : 0;
  states.layers.gradients = accumulates ? gradients + e * counts.largest_unit : e * counts.head;
  states.first_layer.gradients = gradients - (accumulates ? 0 : e * counts.embeddings);
  states.reduction = {gradients, e * std::max(flattened, counts.table_copies * counts.table) + sent,
                      0};
  // FP16_Optimizer, of bf16, too, makes an fp32 copy of each gradient and then a flat one of them
  // all; FP16_UnfusedOptimizer, of all but FusedAdam, makes no flat one.
  const std::int64_t fp32_gradients = !mixed ? 0 : is_fused_adam(config.optimizer) ? 8 : 4;
  states.update = {gradients, 0,
                   (fp32_gradients + temporary_bytes(config.optimizer)) * counts.parameters};
  return states;
}

/// Elements of the buckets, which are of the type that is sent; there from the first backward of a
/// step to its last.
std::int64_t buckets_of(const TrainingConfig& config) {
  if (!config.contiguous_gradients) return 0;
  return config.reduce_bucket_size * (config.overlap_comm ? 2 : 1);
}

/// Of an own element in the update: a flat copy of its gradient, that in the master copy's type,
/// and what the optimizer makes.
std::int64_t update_bytes(const TrainingConfig& config, std::int64_t e) {
  const std::int64_t master = master_bytes(config);
  return (e < master ? e + master : e) + temporary_bytes(config.optimizer);
}

States stage1(const Counts& counts, const TrainingConfig& config, std::int64_t e) {
  const std::int64_t gradients = e * counts.parameters;
  const std::int64_t c = size_bytes(communication_type(config));
  const std::int64_t buckets = c * buckets_of(config);
  const std::int64_t full = std::min(config.reduce_bucket_size, counts.parameters);
  const bool accumulates = config.accumulation_steps > 1;
  const std::int64_t sums = config.fp32_gradient_accumulation ? 4 * counts.parameters : 0;
  // Gradients move into the bucket, which is flattened; then the own ones are copied out of it,
  // parameters as a whole. Offloaded ones leave from there.
  const std::int64_t moved = std::max<std::int64_t>(0, full - counts.largest_parameter);
  const std::int64_t copied =
      config.contiguous_gradients && !is_optimizer_offloaded(config) ? counts.own_whole : 0;
  const std::int64_t reducing =
      config.contiguous_gradients ? std::max<std::int64_t>(full - moved, copied - moved) : full;
  States states;
  states.parameters = e * counts.parameters;
  states.optimizer = (master_bytes(config) + moment_bytes(config)) * counts.own;
  if (is_bf16_optimizer(config)) {
    // No buckets: the sums in bf16 for one all-reduce; the update reads its part of them in place.
    states.loss = states.layers = states.first_layer = {gradients + sums, 0, 0};
    states.reduction = {gradients + sums, e * counts.parameters, 0};
    states.update = {gradients + sums, 0, temporary_bytes(config.optimizer) * counts.own};
    return states;
  }
  states.loss = {accumulates ? gradients : 0, buckets, 0};
  states.layers = {accumulates ? gradients + e * counts.largest_unit : e * counts.head, buckets, 0};
  states.first_layer = {gradients - (accumulates ? 0 : e * counts.embeddings), buckets, 0};
  states.reduction = {gradients,
                      buckets + std::max(c * reducing, e * counts.table_copies * counts.table), 0};
  states.update = {e * counts.own_whole, 0, update_bytes(config, e) * counts.own};
  if (sums > 0) {
    // Gradients go as they are added to their sums.
    states.loss.gradients = states.reduction.gradients = 0;
    states.layers.gradients = states.first_layer.gradients = e * counts.largest_unit;
  }
  for (Instant* instant :
       {&states.loss, &states.layers, &states.first_layer, &states.reduction, &states.update})
    instant->gradients += sums;
  return states;
}

States stage2(const Counts& counts, const TrainingConfig& config, std::int64_t e) {
  // Room for the own parameters as a whole is made by the first of them.
  const std::int64_t gradients = e * counts.own_whole;
  const std::int64_t c = size_bytes(communication_type(config));
  const std::int64_t buckets = c * buckets_of(config);
  const std::int64_t full = std::min(config.reduce_bucket_size, counts.parameters);
  // A bucket that holds the whole model is flattened as backward ends.
  const std::int64_t flattened = full < counts.parameters ? full : 0;
  const std::int64_t on_the_way = config.contiguous_gradients
                                      ? counts.largest_of_layer
                                      : std::max(counts.largest_of_layer, full);
  States states;
  states.parameters = e * counts.parameters;
  states.optimizer = (master_bytes(config) + moment_bytes(config)) * counts.own;
  states.loss = {config.accumulation_steps > 1 ? gradients : 0, buckets, 0};
  states.layers = {gradients, buckets + c * flattened + e * on_the_way, 0};
  states.first_layer = states.layers;
  const std::int64_t tables = (counts.table_copies + 1) * counts.table;
  states.reduction = {gradients, buckets + std::max(c * full, e * tables), 0};
  states.update = {gradients, 0, update_bytes(config, e) * counts.own};
  return states;
}

States stage3(const Counts& counts, const TrainingConfig& config, int group_size, std::int64_t e) {
  const std::int64_t gradients = (config.fp32_gradient_accumulation ? 4 : e) * counts.own;
  const std::int64_t c = size_bytes(communication_type(config));
  const std::int64_t bucket = c * config.reduce_bucket_size;
  const std::int64_t full = std::min(config.reduce_bucket_size, counts.parameters);
  const std::int64_t flattened = full < counts.parameters ? full : 0;
  // A group of one has whole parameters, but reduces by way of its bucket.
  std::int64_t gathered = 0;
  std::int64_t concatenated = 0;
  // hpZ's second partition begins with the first release of a step, and the update drops it.
  std::int64_t secondary = are_parameters_offloaded(config) ? 0 : e * counts.secondary;
  const std::int64_t secondary_in_update = secondary;
  States states;
  const bool offloaded = are_parameters_offloaded(config);
  states.parameters = offloaded ? 0 : e * counts.own;
  states.optimizer = (master_bytes(config) + moment_bytes(config)) * counts.own;
  if (group_size > 1 || offloaded) {
    const std::int64_t others = counts.parameters - counts.persistent;
    const std::int64_t kept = std::min(config.stage3_max_reuse_distance, others);
    // The update releases what backward had left, small parameters included.
    gathered = counts.persistent + std::min(others, kept + counts.largest_unit);
    if (config.accumulation_steps == 1 && secondary > 0)
      secondary = secondary * (others - kept) / counts.parameters;
    // Where forward leaves everything backward gathers nothing.
    if (kept < others)
      concatenated =
          std::min(others, std::max(counts.largest_unit, config.stage3_prefetch_bucket_size));
    // Own shards on the host come first; a group of one puts nothing together.
    if (group_size == 1)
      concatenated = 0;
    else if (is_mics(config))  // to their places; what comes from other nodes is copied once
      concatenated =
          config.ranks_per_node > 0 ? counts.largest_parameter / config.ranks_per_node : 0;
    else if (offloaded)
      concatenated += concatenated / group_size;
  }
  // What forward gathered for linear layers, released, and keeps for backward all the same; where
  // blocks are computed again one block's at a time.
  std::int64_t held = 0;
  if (!config.memory_efficient_linear && gathered > 0) {
    const std::int64_t released =
        counts.parameters - counts.persistent - config.stage3_max_reuse_distance;
    held = std::clamp<std::int64_t>(released, 0, counts.linear);
  }
  const bool again = config.recompute != Recompute::none;
  const std::int64_t of_layer = std::min(held, counts.linear_of_layer);
  const std::int64_t in_loss = again ? std::min(held, counts.linear_of_head) : held;
  const auto in_layer = [&](std::int64_t linear) {
    return Instant{gradients,
                   bucket + secondary + c * flattened +
                       e * (gathered + concatenated + counts.largest_of_layer + linear),
                   0};
  };
  states.loss = {gradients, bucket + secondary + e * (gathered + concatenated + in_loss), 0};
  states.layers = in_layer(again ? of_layer : held);
  states.first_layer = in_layer(of_layer);
  const std::int64_t tables = (counts.table_copies + 1) * counts.table;
  states.reduction = {gradients, bucket + secondary + std::max(c * full, e * tables) + e * gathered,
                      0};
  states.update = {gradients, bucket + secondary_in_update,
                   update_bytes(config, e) * std::min(config.sub_group_size, counts.own)};
  // Updated ones go to the host by way of a copy in their type.
  if (offloaded && e < 4) states.update.step += e * std::min(config.sub_group_size, counts.own);
  return states;
}

/// What an offloaded optimizer leaves on the device: no states and no part of the gradients, but
/// buffers through which gradients leave, one parameter after the other.
States without_optimizer(States states, const Counts& counts, const TrainingConfig& config,
                         int group_size, std::int64_t e) {
  const std::int64_t ranks = config.zero_stage == 3 ? group_size : 1;
  const std::int64_t largest = (counts.largest_parameter + ranks - 1) / ranks;
  // Towards a disk all of a bucket's are there at once.
  const bool swaps = is_optimizer_on_disk(config);
  const std::int64_t in_bucket =
      (std::min(config.reduce_bucket_size, counts.parameters) + ranks - 1) / ranks;
  const std::int64_t travelling = swaps ? std::min(std::max(largest, in_bucket), counts.own) : 0;
  const std::int64_t staged = std::max(largest, travelling);
  // Norms are taken of a copy in double precision.
  const std::int64_t converted =
      std::max(8 * std::min(largest, counts.own), e < 4 ? 4 * travelling : 0);
  states.optimizer = 12 * counts.updated_on_device;
  const std::int64_t sums =
      config.zero_stage == 1 && config.fp32_gradient_accumulation ? 4 * counts.parameters : 0;
  const std::int64_t left = 4 * (counts.updated_on_device + counts.held_gradients) + sums;
  for (Instant* instant :
       {&states.loss, &states.layers, &states.first_layer, &states.reduction, &states.update}) {
    if (config.zero_stage >= 2 || instant == &states.update) instant->gradients = left;
    instant->step = 0;
    // Stages 1 and 2 keep theirs.
    (config.zero_stage == 3 ? instant->buckets : instant->gradients) += e * staged;
  }
  // They leave when their bucket has been reduced: its flat copy is gone.
  const std::int64_t leaving =
      size_bytes(communication_type(config)) * buckets_of(config) + converted;
  for (Instant* instant : {&states.layers, &states.first_layer, &states.reduction}) {
    if (config.zero_stage == 3)
      instant->buckets += converted;
    else if (config.zero_stage == 2 || instant == &states.reduction)
      instant->buckets = std::max(instant->buckets, leaving);
  }
  return states;
}

States states_of(const Counts& counts, const TrainingConfig& config, int group_size) {
  const std::int64_t e = size_bytes(element_type(config.precision));
  switch (config.zero_stage) {
    case 0:
      return stage0(counts, config, group_size, e);
    case 1:
      return stage1(counts, config, e);
    case 2:
      return stage2(counts, config, e);
    default:
      return stage3(counts, config, group_size, e);
  }
}

/// Pinned memory comes in powers of two (c10's CachingHostAllocator).
std::int64_t pinned(std::int64_t bytes, const TargetSpec& target) {
  if (!target.on_gpu || bytes == 0) return bytes;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

/// Of offloaded parameters, on the host. Buffers of transfers are pinned without an allocator.
std::int64_t parameter_host_bytes(const Counts& counts, const TrainingConfig& config,
                                  std::int64_t e, const TargetSpec& target) {
  if (!are_parameters_offloaded(config)) return 0;
  if (!are_parameters_on_disk(config)) {
    std::int64_t bytes = pinned(e * counts.own, target);
    for (const std::int64_t shard : counts.secondary_shards) bytes += pinned(e * shard, target);
    return bytes;
  }
  const DiskUse& disk = config.disk;
  std::int64_t bytes = pinned(e * std::min(counts.own, disk.parameters_in_memory), target);
  for (const std::int64_t shard : counts.small_shards) bytes += pinned(e * shard, target);
  const std::int64_t buffer =
      plan::round_up(disk.parameter_buffer_size, transfer_alignment(config, e));
  return bytes + e * (disk.parameter_buffers * buffer + counts.written_together);
}

/// Of what is offloaded, on the host.
std::int64_t host_bytes(const Counts& counts, const TrainingConfig& config,
                        const TargetSpec& target) {
  const std::int64_t e = size_bytes(element_type(config.precision));
  std::int64_t bytes = parameter_host_bytes(counts, config, e, target);
  if (!is_optimizer_offloaded(config)) return bytes;
  // Master copy and gradients are pinned, moments are not.
  bytes += 2 * pinned(4 * counts.updated_on_host, target) + 8 * counts.updated_on_host;
  bytes += config.disk.optimizer_buffers * 4 * counts.largest_on_disk;
  // Parameters on their way back; stage 3 has sums of gradients, too, and no staging.
  if (config.zero_stage == 3) {
    const std::int64_t sums = config.fp32_gradient_accumulation ? 4 : e;
    return bytes + pinned(sums * counts.own, target) + (e < 4 ? pinned(e * counts.own, target) : 0);
  }
  bytes += pinned(e * counts.own, target);
  bytes += pinned(e * counts.largest_parameter, target);
  // Sums of gradients, a parameter at a time.
  if (config.zero_stage == 2 && config.accumulation_steps > 1)
    bytes += (target.on_gpu ? 2 : 1) * e * counts.own_whole;
  return bytes;
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

  const int world_size = group_size;
  if (is_mics(config)) group_size = static_cast<int>(config.mics_shard_size);
  const Counts counts = count(model, config, group_size);
  States states = states_of(counts, config, group_size);
  if (is_optimizer_offloaded(config)) {
    const std::int64_t e = size_bytes(element_type(config.precision));
    states = without_optimizer(states, counts, config, group_size, e);
  }
  memory.host_bytes = host_bytes(counts, config, target);
  memory.disk_bytes = counts.disk_bytes;
  const plan::TargetActivations backward =
      plan::target_activations(model, config, target.attention);
  struct Candidate {
    const char* name;
    const Instant& states;
    std::int64_t activations, logits;
  };
  const Candidate candidates[] = {
      {"loss", states.loss, backward.kept, backward.logits},
      {"layers", states.layers, backward.kept + backward.layer, 0},
      {"first_layer", states.first_layer, backward.first_layer, 0},
      {"reduction", states.reduction, 0, 0},
      {"update", states.update, 0, 0},
  };
  const std::int64_t always = states.parameters + states.optimizer;
  std::int64_t fullest = -1;
  for (const auto& [name, held, activations, logits] : candidates) {
    const std::int64_t bytes = held.gradients + held.buckets + held.step + activations + logits;
    memory.instants[name] = always + bytes;
    if (bytes <= fullest) continue;
    fullest = bytes;
    memory.parts = {{"parameters", states.parameters},
                    {"gradients", held.gradients},
                    {"optimizer", states.optimizer},
                    {"buckets", held.buckets},
                    {"activations", activations},
                    {"logits", logits},
                    {"step", held.step},
                    {"framework", 0}};
  }
  std::int64_t allocated = 0;
  for (const auto& [part, bytes] : memory.parts) allocated += bytes;
  if (target.on_gpu) {
    memory.parts["framework"] = context_bytes + cublas_bytes + (world_size > 1 ? nccl_bytes : 0) +
                                allocated * reserved_percent / 100;
  }
  memory.total_bytes = allocated + memory.parts["framework"];
  return memory;
}

}  // namespace dstune
