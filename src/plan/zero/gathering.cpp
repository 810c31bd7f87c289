#include "zero/gathering.hpp"

#include <algorithm>
#include <utility>

#include "zero/disk.hpp"
#include "zero/quantization.hpp"

namespace dstune::plan {
namespace {

void choose_kept(const TrainingConfig& config, TracedGathers& traced) {
  const std::vector<Piece>& pieces = traced.pieces;
  traced.kept.assign(pieces.size(), false);
  std::int64_t sum = 0;
  for (const int index : traced.trace.registered) {
    const auto piece = static_cast<std::size_t>(index);
    const std::int64_t elements = pieces[piece].elements;
    // Without an overflow: the threshold is the largest integer where there is none.
    if (elements > config.stage3_param_persistence_threshold ||
        elements > config.stage3_model_persistence_threshold - sum) {
      continue;
    }
    traced.kept[piece] = true;
    sum += elements;
  }
}

void place_kept(const Layout& layout, TracedGathers& traced) {
  const std::vector<Piece>& pieces = traced.pieces;
  traced.kept_offset.assign(pieces.size(), -1);
  traced.kept_whole.assign(static_cast<std::size_t>(layout.num_parameters()), false);
  std::int64_t& end = traced.kept_elements;
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const auto first = traced.kept.begin() + layout.piece_begin(index);
    const auto last = traced.kept.begin() + layout.piece_begin(index + 1);
    const bool whole = std::find(first, last, false) == last;
    traced.kept_whole[static_cast<std::size_t>(index)] = whole;
    for (int piece = layout.piece_begin(index); piece < layout.piece_begin(index + 1); ++piece) {
      const auto at = static_cast<std::size_t>(piece);
      if (!traced.kept[at]) continue;
      traced.kept_offset[at] = end;
      // Shards arrive with their padding, which the next piece overwrites.
      const bool adjoins = whole && piece + 1 < layout.piece_begin(index + 1);
      end +=
          adjoins ? pieces[at].elements : layout.piece_shard_elements(piece) * layout.group_size();
    }
  }
}

std::shared_ptr<const TracedGathers> trace_gathers(const ModelSpec& model, const Layout& layout,
                                                   const TrainingConfig& config) {
  const auto result = std::make_shared<TracedGathers>();
  TracedGathers& traced = *result;
  traced.pieces = layout.pieces();
  traced.trace = trace_modules(model, layout.table(), traced.pieces, config);
  choose_kept(config, traced);
  place_kept(layout, traced);
  ShardBuffers buffers;
  if (are_parameters_on_disk(config))
    buffers = {find_shards_on_disk(layout, config), config.disk.parameter_buffers};
  for (std::size_t piece = 0; piece < buffers.on_disk.size(); ++piece) {
    if (!buffers.on_disk[piece] || !traced.kept[piece]) continue;
    traced.failure =
        "stage3_param_persistence_threshold keeps a parameter whole whose shard is on the disk, "
        "which is not built in dstune-mpi";
    return result;
  }
  traced.schedule.emplace(traced.trace, traced.pieces, traced.kept, std::move(buffers));
  traced.first = traced.schedule->trace_micro_step();
  return result;
}

Gathering gather_ahead(std::shared_ptr<const TracedGathers> traced, const Layout& layout,
                       const TrainingConfig& config) {
  Gathering gathering;
  gathering.traced = std::move(traced);
  gathering.failure = gathering.traced->failure;
  if (!gathering.failure.empty()) return gathering;
  const GatherLimits limits{
      // One parameter ahead: DeepSpeed writes 1 over the user's value.
      config.stage3_allgather_sequential ? 1 : config.stage3_prefetch_bucket_size,
      config.stage3_max_live_parameters, config.stage3_max_reuse_distance};
  GatherSchedule schedule = *gathering.traced->schedule;
  if (config.accumulation_steps > 1) gathering.second = schedule.micro_step(limits);
  schedule.update();
  gathering.steady = schedule.micro_step(limits);
  gathering.failure = schedule.failure();
  if (gathering.failure.empty()) gathering.failure = weights_violation(layout, gathering, config);
  return gathering;
}

}  // namespace

Gathering plan_gathering(const ModelSpec& model, const Layout& layout,
                         const TrainingConfig& config) {
  return gather_ahead(trace_gathers(model, layout, config), layout, config);
}

const Gathering& Gatherings::of(const ModelSpec& model, const Layout& layout,
                                const TrainingConfig& config) {
  if (are_parameters_on_disk(config)) return from_disk_ = plan_gathering(model, layout, config);
  const Knobs knobs{
      {config.recompute != Recompute::none, config.stage3_module_granularity_threshold,
       config.stage3_param_persistence_threshold, config.stage3_model_persistence_threshold,
       layout.group_size(), quantizes_weights(config), layout.shards_of_secondary(),
       config.leaf_modules},
      config.accumulation_steps > 1,
      config.stage3_allgather_sequential,
      config.stage3_prefetch_bucket_size,
      config.stage3_max_live_parameters,
      config.stage3_max_reuse_distance};
  std::shared_ptr<const TracedGathers> traced;
  for (const Known& known : known_) {
    if (known.knobs == knobs) return known.gathering;
    if (known.knobs.tracing == knobs.tracing) traced = known.gathering.traced;
  }
  if (traced == nullptr) traced = trace_gathers(model, layout, config);
  if (known_.size() < max_known) known_.emplace_back();
  Known& known = known_[next_];
  next_ = (next_ + 1) % max_known;
  known = {knobs, gather_ahead(std::move(traced), layout, config)};
  return known.gathering;
}

}  // namespace dstune::plan
