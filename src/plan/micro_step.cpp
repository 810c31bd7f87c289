#include "micro_step.hpp"

#include "embedding.hpp"
#include "host_checkpoints.hpp"

namespace dstune::plan {

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
    running = blocks.back().forward(running);
    checkpoints.after_forward(layer);
  }
  TensorId d_residual = emit_head(context, running, micro);
  for (int layer = layers - 1; layer >= 0; --layer) {
    checkpoints.before_backward(layer);
    d_residual = blocks[static_cast<std::size_t>(layer)].backward(d_residual);
  }
  embedding.backward(d_residual);
  context.parameters.end_micro_step();
  context.gradients.end_backward();
}

}  // namespace dstune::plan
