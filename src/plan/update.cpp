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

void emit_device_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                        const TrainingConfig& config) {
  const View gradient = at(layout.stage() == 0 ? tensors.gradients : tensors.own_gradients);
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
}

/// States [first, first + count) on the host: they wait for the gradients that are on their way,
/// and the parameters are sent back.
void update_on_host(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                    std::int64_t first, std::int64_t count) {
  // Stage 3 makes a copy in the parameters' type where that is not the master's.
  TensorId updated = tensors.updated_parameters;
  const bool is_temporary = updated == no_tensor && emitter.type() != DType::f32;
  if (is_temporary) {
    updated = emitter.acquire("updated parameters", -1, Category::staging, emitter.type(), count,
                              Memory::host);
  }
  emitter.wait(Stream::host, emitter.record(Stream::compute));
  const View master = at(tensors.master, first);
  emitter.emit(op::Adam{.master = master,
                        .m = at(tensors.m, first),
                        .v = at(tensors.v, first),
                        .gradient = at(tensors.own_gradients, first),
                        .model = {},
                        .count = count},
               Stream::host);
  if (updated != no_tensor) emitter.emit(op::Convert{at(updated), master, count}, Stream::host);
  emitter.wait(Stream::compute, emitter.record(Stream::host));
  emitter.emit(op::Copy{at(tensors.parameters, layout.own_offset() + first),
                        updated == no_tensor ? master : at(updated), count});
  if (is_temporary) emitter.release(updated);
}

void emit_host_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                      const TrainingConfig& config) {
  std::int64_t first = 0;
  for (const std::int64_t count : sub_groups(layout, config)) {
    update_on_host(emitter, layout, tensors, first, count);
    first += count;
  }
}

}  // namespace

void emit_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const TrainingConfig& config, std::int64_t targets_per_sequence,
                 const Gathering* gathering) {
  const std::int64_t own = layout.own_elements();
  const bool may_skip = config.precision == Precision::fp16;
  const bool offloaded = layout.is_optimizer_offloaded();
  const bool partitioned = layout.stage() > 0 && layout.group_size() > 1;
  emitter.begin_segment(Segment::Kind::update, 1);
  if (layout.stage() == 0 && layout.group_size() > 1)
    emit_stage0_reduction(emitter, layout, tensors.gradients);
  emitter.emit(op::Mark{Phase::update});
  emitter.emit(op::FinishLoss{global_batch(config, layout.group_size()) * targets_per_sequence});

  // Of gradients that leave the device the squares were added up before they did.
  if (!offloaded && (may_skip || config.gradient_clipping > 0)) {
    emitter.emit(op::AccumulateSquares{
        at(layout.stage() == 0 ? tensors.gradients : tensors.own_gradients), own});
  }
  if (may_skip) {
    emitter.emit(op::CheckOverflow{partitioned});
    emitter.end_segment();
    emitter.begin_segment(Segment::Kind::guarded_update, 1);
  }
  if (config.gradient_clipping > 0)
    emitter.emit(op::ClipFactor{config.gradient_clipping, partitioned && !may_skip});
  if (offloaded) {
    emit_host_update(emitter, layout, tensors, config);
  } else {
    emit_device_update(emitter, layout, tensors, config);
  }
  if (partitioned && layout.stage() < 3) {
    emitter.emit(
        op::AllGather{at(tensors.parameters), at(tensors.parameters, layout.own_offset()), own});
  }
  if (gathering != nullptr) gather_kept(emitter, layout, tensors, *gathering);
  emitter.end_segment();
}

}  // namespace dstune::plan
