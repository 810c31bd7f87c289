#include "gathering.hpp"

#include <algorithm>
#include <utility>

#include "quantization.hpp"
#include "sub_groups.hpp"

namespace dstune::plan {
namespace {

void choose_kept(const Layout& layout, const TrainingConfig& config, Gathering& gathering) {
  const std::vector<Piece>& pieces = layout.pieces();
  gathering.kept.assign(pieces.size(), false);
  std::int64_t sum = 0;
  for (const int index : gathering.trace.registered) {
    const auto piece = static_cast<std::size_t>(index);
    const std::int64_t elements = pieces[piece].elements;
    // Without an overflow: the threshold is the largest integer where there is none.
    if (elements > config.stage3_param_persistence_threshold ||
        elements > config.stage3_model_persistence_threshold - sum) {
      continue;
    }
    gathering.kept[piece] = true;
    sum += elements;
  }
}

void place_kept(const Layout& layout, Gathering& gathering) {
  const std::vector<Piece>& pieces = layout.pieces();
  gathering.kept_offset.assign(pieces.size(), -1);
  gathering.kept_whole.assign(static_cast<std::size_t>(layout.num_parameters()), false);
  std::int64_t& end = gathering.kept_elements;
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const auto first = gathering.kept.begin() + layout.piece_begin(index);
    const auto last = gathering.kept.begin() + layout.piece_begin(index + 1);
    const bool whole = std::find(first, last, false) == last;
    gathering.kept_whole[static_cast<std::size_t>(index)] = whole;
    for (int piece = layout.piece_begin(index); piece < layout.piece_begin(index + 1); ++piece) {
      const auto at = static_cast<std::size_t>(piece);
      if (!gathering.kept[at]) continue;
      gathering.kept_offset[at] = end;
      // Shards arrive with their padding, which the next piece overwrites.
      const bool adjoins = whole && piece + 1 < layout.piece_begin(index + 1);
      end +=
          adjoins ? pieces[at].elements : layout.piece_shard_elements(piece) * layout.group_size();
    }
  }
}

}  // namespace

Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                         const TrainingConfig& config) {
  Gathering gathering;
  gathering.trace = trace_modules(model, layout.table(), layout.pieces(), config);
  choose_kept(layout, config, gathering);
  place_kept(layout, gathering);
  ShardBuffers buffers;
  if (are_parameters_on_disk(config))
    buffers = {find_shards_on_disk(layout, config), config.disk.parameter_buffers};
  for (std::size_t piece = 0; piece < buffers.on_disk.size(); ++piece) {
    if (!buffers.on_disk[piece] || !gathering.kept[piece]) continue;
    gathering.failure =
        "stage3_param_persistence_threshold keeps a parameter whole whose shard is on the disk, "
        "which is not built in dstune-mpi";
    return gathering;
  }
  GatherSchedule schedule(
      gathering.trace, layout.pieces(), gathering.kept,
      {// One parameter ahead: DeepSpeed writes 1 over the user's value.
       config.stage3_allgather_sequential ? 1 : config.stage3_prefetch_bucket_size,
       config.stage3_max_live_parameters, config.stage3_max_reuse_distance},
      std::move(buffers));
  gathering.first = schedule.trace_micro_step();
  if (config.accumulation_steps > 1) gathering.second = schedule.micro_step();
  schedule.update();
  gathering.steady = schedule.micro_step();
  gathering.failure = schedule.failure();
  if (gathering.failure.empty()) gathering.failure = weights_objection(layout, gathering, config);
  return gathering;
}

const Gathering& Gatherings::of(const ModelSpec& model, const Layout& layout,
                                const TrainingConfig& config) {
  if (are_parameters_on_disk(config)) return from_disk_ = plan_gathering(model, layout, config);
  const Knobs knobs{config.accumulation_steps > 1,
                    config.recompute != Recompute::none,
                    config.stage3_allgather_sequential,
                    config.stage3_module_granularity_threshold,
                    config.stage3_param_persistence_threshold,
                    config.stage3_model_persistence_threshold,
                    config.stage3_prefetch_bucket_size,
                    config.stage3_max_live_parameters,
                    config.stage3_max_reuse_distance,
                    layout.group_size(),
                    quantizes_weights(config),
                    layout.shards_of_secondary(),
                    config.leaf_modules};
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const Known& known) { return known.knobs == knobs; });
  if (found != known_.end()) return found->gathering;
  if (known_.size() < most_known) known_.emplace_back();
  Known& known = known_[next_];
  next_ = (next_ + 1) % most_known;
  known = {knobs, plan_gathering(model, layout, config)};
  return known.gathering;
}

}  // namespace dstune::plan
