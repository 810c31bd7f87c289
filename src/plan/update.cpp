#include "update.hpp"

#include <algorithm>

namespace dstune::plan {
namespace {

void emit_stage0_reduction(Emitter& emitter, TensorId gradients, std::int64_t elements) {
  // DeepSpeed books it as the end of backward.
  emitter.emit(op::Mark{Phase::backward});
  for (std::int64_t first = 0; first < elements; first += stage0_chunk_elements) {
    emitter.emit(op::AllReduceAverage{at(gradients, first),
                                      std::min(stage0_chunk_elements, elements - first)});
  }
}

void emit_device_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors) {
  const View own_parameters = at(tensors.parameters, layout.own_offset());
  const bool has_master = tensors.master != no_tensor;
  emitter.emit(
      op::Adam{.master = has_master ? at(tensors.master) : own_parameters,
               .m = at(tensors.m),
               .v = at(tensors.v),
               .gradient = at(layout.stage() == 0 ? tensors.gradients : tensors.own_gradients),
               .model = has_master ? own_parameters : View{},
               .count = layout.own_elements()});
}

/// The host waits for the gradients that are on their way to it, updates its states, and sends the
/// parameters back.
void emit_host_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors) {
  const std::int64_t own = layout.own_elements();
  // Stage 3 makes a copy in the parameters' type where that is not the master's.
  TensorId updated = tensors.updated_parameters;
  const bool is_temporary = updated == no_tensor && emitter.type() != DType::f32;
  if (is_temporary) {
    updated = emitter.acquire("updated parameters", -1, Category::staging, emitter.type(), own,
                              Memory::host);
  }
  emitter.wait(Stream::host, emitter.record(Stream::compute));
  emitter.emit(op::Adam{.master = at(tensors.master),
                        .m = at(tensors.m),
                        .v = at(tensors.v),
                        .gradient = at(tensors.own_gradients),
                        .model = {},
                        .count = own},
               Stream::host);
  if (updated != no_tensor)
    emitter.emit(op::Convert{at(updated), at(tensors.master), own}, Stream::host);
  emitter.wait(Stream::compute, emitter.record(Stream::host));
  emitter.emit(op::Copy{at(tensors.parameters, layout.own_offset()),
                        at(updated == no_tensor ? tensors.master : updated), own});
  if (is_temporary) emitter.release(updated);
}

}  // namespace

void emit_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const TrainingConfig& config, std::int64_t targets_per_sequence) {
  const std::int64_t own = layout.own_elements();
  const bool may_skip = config.precision == Precision::fp16;
  const bool offloaded = layout.is_optimizer_offloaded();
  const bool partitioned = layout.stage() > 0 && layout.group_size() > 1;
  emitter.begin_segment(Segment::Kind::update, 1);
  if (layout.stage() == 0 && layout.group_size() > 1)
    emit_stage0_reduction(emitter, tensors.gradients, own);
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
    emit_host_update(emitter, layout, tensors);
  } else {
    emit_device_update(emitter, layout, tensors);
  }
  if (partitioned && layout.stage() < 3) {
    emitter.emit(
        op::AllGather{at(tensors.parameters), at(tensors.parameters, layout.own_offset()), own});
  }
  emitter.end_segment();
}

}  // namespace dstune::plan
