#include "micro_step.hpp"

namespace dstune::plan {
namespace {

using enum ParameterRole;

Running embedding_forward(const Context& context) {
  const Sizes& sizes = context.sizes;
  const TensorId out = context.activation("residual", -1, sizes.rows * sizes.hidden);
  context.parameters.use(0, token_embedding, position_embedding);
  context.emitter.emit(op::EmbeddingForward{at(out), context.parameters.view(0, token_embedding),
                                            context.parameters.view(0, position_embedding),
                                            sizes.rows});
  context.parameters.done(0, token_embedding, position_embedding);
  return {out, no_tensor};
}

void embedding_backward(const Context& context, TensorId d_residual) {
  const Sizes& sizes = context.sizes;
  const bool tied = context.model.tie_embeddings;
  const bool accumulate = context.gradients.accumulate();
  if (!tied) context.gradients.open(0);
  // DeepSpeed gathers the tables before their backward, which does not read them.
  context.parameters.use(0, token_embedding, position_embedding);
  const View d_positions = context.gradients.view(0, position_embedding);
  const std::int64_t unused = context.model.max_positions - context.config.sequence_length;
  // Backward overwrites the rows of the positions that occur; the others have no gradient.
  if (d_positions && !accumulate && unused > 0) {
    context.emitter.emit(op::Fill{moved(d_positions, context.config.sequence_length * sizes.hidden),
                                  0.0F, unused * sizes.hidden});
  }
  context.emitter.emit(
      op::EmbeddingBackward{.d_token_table = context.gradients.view(0, token_embedding),
                            .d_position_table = d_positions,
                            .d_out = at(d_residual),
                            .rows = sizes.rows,
                            // A tied table holds the head's gradient already.
                            .accumulate_tokens = tied || accumulate,
                            .accumulate_positions = accumulate});
  context.parameters.done(0, token_embedding, position_embedding);
  context.emitter.release(d_residual);
  context.gradients.close(0);
}

}  // namespace

void emit_micro_step(const Context& context, MicroStep micro) {
  context.emitter.emit(op::Mark{Phase::forward});
  Running running = embedding_forward(context);
  const auto layers = static_cast<int>(context.model.num_layers);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<std::size_t>(layers));
  for (int layer = 0; layer < layers; ++layer) {
    blocks.emplace_back(context, layer);
    running = blocks.back().forward(running);
  }
  const TensorId d_residual = emit_head(context, running, micro);
  for (int layer = layers - 1; layer >= 0; --layer)
    blocks[static_cast<std::size_t>(layer)].backward(d_residual);
  embedding_backward(context, d_residual);
  context.parameters.end_micro_step();
  context.gradients.end_backward();
}

}  // namespace dstune::plan
