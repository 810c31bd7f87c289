#include "update.hpp"

#include <algorithm>

namespace dstune::plan {
namespace {

void emit_stage0_reduction(Emitter& emitter, const Layout& layout, TensorId gradients) {
  // DeepSpeed books it as the end of backward.
  emitter.emit(op::Mark{Phase::backward});
  std::int64_t first = 0;
  for (int index = 0; index < layout.num_parameters(); ++index) {
    const Parameter& parameter = layout.parameter(index);
    const std::int64_t end = parameter.offset + parameter.elements();
    if (end - first <= stage0_chunk_elements && index + 1 < layout.num_parameters()) continue;
    emitter.emit(op::AllReduceAverage{at(gradients, first), end - first});
    first = end;
  }
}

/// Elements that are updated together: all of them, in stage 3 whole parameters until they are as
/// many as a sub-group holds.
std::vector<std::int64_t> sub_groups(const Layout& layout, const TrainingConfig& config) {
  if (layout.stage() < 3) return {layout.own_elements()};
  std::vector<std::int64_t> counts;
  std::int64_t count = 0;
  for (int piece = 0; piece < static_cast<int>(layout.pieces().size()); ++piece) {
    count += layout.piece_shard_elements(piece);
    if (count < config.sub_group_size) continue;
    counts.push_back(count);
    count = 0;
  }
  if (count > 0) counts.push_back(count);
  return counts;
}

/// One by one, as in DeepSpeed.
void gather_kept(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const Gathering& gathering) {
  for (std::size_t index = 0; index < gathering.kept.size(); ++index) {
    if (!gathering.kept[index]) continue;
    const int piece = static_cast<int>(index);
    emitter.emit(op::AllGather{at(tensors.kept, gathering.kept_offset[index]),
                               at(tensors.parameters, layout.piece_shard_offset(piece)),
                               layout.piece_shard_elements(piece)});
  }
}

}  // namespace

void emit_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const TrainingConfig& config, std::int64_t targets_per_sequence,
                 const Gathering* gathering) {
  const std::int64_t own = layout.own_elements();
  const bool may_skip = config.precision == Precision::fp16;
  emitter.begin_segment(Segment::Kind::update, 1);
  if (layout.stage() == 0 && layout.group_size() > 1)
    emit_stage0_reduction(emitter, layout, tensors.gradients);
  emitter.emit(op::Mark{Phase::update});
  emitter.emit(op::FinishLoss{global_batch(config, layout.group_size()) * targets_per_sequence});

  const View gradient = at(layout.stage() == 0 ? tensors.gradients : tensors.own_gradients);
  const bool partitioned = layout.stage() > 0;
  if (may_skip || config.gradient_clipping > 0) emitter.emit(op::AccumulateSquares{gradient, own});
  if (may_skip) {
    emitter.emit(op::CheckOverflow{partitioned});
    emitter.end_segment();
    emitter.begin_segment(Segment::Kind::guarded_update, 1);
  }
  if (config.gradient_clipping > 0)
    emitter.emit(op::ClipFactor{config.gradient_clipping, partitioned && !may_skip});
  const View own_parameters = at(tensors.parameters, layout.own_offset());
  const bool has_master = tensors.master != no_tensor;
  std::int64_t first = 0;
  for (const std::int64_t count : sub_groups(layout, config)) {
    emitter.emit(op::Adam{.master = moved(has_master ? at(tensors.master) : own_parameters, first),
                          .m = at(tensors.m, first),
                          .v = at(tensors.v, first),
                          .gradient = moved(gradient, first),
                          .model = has_master ? moved(own_parameters, first) : View{},
                          .count = count});
    first += count;
  }
  if (layout.stage() == 1 || layout.stage() == 2)
    emitter.emit(op::AllGather{at(tensors.parameters), own_parameters, own});
  if (gathering != nullptr) gather_kept(emitter, layout, tensors, *gathering);
  emitter.end_segment();
}

}  // namespace dstune::plan
