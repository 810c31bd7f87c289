/// The model's ends: embedding, and head with its loss.

#include <algorithm>

#include "parts/micro_step.hpp"

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

namespace {

/// Most bytes of one chunk's logits, fewest rows of a chunk, and of what its rows are a multiple
/// where that fits. Each chunk reads the head's weight twice, and its gradient is added to: a GPU's
/// products hide both behind what they compute where a chunk has some thousand rows.
constexpr std::int64_t logits_chunk_bytes = std::int64_t{256} << 20;
constexpr std::int64_t logits_chunk_rows = 32;
constexpr std::int64_t logits_tile_rows = 128;

/// Elements from one row of logits to the next, which begin at multiples of so many bytes.
std::int64_t logits_stride(std::int64_t vocab, DType type, std::int64_t alignment_bytes) {
  const std::int64_t multiple = std::max<std::int64_t>(1, alignment_bytes / size_bytes(type));
  return (vocab + multiple - 1) / multiple * multiple;
}

/// Rows of every chunk but the last.
std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t stride, DType type) {
  const std::int64_t most =
      std::max(logits_chunk_rows, logits_chunk_bytes / (stride * size_bytes(type)));
  const std::int64_t chunks = (rows + most - 1) / most;
  const std::int64_t equal = (rows + chunks - 1) / chunks;
  // Products go by tiles of so many rows, of which only the last chunk's may be cut.
  const std::int64_t tiles = (equal + logits_tile_rows - 1) / logits_tile_rows * logits_tile_rows;
  return std::min(rows, std::max(logits_chunk_rows, tiles <= most ? tiles : equal));
}

/// The matrix [vocab, hidden] and its gradient; a bias [vocab] where the head has one.
struct HeadWeight {
  View weight, gradient, bias, d_bias;
};

/// The masked-language head before its matrix: a product, the activation, a norm.
class Transform {
 public:
  Transform(const Context& context, int unit)
      : context_(context),
        rows_(context.sizes.rows),
        hidden_(context.sizes.hidden),
        layer_{unit, transform_weight, transform_bias, hidden_, hidden_},
        norm_{.unit = unit, .weight = transform_norm_weight, .bias = transform_norm_bias} {}

  TensorId forward(TensorId in) {
    product_ = context_.activation("transform", -1, rows_ * hidden_);
    linear_forward(context_, layer_, product_, in);
    norm_.input = context_.activation("activated", -1, rows_ * hidden_);
    context_.emitter.emit(
        op::ActivationForward{false, at(norm_.input), at(product_), rows_, hidden_});
    norm_forward(context_, norm_, norm_.input, no_tensor);
    return norm_.out;
  }
  /// Releases d_out and `in`; returns the gradient of `in`.
  TensorId backward(TensorId d_out, TensorId in) {
    Emitter& emitter = context_.emitter;
    const TensorId d_product = context_.activation("d transform", -1, rows_ * hidden_);
    norm_backward(context_, norm_, d_product, d_out, false);
    emitter.release(d_out);
    emitter.release(norm_.input);
    emitter.emit(
        op::ActivationBackward{false, at(d_product), at(d_product), at(product_), rows_, hidden_});
    emitter.release(product_);
    linear_backward_weights(context_, layer_, d_product, in);
    emitter.release(in);
    const TensorId d_in = context_.activation("d hidden", -1, rows_ * hidden_);
    linear_backward_input(context_, layer_, d_in, d_product);
    emitter.release(d_product);
    return d_in;
  }

 private:
  const Context& context_;
  std::int64_t rows_, hidden_;
  Linear layer_;
  Norm norm_;
  TensorId product_ = no_tensor;
};

void emit_chunk(const Context& context, const HeadWeight& head, TensorId hidden, TensorId d_hidden,
                TensorId logits, std::int64_t stride, TensorId losses, std::int64_t first,
                std::int64_t count) {
  const Sizes& sizes = context.sizes;
  Emitter& emitter = context.emitter;
  op::Matmul matmul{.a = at(hidden, first * sizes.hidden),
                    .b = head.weight,
                    .bias = head.bias,
                    .c = at(logits),
                    .workspace = {},
                    .m = count,
                    .n = sizes.vocab,
                    .k = sizes.hidden,
                    .transpose_a = false,
                    .transpose_b = true,
                    .accumulate = false,
                    .stride_c = stride};
  emitter.emit(op::Mark{Phase::forward});
  emitter.matmul(matmul);
  const auto averaged = static_cast<double>(sizes.targets * context.config.accumulation_steps);
  // The mean over ranks of so much larger gradients is their sum.
  emitter.emit(op::CrossEntropy{at(losses, first), at(logits), first, count, stride,
                                static_cast<float>(sizes.summed_ranks / averaged)});
  emitter.emit(op::Mark{Phase::backward});
  matmul = {.a = at(logits),
            .b = head.weight,
            .bias = {},
            .c = at(d_hidden, first * sizes.hidden),
            .workspace = {},
            .m = count,
            .n = sizes.hidden,
            .k = sizes.vocab,
            .transpose_a = false,
            .transpose_b = false,
            .accumulate = false,
            .stride_a = stride};
  emitter.matmul(matmul);
  matmul = {.a = at(logits),
            .b = at(hidden, first * sizes.hidden),
            .bias = {},
            .c = head.gradient,
            .workspace = {},
            .m = sizes.vocab,
            .n = sizes.hidden,
            .k = count,
            .transpose_a = true,
            .transpose_b = false,
            .accumulate = first > 0 || context.gradients.accumulate(),
            .stride_a = stride,
            .d_bias = head.d_bias};
  emitter.matmul(matmul);
}

/// Logits, losses and the gradient of `hidden`, which it returns.
TensorId emit_chunks(const Context& context, const HeadWeight& head, TensorId hidden) {
  const Sizes& sizes = context.sizes;
  Emitter& emitter = context.emitter;
  const std::int64_t stride =
      logits_stride(sizes.vocab, emitter.type(), emitter.row_alignment_bytes());
  const std::int64_t chunk = rows_per_chunk(sizes.rows, stride, emitter.type());
  const TensorId d_hidden = context.activation("d hidden", -1, sizes.rows * sizes.hidden);
  const TensorId losses = context.statistics("losses", -1, sizes.rows);
  const TensorId logits = context.activation("logits", -1, chunk * stride);
  for (std::int64_t first = 0; first < sizes.rows; first += chunk) {
    emit_chunk(context, head, hidden, d_hidden, logits, stride, losses, first,
               std::min(chunk, sizes.rows - first));
  }
  emitter.release(logits);
  emitter.emit(op::AccumulateLoss{at(losses), sizes.rows});
  emitter.release(losses);
  return d_hidden;
}

}  // namespace

TensorId emit_head(const Context& context, const Running& running, MicroStep micro) {
  const Sizes& sizes = context.sizes;
  const Architecture& parts = context.model.architecture;
  Emitter& emitter = context.emitter;
  const int unit = static_cast<int>(context.model.num_layers) + 1;
  const bool tied = context.model.tie_embeddings;
  const bool final_norm = parts.block != BlockKind::post_norm;
  const bool masked = parts.objective == Objective::masked_token;
  Norm norm{.unit = unit, .weight = final_norm_weight, .bias = final_norm_bias};
  if (final_norm) {
    norm.input = context.activation("residual", -1, sizes.rows * sizes.hidden);
    norm_forward(context, norm, running.residual, running.x);
    emitter.release(running.x);
    if (running.release_residual) emitter.release(running.residual);
  } else {
    norm.out = running.residual;
  }
  Transform transform(context, unit);
  const TensorId features = masked ? transform.forward(norm.out) : norm.out;

  context.gradients.begin_backward(micro);
  context.gradients.open(unit);
  if (tied) context.gradients.open(0);
  const int head_unit = tied ? 0 : unit;
  const ParameterRole role = tied ? token_embedding : head_weight;
  // Forward and backward of the head are one here, but two uses of its parameters.
  for (const bool backward : {false, true}) {
    context.parameters.use(head_unit, role, role);
    if (masked) context.parameters.use(unit, head_bias, head_bias);
    if (backward) break;
    context.parameters.done(head_unit, role, role);
    if (masked) context.parameters.done(unit, head_bias, head_bias);
  }
  const HeadWeight head{
      context.parameters.view(head_unit, role), context.gradients.view(head_unit, role),
      context.parameters.view(unit, head_bias), context.gradients.view(unit, head_bias)};
  const TensorId d_features = emit_chunks(context, head, features);
  context.parameters.done(head_unit, role, role);
  if (masked) context.parameters.done(unit, head_bias, head_bias);
  emitter.release(features);
  TensorId d_residual = masked ? transform.backward(d_features, norm.out) : d_features;
  if (final_norm) {
    const TensorId d_hidden = d_residual;
    d_residual = context.activation("d residual", -1, sizes.rows * sizes.hidden);
    norm_backward(context, norm, d_residual, d_hidden, false);
    emitter.release(d_hidden);
    emitter.release(norm.input);
  }
  context.gradients.close(unit);
  return d_residual;
}

}  // namespace dstune::plan
