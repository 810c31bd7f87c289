#include "zero/host_checkpoints.hpp"

namespace dstune::plan {

HostCheckpoints::HostCheckpoints(const Context& context, std::vector<Block>& blocks)
    : context_(context), blocks_(blocks) {
  if (context.config.cpu_checkpointing && context.config.recompute == Recompute::block)
    checkpoints_.resize(static_cast<std::size_t>(context.model.num_layers));
}

void HostCheckpoints::after_forward(int layer) {
  if (checkpoints_.empty()) return;
  if (layer >= 2) drop_from_device(layer - 2);
  if (layer >= 1) send(layer - 1);
}

void HostCheckpoints::before_backward(int layer) {
  if (checkpoints_.empty()) return;
  Checkpoint& checkpoint = at_layer(layer);
  if (checkpoint.host != no_tensor) {
    context_.emitter.wait(Stream::compute, checkpoint.event);
    context_.emitter.release(checkpoint.host);
  }
  if (layer > 0 && on_device(layer - 1) == no_tensor) fetch(layer - 1);
}

void HostCheckpoints::send(int layer) {
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  Emitter& emitter = context_.emitter;
  Checkpoint& checkpoint = at_layer(layer);
  checkpoint.host = emitter.acquire("checkpoint", layer, Category::activations, emitter.type(),
                                    elements, Memory::host);
  const Stream stream = emitter.begin_beside(true, Stream::copy);
  emitter.emit(op::Copy{at(checkpoint.host), at(on_device(layer)), elements}, stream);
  checkpoint.event = emitter.record(stream);
}

void HostCheckpoints::drop_from_device(int layer) {
  context_.emitter.wait(Stream::compute, at_layer(layer).event);
  context_.emitter.release(on_device(layer));
  on_device(layer) = no_tensor;
}

void HostCheckpoints::fetch(int layer) {
  const std::int64_t elements = context_.sizes.rows * context_.sizes.hidden;
  Emitter& emitter = context_.emitter;
  on_device(layer) = context_.activation("residual", layer, elements);
  const Stream stream = emitter.begin_beside(true, Stream::copy);
  emitter.emit(op::Copy{at(on_device(layer)), at(at_layer(layer).host), elements}, stream);
  at_layer(layer).event = emitter.record(stream);
}

}  // namespace dstune::plan
