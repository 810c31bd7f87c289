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

}  // namespace

void emit_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const TrainingConfig& config, std::int64_t targets_per_sequence) {
  const std::int64_t own = layout.own_elements();
  const bool may_skip = config.precision == Precision::fp16;
  emitter.begin_segment(Segment::Kind::update, 1);
  if (layout.stage() == 0 && layout.group_size() > 1)
    emit_stage0_reduction(emitter, tensors.gradients, own);
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
  emitter.emit(op::Adam{.master = has_master ? at(tensors.master) : own_parameters,
                        .m = at(tensors.m),
                        .v = at(tensors.v),
                        .gradient = gradient,
                        .model = has_master ? own_parameters : View{},
                        .count = own});
  if (layout.stage() == 1 || layout.stage() == 2)
    emitter.emit(op::AllGather{at(tensors.parameters), own_parameters, own});
  emitter.end_segment();
}

}  // namespace dstune::plan
