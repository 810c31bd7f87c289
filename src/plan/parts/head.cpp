/// The model's head with its loss.

#include <algorithm>

#include "parts/parts.hpp"

namespace dstune::plan {

using enum ParameterRole;

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
    product_ = context_.activation("transform", -1, hidden_);
    linear_forward(context_, layer_, product_, in);
    norm_.input = context_.activation("activated", -1, hidden_);
    context_.emitter.emit(
        op::ActivationForward{false, at(norm_.input), at(product_), rows_, hidden_});
    norm_forward(context_, norm_, norm_.input, no_tensor);
    return norm_.out;
  }
  /// Releases d_out and `in`; returns the gradient of `in`.
  TensorId backward(TensorId d_out, TensorId in) {
    Emitter& emitter = context_.emitter;
    const TensorId d_product = norm_backward_anew(context_, norm_, "d transform", -1, d_out);
    emitter.emit(
        op::ActivationBackward{false, at(d_product), at(d_product), at(product_), rows_, hidden_});
    emitter.release(product_);
    linear_backward_weights(context_, layer_, d_product, in);
    emitter.release(in);
    const TensorId d_in = context_.activation("d hidden", -1, hidden_);
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
                    .m = count,
                    .n = sizes.vocab,
                    .k = sizes.hidden,
                    .transpose_b = true,
                    .stride_c = stride};
  emitter.emit(op::Mark{Phase::forward});
  emitter.emit(matmul);
  const auto averaged = static_cast<double>(sizes.targets * context.config.accumulation_steps);
  // The mean over ranks of so much larger gradients is their sum.
  emitter.emit(op::CrossEntropy{at(losses, first), at(logits), first, count, stride,
                                static_cast<float>(sizes.summed_ranks / averaged)});
  emitter.emit(op::Mark{Phase::backward});
  matmul = {.a = at(logits),
            .b = head.weight,
            .c = at(d_hidden, first * sizes.hidden),
            .m = count,
            .n = sizes.hidden,
            .k = sizes.vocab,
            .stride_a = stride};
  emitter.emit(matmul);
  matmul = {.a = at(logits),
            .b = at(hidden, first * sizes.hidden),
            .c = head.gradient,
            .m = sizes.vocab,
            .n = sizes.hidden,
            .k = count,
            .transpose_a = true,
            .accumulate = first > 0 || context.gradients.accumulate(),
            .stride_a = stride,
            .d_bias = head.d_bias};
  emitter.emit(matmul);
}

/// Logits, losses and the gradient of `hidden`, which it returns.
TensorId emit_chunks(const Context& context, const HeadWeight& head, TensorId hidden) {
  const Sizes& sizes = context.sizes;
  Emitter& emitter = context.emitter;
  const std::int64_t stride =
      logits_stride(sizes.vocab, emitter.type(), emitter.row_alignment_bytes());
  const std::int64_t chunk = rows_per_chunk(sizes.rows, stride, emitter.type());
  const TensorId d_hidden = context.activation("d hidden", -1, sizes.hidden);
  const TensorId losses = context.statistics("losses", -1);
  const TensorId logits =
      emitter.acquire("logits", -1, Category::activations, emitter.type(), chunk * stride);
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
  const Architecture& parts = context.model.architecture;
  Emitter& emitter = context.emitter;
  const int unit = static_cast<int>(context.model.num_layers) + 1;
  const bool tied = context.model.tie_embeddings;
  const bool final_norm = parts.block != BlockKind::post_norm;
  const bool masked = parts.objective == Objective::masked_token;
  Norm norm{.unit = unit, .weight = final_norm_weight, .bias = final_norm_bias};
  if (final_norm) {
    if (running.x == no_tensor) {
      norm.input = running.residual;
      norm_forward(context, norm, running.residual, no_tensor);
    } else {
      norm_forward_of_sum(context, norm, -1, running.residual, running.x);
      if (running.release_residual) emitter.release(running.residual);
    }
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
    d_residual = norm_backward_anew(context, norm, "d residual", -1, d_residual);
  }
  context.gradients.close(unit);
  return d_residual;
}

}  // namespace dstune::plan
