#include <algorithm>

#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/step_plan.hpp"
#include "target/target.hpp"
#include "zero/disk.hpp"

namespace dstune::plan {
namespace {

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

/// Elements of all parameters as they lie in DeepSpeed's flat buffer at stages 1 and 2.
std::int64_t laid_out_elements(const ParameterTable& table, const TrainingConfig& config) {
  const bool aligns = config.zero_stage == 1 || config.zero_stage == 2;
  const std::int64_t alignment = aligns ? order_of(config).alignment : 1;
  std::int64_t end = 0;
  for (const Piece& piece : cut_into_pieces(table)) end = round_up(end, alignment) + piece.elements;
  return end;
}

/// Counts elements that an optimizer leaves on the device if it is not all on the host, and those
/// that it has on a disk.
void count_left(const ParameterTable& table, const TrainingConfig& config, int group_size,
                bool is_on_gpu, TargetCounts& counts) {
  const Layout layout(table, config.zero_stage, {.size = group_size}, offloaded_of(config));
  const std::vector<SubGroup> groups = cut_into_sub_groups(layout, config, is_on_gpu ? 1 : 0);
  counts.updated_on_device = elements_in(groups, Memory::device);
  counts.updated_on_host = elements_in(groups, Memory::host);
  for (const SubGroup& group : groups) {
    if (group.memory == Memory::host || (group.memory == Memory::device && is_on_gpu))
      counts.host_gradients.push_back(group.count);
    if (group.memory != Memory::disk) continue;
    counts.largest_on_disk = std::max(counts.largest_on_disk, group.count);
    const bool has_moments = group.moments_memory == Memory::disk;
    counts.disk_bytes += 4 * tensors_on_disk(config.optimizer, group) *
                         round_up(group.count, transfer_alignment(config, 4));
    if (!has_moments) counts.moments_on_host += group.count;
  }
  counts.held_gradients = SwappedGradients(layout, config, groups).held_elements();
}

void count_swapped_shards(const ParameterTable& table, const TrainingConfig& config, int group_size,
                          TargetCounts& counts) {
  const Layout layout(table, config.zero_stage, {group_size, 0},
                      {is_optimizer_offloaded(config), true});
  const std::int64_t e = size_bytes(element_type(config.precision));
  const std::vector<bool> on_disk = find_shards_on_disk(layout, config);
  const std::vector<SubGroup> groups = cut_into_sub_groups(layout, config);
  // Files of all that are large enough are made, also of what stays in memory.
  for (std::size_t piece = 0; piece < on_disk.size(); ++piece) {
    const std::int64_t shard = layout.piece_shard_elements(static_cast<int>(piece));
    if (is_swappable(config, e * shard))
      counts.disk_bytes += e * round_up(shard, transfer_alignment(config, e));
  }
  std::int64_t largest = 0;
  for (const SubGroup& group : groups) {
    std::int64_t blocks = 0;
    for (const int piece : layout.pieces_of(group.first, group.count)) {
      const std::int64_t shard = layout.piece_shard_elements(piece);
      blocks += round_up(shard, transfer_alignment(config, e));
      if (group.swaps_parameters && !on_disk[piece]) counts.small_shards.push_back(shard);
    }
    // DeepSpeed's choice: the first of the largest ones.
    if (group.count <= largest) continue;
    largest = group.count;
    counts.written_together = blocks;
  }
  if (!groups.back().swaps_parameters) counts.written_together = 0;
}

/// Counts what stage 3 gathers: it plays DeepSpeed's coordinator through.
void count_gathered(const ModelSpec& model, const ParameterTable& table, Gatherings& gatherings,
                    const TrainingConfig& config, int group_size, TargetCounts& counts) {
  if (config.zero_stage < 3 || (group_size == 1 && !are_parameters_offloaded(config))) return;
  // All that forward has gathered stays.
  counts.left_of_forward = counts.max_gathered = counts.parameters;
  if (config.stage3_max_reuse_distance >= counts.parameters - counts.persistent) return;
  const Layout layout(table, 3, {.size = group_size}, offloaded_of(config));
  const Gathering& gathering = gatherings.of(model, layout, config);
  if (are_parameters_on_disk(config) && !gathering.failure.empty()) return;
  counts.left_of_forward = counts.max_gathered = 0;
  const auto elements = [&](std::span<const int> pieces) {
    std::int64_t sum = 0;
    for (const int piece : pieces) sum += layout.piece(piece).elements;
    return sum;
  };
  std::int64_t live = gathering.traced->kept_elements;
  bool is_forward = true;
  for (const TraceEvent& event : gathering.traced->trace.events) {
    if (event.kind != TraceEvent::Kind::fetch) {
      live -= elements(gathering.steady.released[event.visit]);
      continue;
    }
    if (is_forward && !gathering.traced->trace.visits[event.visit].is_forward) {
      is_forward = false;
      counts.left_of_forward = live;
    }
    for (const auto* gathers : {&gathering.steady.fetched, &gathering.steady.prefetched}) {
      const std::int64_t more = elements((*gathers)[event.visit]);
      std::int64_t& most =
          (*gathers)[event.visit].size() > 1 ? counts.gathered_together : counts.gathered_alone;
      most = std::max(most, more);
      live += more;
    }
    counts.max_gathered = std::max(counts.max_gathered, live);
  }
}

/// GPT-2's blocks have no linear layers but Conv1D, whose products keep no weight.
void count_linear(const ModelSpec& model, const ParameterTable& table, const TrainingConfig& config,
                  TargetCounts& counts) {
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

/// Leaves of what is counted for training all parameters what some of them take. Their gradients
/// are spread over the layers as evenly as the layers are.
void keep_trained(const TrainedParameters& trained, int group_size, TargetCounts& counts) {
  counts.parameters += trained.added;
  counts.own_parameters += (trained.added + group_size - 1) / group_size;
  counts.trained = trained.elements;
  counts.own = (trained.elements + group_size - 1) / group_size;
  counts.own_whole = std::min(counts.own + trained.largest, trained.elements);
  counts.largest_unit = trained.largest_unit;
  counts.largest_gradient = trained.largest;
  counts.largest_of_layer = trained.largest_of_layer;
  counts.table = trained.has_table ? counts.table : 0;
  counts.head = counts.table + trained.of_layer;
  counts.embeddings = trained.has_table ? counts.embeddings : 0;
  counts.table_copies = trained.has_table ? counts.table_copies : 0;
  counts.updated_on_host = counts.own;
  counts.updated_on_device = 0;
  counts.host_gradients.assign(counts.host_gradients.empty() ? 0 : 1, counts.own);
}

}  // namespace

std::int64_t transfer_alignment(const TrainingConfig& config, std::int64_t e) {
  return 1024 * config.disk.threads / e;
}

TargetCounts count_target(const ModelSpec& model, const ParameterTable& table,
                          Gatherings& gatherings, const TrainingConfig& config, int group_size,
                          const TargetSpec& target) {
  TargetCounts counts{};
  counts.parameters = table.total_elements();
  const std::int64_t laid_out = laid_out_elements(table, config);
  const std::int64_t hpz = std::min<std::int64_t>(config.zero_hpz_partition_size, group_size);
  if (config.zero_stage == 3 && config.zero_hpz_partition_size > 1) {
    for (const Parameter& parameter : table.all()) {
      counts.secondary_shards.push_back((parameter.elements() + hpz - 1) / hpz);
      counts.secondary += counts.secondary_shards.back();
    }
  }
  counts.padding = laid_out - counts.parameters;
  counts.trained = counts.parameters;
  counts.own = counts.own_parameters = (laid_out + group_size - 1) / group_size;
  if (config.zero_stage == 1 || config.zero_stage == 2)
    counts.own_whole = whole_parameters(table, counts.own);
  for (int unit = 0; unit < table.num_units(); ++unit)
    counts.largest_unit = std::max(counts.largest_unit, table.unit_elements(unit));
  for (const Parameter& parameter : table.all()) {
    counts.largest_parameter = std::max(counts.largest_parameter, parameter.elements());
    counts.largest_scales = std::max({counts.largest_scales, parameter.rows, parameter.columns});
    if (parameter.unit == 1)
      counts.largest_of_layer = std::max(counts.largest_of_layer, parameter.elements());
  }
  for (const Parameter& parameter : table.all())
    if (parameter.elements() <= config.stage3_param_persistence_threshold &&
        parameter.elements() <= config.stage3_model_persistence_threshold - counts.persistent)
      counts.persistent += parameter.elements();
  counts.largest_gradient = counts.largest_parameter;
  count_gathered(model, table, gatherings, config, group_size, counts);
  count_linear(model, table, config, counts);
  counts.table = model.vocab_size * model.hidden_size;
  const std::int64_t head =
      model.labels > 0 ? table.unit_elements(table.num_units() - 1) : counts.table;
  counts.head = head + table.unit_elements(1);
  counts.embeddings = model.tie_embeddings ? 0 : counts.table;
  // Autograd adds the embeddings' and the head's up in a third, and that to what was there.
  counts.table_copies = (model.tie_embeddings ? 2 : 0) + (config.accumulation_steps > 1 ? 1 : 0);
  counts.updated_on_host = counts.own;
  if (is_optimizer_offloaded(config) && config.zero_stage == 3)
    count_left(table, config, group_size, target.on_gpu, counts);
  if (target.trainable) {
    counts.parts = count_trained(table, *target.trainable);
    keep_trained(*counts.parts, group_size, counts);
  }
  if (are_parameters_on_disk(config)) count_swapped_shards(table, config, group_size, counts);
  return counts;
}

}  // namespace dstune::plan
