#include "parts/embedding.hpp"

namespace dstune::plan {

using enum ParameterRole;

Embedding::Embedding(const Context& context)
    : context_(context),
      normed_(context.model.architecture.block == BlockKind::post_norm),
      last_table_(context.model.architecture.token_types > 0 ? token_type_embedding
                                                             : position_embedding),
      norm_{.unit = 0, .weight = embedding_norm_weight, .bias = embedding_norm_bias} {}

/// Position 0's row.
View Embedding::first_position(View table) const {
  if (!table) return {};
  return moved(table, context_.model.architecture.position_offset * context_.sizes.hidden);
}

Running Embedding::forward() {
  const Sizes& sizes = context_.sizes;
  const TensorId sum = context_.activation("residual", -1, sizes.rows * sizes.hidden);
  context_.parameters.use(0, token_embedding, last_table_);
  context_.emitter.emit(
      op::EmbeddingForward{at(sum), context_.parameters.view(0, token_embedding),
                           first_position(context_.parameters.view(0, position_embedding)),
                           context_.parameters.view(0, token_type_embedding), sizes.rows});
  context_.parameters.done(0, token_embedding, last_table_);
  norm_.input = sum;
  if (normed_) norm_forward(context_, norm_, sum, no_tensor);
  return {normed_ ? norm_.out : sum, no_tensor, false};
}

void Embedding::backward(TensorId d_out) {
  const Sizes& sizes = context_.sizes;
  Emitter& emitter = context_.emitter;
  const bool tied = context_.model.tie_embeddings;
  const bool accumulate = context_.gradients.accumulate();
  if (!tied) context_.gradients.open(0);
  TensorId d_sum = d_out;
  if (normed_) {
    d_sum = context_.activation("d residual", -1, sizes.rows * sizes.hidden);
    norm_backward(context_, norm_, d_sum, d_out, false);
    emitter.release(d_out);
    emitter.release(norm_.input);
  }
  // DeepSpeed gathers the tables before their backward, which does not read them.
  context_.parameters.use(0, token_embedding, last_table_);
  positions_backward(accumulate);
  emitter.emit(op::EmbeddingBackward{
      .d_token_table = context_.gradients.view(0, token_embedding),
      .d_position_table = first_position(context_.gradients.view(0, position_embedding)),
      .d_out = at(d_sum),
      .rows = sizes.rows,
      // A tied table holds the head's gradient already.
      .accumulate_tokens = tied || accumulate,
      .accumulate_positions = accumulate});
  types_backward(d_sum, accumulate);
  context_.parameters.done(0, token_embedding, last_table_);
  emitter.release(d_sum);
  context_.gradients.close(0);
}

void Embedding::positions_backward(bool accumulate) const {
  const View d_positions = context_.gradients.view(0, position_embedding);
  if (!d_positions || accumulate) return;
  // The rows of positions that occur are overwritten; the others have no gradient.
  const std::int64_t hidden = context_.sizes.hidden;
  const std::int64_t before = context_.model.architecture.position_offset;
  const std::int64_t used = context_.config.sequence_length;
  const std::int64_t after = context_.model.max_positions - used;
  if (before > 0) context_.emitter.emit(op::Fill{d_positions, 0.0F, before * hidden});
  if (after > 0) {
    context_.emitter.emit(
        op::Fill{moved(d_positions, (before + used) * hidden), 0.0F, after * hidden});
  }
}

void Embedding::types_backward(TensorId d_sum, bool accumulate) const {
  const View d_types = context_.gradients.view(0, token_type_embedding);
  if (!d_types) return;
  // All tokens are of type 0, so its gradient is the sum over rows; the others have none.
  const Sizes& sizes = context_.sizes;
  context_.emitter.bias_backward(
      {d_types, at(d_sum), {}, sizes.rows, sizes.hidden, sizes.hidden, accumulate});
  const std::int64_t others = (context_.model.architecture.token_types - 1) * sizes.hidden;
  if (others > 0 && !accumulate)
    context_.emitter.emit(op::Fill{moved(d_types, sizes.hidden), 0.0F, others});
}

}  // namespace dstune::plan
