#include "parts/micro_step.hpp"

#include "parts/embedding.hpp"
#include "zero/host_checkpoints.hpp"

namespace dstune::plan {

namespace {

/// At both ends of each checkpoint's forward and backward the host waits for all that the device
/// was given, and gives it nothing before.
void wait_at_boundary(const Context& context) {
  const TrainingConfig& config = context.config;
  if (!config.synchronize_checkpoint_boundary || config.recompute != Recompute::block) return;
  Emitter& emitter = context.emitter;
  const auto wait_for = [&](Stream stream) {
    emitter.wait(Stream::compute, emitter.record(stream));
  };
  if (config.overlap_comm && config.zero_stage > 0) wait_for(Stream::reduce);
  if (config.overlap_comm && config.zero_stage == 3) wait_for(Stream::gather);
  if (config.cpu_checkpointing) wait_for(Stream::copy);
}

}  // namespace

void emit_micro_step(const Context& context, MicroStep micro) {
  context.emitter.emit(op::Mark{Phase::forward});
  Embedding embedding(context);
  Running running = embedding.forward();
  const auto layers = static_cast<int>(context.model.num_layers);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<std::size_t>(layers));
  HostCheckpoints checkpoints(context, blocks);
  for (int layer = 0; layer < layers; ++layer) {
    blocks.emplace_back(context, layer);
    wait_at_boundary(context);
    running = blocks.back().forward(running);
    checkpoints.after_forward(layer);
  }
  wait_at_boundary(context);
  TensorId d_residual = emit_head(context, running, micro);
  for (int layer = layers - 1; layer >= 0; --layer) {
    wait_at_boundary(context);
    checkpoints.before_backward(layer);
    d_residual = blocks[static_cast<std::size_t>(layer)].backward(d_residual);
  }
  wait_at_boundary(context);
  embedding.backward(d_residual);
  context.parameters.end_micro_step();
  context.gradients.end_backward();
}

}  // namespace dstune::plan
